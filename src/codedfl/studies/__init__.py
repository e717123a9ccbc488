"""Studies over runs: compare, sweep, plan, reproduce."""
