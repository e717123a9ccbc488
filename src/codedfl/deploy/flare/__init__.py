"""Real deployments on NVIDIA FLARE: start-up kits, processes, jobs, and the two ends that carry bytes.

    kits = make_kits(folder, site_names(5), settings={...})         once
    with running(kits_of(kits)), Admin(kits, revive=reviver(kits_of(kits))) as admin:
        result = run_job(admin, Job("name", "codedfl.deploy.server.deployment:serve", kits.sites, {...}))

Nothing here knows any mathematics. What runs on the server is an entry point of this package named by the job; what
runs on a device is a host made from that site's own configuration. Both come from the installed package: a job ships
configuration only. FLARE itself is imported when it is needed, and only then.
"""

from codedfl.deploy.flare.jobs import Admin, Job, run_job
from codedfl.deploy.flare.kits import Kits, load_kits, make_kits, write_site
from codedfl.deploy.flare.names import need_flare, site_names
from codedfl.deploy.flare.processes import Status, kits_of, reviver, running, start, status, stop, threads_each

__all__ = [
    "Admin",
    "Job",
    "Kits",
    "Status",
    "kits_of",
    "load_kits",
    "make_kits",
    "need_flare",
    "reviver",
    "run_job",
    "running",
    "site_names",
    "start",
    "status",
    "stop",
    "threads_each",
    "write_site",
]
