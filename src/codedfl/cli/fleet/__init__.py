"""``codedfl fleet``: fleets of devices from what runs have shown."""
