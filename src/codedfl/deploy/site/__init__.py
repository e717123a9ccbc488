"""The site's side of a deployment."""
