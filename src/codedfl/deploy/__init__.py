"""Deployments: the same schemes on real sites."""
