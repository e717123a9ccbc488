"""Views: what each party sees in a run, built from its transcript by one function a scheme."""
