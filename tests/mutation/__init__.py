"""Mutation testing: change one operator, constant or statement at random and see whether a test notices."""
