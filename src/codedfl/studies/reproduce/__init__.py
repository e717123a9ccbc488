"""The paper's experiment: its figure, its tables, and each of its claims beside what is measured here."""
