"""Records of sites: canonical bytes, signatures, and the union that the server keeps (docs/records.md)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.deploy.protocol.envelopes import DeviceKey, fingerprint, statement, verify
from codedfl.errors import RecordError

SCHEMA = 1
RECORD = "site-record.json"
"""In ``records/RUN/`` of a site: what it did in a run."""

UNION = "site-records.json"
"""In a run directory of the server: the records of all sites."""

_LABEL = "codedfl record 1"
_NEEDED = ("schema", "run", "site", "key", "public", "agreed", "left", "ended", "signature")


def signed(record: Mapping[str, Any], key: DeviceKey | None) -> dict[str, Any]:
    """Return a record with its signature; None for a site without a key."""
    signature = None if key is None else key.sign(statement(_LABEL, _canonical(record))).hex()
    return {**record, "signature": signature}


def check_record(record: Any, key: str | None = None) -> None:
    """Refuse a record that is incomplete, not signed, altered, or signed by another ``key`` than this fingerprint."""
    if not isinstance(record, dict) or not set(_NEEDED) <= record.keys():
        raise RecordError("it is no record of a site; give a site-record.json or site-records.json")
    if record["schema"] != SCHEMA:
        raise RecordError(f"its format is {record['schema']!r}, not {SCHEMA}; use the version of codedfl that wrote it")
    if record["signature"] is None:
        raise RecordError("it is not signed, because the site has no key; nothing shows who wrote it")
    try:
        public, signature = (bytes.fromhex(record[name]) for name in ("public", "signature"))
        own = fingerprint(public)
        genuine = record["key"] == own and verify(public, statement(_LABEL, _canonical(record)), signature)
    except (TypeError, ValueError):
        genuine = False
    if not genuine:
        raise RecordError("its signature does not fit its contents; it was altered after it was signed")
    if key is not None and own != key:
        raise RecordError(f"it is signed by the key {own}, not by {key}; ask the owner of the site")


def read_records(path: Path) -> list[Any]:
    """Read a record, or all records of a union."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"'{path}' cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError):
        raise RecordError(f"'{path}' is not valid JSON; give a site-record.json or site-records.json") from None
    if isinstance(found, dict) and isinstance(found.get("records"), list):
        return [each.get("record") if isinstance(each, dict) else each for each in found["records"]]
    return [found]


def _canonical(record: Mapping[str, Any]) -> bytes:
    own = {name: value for name, value in record.items() if name != "signature"}
    return json.dumps(own, sort_keys=True, separators=(",", ":")).encode()
