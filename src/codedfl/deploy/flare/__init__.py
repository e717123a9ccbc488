"""Deployments on NVIDIA FLARE: start-up kits, processes, jobs and transport; no mathematics.

A job brings configuration only: its entry point at the server and the hosts at the sites are functions of the installed
package. FLARE is imported when it is needed.
"""
