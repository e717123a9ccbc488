"""Differential privacy: exact noise, sensitivities, accounting."""
