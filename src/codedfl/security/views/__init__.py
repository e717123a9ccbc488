"""What each party sees: the only thing an attack is given."""
