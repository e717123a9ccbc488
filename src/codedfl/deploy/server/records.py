"""The union of the sites' records beside a run, and the name by which sites know the run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.deploy.protocol.fields import one_line
from codedfl.deploy.protocol.records import SCHEMA, UNION, check_record
from codedfl.deploy.server.channel import Channel
from codedfl.errors import RecordError, RunDirectoryError
from codedfl.storage import write_json

NAME = "deployment.json"
"""In a run directory: the name of the run in the records of sites."""


def known_run(folder: Path) -> str | None:
    """Return the name of a run that is to be resumed; None if there is none."""
    try:
        return str(json.loads((folder / NAME).read_text(encoding="utf-8"))["run"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise RunDirectoryError(f"'{folder / NAME}' is damaged; choose another --out") from None


def write_run(folder: Path, run: str) -> None:
    """Store the name of a run before its first epoch."""
    if not (folder / NAME).exists():
        write_json(folder / NAME, {"run": run})


def collect_records(channel: Channel, folder: Path, keys: Mapping[str, str]) -> dict[str, Any]:
    """End the session, and write the records of all sites; return what the summary says about them.

    ``keys`` are the fingerprints of the sites' keys, as the server has pinned or seen them.
    """
    answers = channel.end_session()
    rows: list[dict[str, Any]] = []
    for device, site in enumerate(channel.sites):
        record = answers[device].frame.fields.get("record") if device in answers else None
        if record is not None:
            rows.append({"site": site, "verified": _verified(record, channel.run, site, keys), "record": record})
    missing = [site for site in channel.sites if site not in {row["site"] for row in rows}]
    write_json(folder / UNION, {"schema": SCHEMA, "run": channel.run, "records": rows, "missing": missing})
    unverified = {row["site"]: row["verified"] for row in rows if row["verified"] is not True}
    return {"file": UNION, "verified": len(rows) - len(unverified), "unverified": unverified, "missing": missing}


def _verified(record: Any, run: str, site: str, keys: Mapping[str, str]) -> bool | str:
    """Return true, or why a record does not count."""
    try:
        check_record(record, keys.get(site))
    except RecordError as error:
        return one_line(error)
    return True if (record["run"], record["site"]) == (run, site) else "it is the record of another run or site"
