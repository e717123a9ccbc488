"""Real deployments on NVIDIA FLARE: start-up kits, processes, jobs, and the two ends that carry bytes.

Nothing here knows any mathematics. What runs on the server is an entry point of this package named by the job; what
runs on a device is a host made from that site's own configuration. Both come from the installed package: a job ships
configuration only. FLARE itself is imported when it is needed, and only then.
"""
