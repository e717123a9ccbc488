"""What a site lets jobs do: our two classes and no other, no code from a job, no commands, no logs sent away.

These files are the site's own. Paths in them must be absolute, so they are written again when a kit is started.
"""

import json
from pathlib import Path
from typing import Any

__all__ = ["CONTROLLER", "EXECUTOR", "PATIENCE", "write_policy"]

CONTROLLER = "codedfl.deploy.flare.controller.CarrierController"
EXECUTOR = "codedfl.deploy.flare.executor.HostExecutor"
FLARE = "nvflare.app_common"

PATIENCE = 60
"""Seconds without a sign of life after which the server strikes a device off its list."""

SENT_AGAIN = {True: 4.0, False: 30.0}
"""Seconds for which FLARE may send a message again: on this machine alone, and between hosts.

As long, and half as long again, a receiver keeps every message and a thread for it. With FLARE's own 60 seconds, epochs
of 30 ms fill a gigabyte with messages and take thousands of threads.
"""

KIB = 1024
IN_PIECES = {
    "streaming_chunk_size": 64 * KIB,
    "streaming_ack_interval": 64 * KIB,
    "streaming_window_size": 256 * KIB,
}
"""Between hosts, no more than this of a parcel is on its way at a time.

FLARE lets 64 megabytes be. On a slow link all else waits behind them, signs of life too: a device that sends a parcel
would be taken for gone, and what is not acknowledged in time would be sent again while it is still under way.
"""

MAY = {"submit_job": "any", "manage_job": "any", "download_job": "any", "view": "any", "operate": "any"}
MAY_NOT = dict.fromkeys(("clone_job", "shell_commands", "byoc", "server-predeployed-flwr"), "none")


def write_policy(kit: Path) -> None:
    """Write what the site of a kit allows."""
    server = (kit / "startup" / "fed_server.json").exists()
    files = {
        "resources.json": _server_resources(kit.resolve()) if server else _device_resources(),
        "authorization.json": {"format_version": "1.0", "permissions": {"project_admin": MAY | MAY_NOT}},
        "log_config.json": _log_settings(),
        "comm_config.json": _carrying(kit, "fed_server.json" if server else "fed_client.json"),
    }
    for name, content in files.items():
        path = kit / "local" / name
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
        path.chmod(0o600)


def _carrying(kit: Path, settings: str) -> dict[str, float]:
    target = json.loads((kit / "startup" / settings).read_text(encoding="utf-8"))["servers"][0]["service"]["target"]
    local = target.startswith("localhost:")
    seconds = {"streaming_retry_timeout": SENT_AGAIN[local], "streaming_retry_wait": SENT_AGAIN[local] / 2}
    return seconds if local else seconds | IN_PIECES


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


def _server_resources(kit: Path) -> dict[str, Any]:
    storage = f"{FLARE}.storages.filesystem_storage.FilesystemStorage"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": PATIENCE,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": f"{FLARE}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {"path": storage, "args": {"root_dir": str(kit / "snapshots"), "uri_root": "/"}},
            },
        },
        "components": [
            _component("job_scheduler", f"{FLARE}.job_schedulers.job_scheduler.DefaultJobScheduler", max_jobs=1),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(kit / "jobs" / "store"),
                job_store_id="job_store",
            ),
            _component("job_store", storage),
            _component("process_launcher", f"{FLARE}.job_launcher.server_process_launcher.ServerProcessJobLauncher"),
        ],
    }


def _device_resources() -> dict[str, Any]:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component(
                "resource_manager",
                f"{FLARE}.resource_managers.gpu_resource_manager.GPUResourceManager",
                num_of_gpus=0,
                mem_per_gpu_in_GiB=0,
            ),
            _component("resource_consumer", f"{FLARE}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _component("process_launcher", f"{FLARE}.job_launcher.client_process_launcher.ClientProcessJobLauncher"),
        ],
    }


def _log_settings() -> dict[str, Any]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {
                "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
                "fmt": "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s",
            }
        },
        "handlers": {
            "console": {"class": "logging.StreamHandler", "level": "ERROR", "formatter": "plain"},
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "level": "DEBUG",
                "formatter": "plain",
                "filename": "log.txt",
                "mode": "a",
                "maxBytes": 20_000_000,
                "backupCount": 3,
            },
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["console", "file"]}},
    }
