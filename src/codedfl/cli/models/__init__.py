"""Commands on models: predict and export."""
