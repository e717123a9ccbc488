"""A site's part in transfers between devices: stage by stage, or stages that overlap."""
