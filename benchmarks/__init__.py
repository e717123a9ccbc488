"""Full-size measurements, as ratios taken in one run: ``make bench``, or ``python -m benchmarks NAME``."""
