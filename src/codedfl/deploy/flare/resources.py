"""The policy of a site: jobs may use our two classes only, bring no code, run no commands and read no logs.

Paths in these files must be absolute, so they are rewritten whenever a kit is started.
"""

import json
from pathlib import Path
from typing import Any

from codedfl.deploy.flare.cells import LONGEST_START
from codedfl.deploy.flare.names import SITE
from codedfl.deploy.flare.sites import read_site

CONTROLLER = "codedfl.deploy.flare.controller.CarrierController"
ADMISSION = "codedfl.deploy.flare.controller.Admission"
EXECUTOR = "codedfl.deploy.flare.executor.HostExecutor"
PATIENT_START = "codedfl.deploy.flare.cells.PatientStart"
FLARE = "nvflare.app_common"

RETRY_SECONDS = {True: 4.0, False: 30.0}
"""How long FLARE may retransmit a message: on one machine (True), and between hosts.

A receiver keeps every message and a thread for it 1.5 times as long. With FLARE's default of 60 seconds, epochs of
30 ms fill a gigabyte and take thousands of threads.
"""

KIB = 1024
STREAMING = {"streaming_chunk_size": 64 * KIB, "streaming_ack_interval": 64 * KIB, "streaming_window_size": 256 * KIB}
"""Bytes of a parcel in flight between hosts.

With FLARE's default of 64 megabytes, pings on a slow link wait behind a parcel: its sender would be taken for lost, and
the parcel retransmitted while it is still in flight.
"""

ALLOWED = {"submit_job": "any", "manage_job": "any", "download_job": "any", "view": "any", "operate": "any"}
DENIED = dict.fromkeys(("clone_job", "shell_commands", "byoc", "server-predeployed-flwr"), "none")


def write_policy(kit: Path) -> None:
    """Write the policy of a kit."""
    server = (kit / "startup" / "fed_server.json").exists()
    files = {
        "resources.json": _server_resources(kit.resolve()) if server else _device_resources(),
        "authorization.json": {"format_version": "1.0", "permissions": {"project_admin": ALLOWED | DENIED}},
        "log_config.json": _log_settings(),
        "comm_config.json": _transport(kit, "fed_server.json" if server else "fed_client.json"),
    }
    for name, content in files.items():
        _write(kit / "local" / name, content)
    if server:  # FLARE's own list, which also ends what it would resume by an old token
        names = [one for one in read_site(kit).get("revoked", ()) if SITE.fullmatch(one)]
        _write(kit / "disabled_clients.json", {"disabled_clients": names})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    path.chmod(0o600)


def _transport(kit: Path, settings: str) -> dict[str, float]:
    target = json.loads((kit / "startup" / settings).read_text(encoding="utf-8"))["servers"][0]["service"]["target"]
    local = target.startswith("localhost:")
    seconds = {"streaming_retry_timeout": RETRY_SECONDS[local], "streaming_retry_wait": RETRY_SECONDS[local] / 2}
    return seconds if local else seconds | STREAMING


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


def _server_resources(kit: Path) -> dict[str, Any]:
    storage = f"{FLARE}.storages.filesystem_storage.FilesystemStorage"
    snapshots = {"path": storage, "args": {"root_dir": str(kit / "snapshots"), "uri_root": "/"}}
    persistor = f"{FLARE}.state_persistors.storage_state_persistor.StorageStatePersistor"
    manager = "nvflare.apis.impl.job_def_manager.SimpleJobDefManager"
    jobs = str(kit / "jobs" / "store")
    limits = {"max_num_clients": 1000, "heart_beat_timeout": 60, "admin_timeout": 10.0}
    return {
        **_allowing(CONTROLLER),
        "servers": [{"admin_storage": "transfer", **limits}],
        "snapshot_persistor": {"path": persistor, "args": {"uri_root": "/", "storage": snapshots}},
        "components": [
            _component("job_scheduler", f"{FLARE}.job_schedulers.job_scheduler.DefaultJobScheduler", max_jobs=1),
            _component("job_manager", manager, uri_root=jobs, job_store_id="job_store"),
            _component("job_store", storage),
            _component("process_launcher", f"{FLARE}.job_launcher.server_process_launcher.ServerProcessJobLauncher"),
            _component("admission", ADMISSION),
        ],
    }


def _device_resources() -> dict[str, Any]:
    manager = f"{FLARE}.resource_managers.gpu_resource_manager.GPUResourceManager"
    return {
        **_allowing(EXECUTOR),
        "allow_log_streaming": False,
        # from the cell to the registration; after FLARE's 30 s a device would be registered, but answer nothing
        "client": {"retry_timeout": 30, "compression": "Gzip", "engine_create_timeout": LONGEST_START},
        "components": [
            _component("resource_manager", manager, num_of_gpus=0, mem_per_gpu_in_GiB=0),
            _component("resource_consumer", f"{FLARE}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _component("process_launcher", f"{FLARE}.job_launcher.client_process_launcher.ClientProcessJobLauncher"),
            _component("patient_start", PATIENT_START),
        ],
    }


def _allowing(name: str) -> dict[str, Any]:
    """Return settings that allow jobs one class only."""
    return {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": [name]}


def _log_settings() -> dict[str, Any]:
    line = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    console = {"class": "logging.StreamHandler", "level": "ERROR", "formatter": "plain"}
    file: dict[str, Any] = {"class": "logging.handlers.RotatingFileHandler", "level": "DEBUG", "formatter": "plain"}
    file |= {"filename": "log.txt", "mode": "a", "maxBytes": 20_000_000, "backupCount": 3}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": line}},
        "handlers": {"console": console, "file": file},
        "loggers": {"root": {"level": "INFO", "handlers": ["console", "file"]}},
    }
