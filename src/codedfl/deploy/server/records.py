"""The union of the sites' records beside a run, and the name by which sites know the run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codedfl.data import Preparation
from codedfl.deploy.protocol.fields import one_line
from codedfl.deploy.protocol.records import SCHEMA, UNION, check_record
from codedfl.deploy.server.channel import Channel
from codedfl.errors import CodedflError, RecordError, RunDirectoryError
from codedfl.storage import write_json
from codedfl.task.preparing import Prepared

NAME = "deployment.json"
"""In a run directory: the name of the run in the records of sites, and what they have told of their data."""
_ENERGIES = ("feature_energy", "target_energy")


@dataclass(frozen=True)
class KnownRun:
    """What is known of a run from its first session on: its name, and what sites have told and agreed on."""

    run: str
    described: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By site: the sizes of its data and the like."""
    loading: str | None = None
    """The scenario with the categories that all sites use."""
    prepared: Prepared | None = None


def known_run(folder: Path) -> KnownRun | None:
    """Return what is known of a run that is to be resumed; None if there is none."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        table = found.get("prepared")
        prepared = None
        if table is not None:
            energies = (None if table[name] is None else float(table[name]) for name in _ENERGIES)
            prepared = Prepared(Preparation.from_table(table["preparation"]), *energies)
        return KnownRun(str(found["run"]), dict(found.get("described", {})), found.get("loading"), prepared)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CodedflError):
        raise RunDirectoryError(f"'{folder / NAME}' is damaged; choose another --out") from None


def write_run(folder: Path, known: KnownRun) -> None:
    """Store what is known of a run before its first epoch."""
    if (folder / NAME).exists():
        return
    table: dict[str, Any] = {"run": known.run, "described": known.described, "loading": known.loading}
    if (prepared := known.prepared) is not None:
        energies = {name: getattr(prepared, name) for name in _ENERGIES}
        table["prepared"] = {"preparation": prepared.preparation.to_table(), **energies}
    write_json(folder / NAME, table)


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
