"""Commands on models: predict, export, and whether federation pays for owners."""
