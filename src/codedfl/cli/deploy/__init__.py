"""``codedfl deploy``: scenarios on real processes."""
