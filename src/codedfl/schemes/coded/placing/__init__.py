"""How the sealed sum is cut into bands, added up in groups, and placed on workers as coded blocks."""
