"""The server's side of a deployment."""
