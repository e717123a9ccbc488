"""The owner's record of a run: who asked, what was agreed, computed and sent, what was refused, how it ended.

``records/RUN/site-record.json`` in the site's folder, signed by the site's key and written again as the run goes on
(docs/records.md). It holds no data, names of columns or classes, paths or secrets, so the server may have a copy.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from codedfl import schemes
from codedfl.deploy.protocol.carrier import Peers
from codedfl.deploy.protocol.keeping import KeptParcels, remove_stale
from codedfl.deploy.protocol.records import RECORD, SCHEMA, signed
from codedfl.deploy.protocol.terms import Terms
from codedfl.deploy.site.privacy import LedgerEntry, PrivacyLedger, RunNoise
from codedfl.errors import RefusalError
from codedfl.scenario import Scenario
from codedfl.schemes.private import stated_secrecy, with_release
from codedfl.storage import package_version, write_json

if TYPE_CHECKING:
    from codedfl.deploy.site.session import Site

FOLDER = "records"
SUMS = "opened-sums.txt"
"""Beside a record: which devices were in the sums of the run."""
OPEN, FINISHED = "open", "finished"
_MOST = 1000
"""Sessions and refusals that are listed one by one."""
_SECONDS = 5.0
"""Between two writes of a record in which nothing but counts has changed."""

_log = logging.getLogger(__name__)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@final
class RunRecord:
    """The record of the run that a site takes part in; thread-safe. Without a folder it is in memory only."""

    def __init__(self, site: "Site", run: str, scenario: Scenario, terms: Terms, ledger: PrivacyLedger) -> None:
        """Begin a record, or continue that of an interrupted run."""
        self.run = run
        self._site = site
        self._lock = threading.Lock()
        self._written = 0.0
        self._folder = None if site.folder is None else site.folder / FOLDER / run
        self.sums = SumMemory(self._folder)
        self.parcels = KeptParcels(self._folder, site.name, run)
        if site.folder is not None:
            remove_stale(site.folder / FOLDER)
        self.noise = RunNoise(ledger, run, self._folder)
        self._ledger = ledger
        self._charged: set[str] = set()
        self._table: dict[str, Any] = self._stored() or {
            "schema": SCHEMA,
            "run": run,
            "site": site.name,
            "began": _now(),
            "sessions": [],
            "computed": {"replies": 0, "last_epoch": 0, "parcels_made": 0, "parcels_absorbed": 0, "multiplications": 0},
            "left": [],
            "refusals": [],
            "refused": 0,
        }
        nothing_yet = {"release": None, "statement": None, "total": None} if scenario.private else None
        key = site.key
        pins = {} if site.pins is None else site.pins
        others = {name: pins.get(name) for name in site.agreement.cohort}
        if key is not None:
            others[site.name] = key.fingerprint
        rows = [row.to_table() for row in stated_secrecy(with_release(scenario, schemes.nominal(scenario)))]
        self._table |= {
            "version": package_version(),
            "key": None if key is None else key.fingerprint,
            "public": None if key is None else key.public.hex(),
            "server": site.server,
            "scenario": scenario.name,
            "scheme": scenario.scheme,
            "agreed": {
                "terms": terms.digest,
                "words": list(terms.words),
                "by_digest": terms.digest in site.agreement.terms,
                "cohort": others,
                "least": site.agreement.least,
            },
            "privacy": self._table.get("privacy") or nothing_yet,
            "could_learn": rows,
            "ended": {"how": OPEN, "at": None},
        }
        _log.info("%s: run %s asks for %s", site.name, run, "; ".join(terms.words))

    def session(self, name: str, purpose: str, *, noise: bool) -> None:
        """Note a session that the server begins, and whether the site adds noise in it."""
        with self._lock:
            if len(self._table["sessions"]) < _MOST:
                self._table["sessions"].append({"session": name, "purpose": purpose, "noise": noise, "began": _now()})
            self._table["ended"] = {"how": OPEN, "at": None}
            self._write()
        _log.info("%s: session for %s in run %s", self._site.name, purpose, self.run)

    def computed(self, *, epoch: int = 0, multiplications: int = 0, **counts: int) -> None:
        """Count what was computed."""
        with self._lock:
            done = self._table["computed"]
            for name, count in {"multiplications": multiplications, **counts}.items():
                done[name] += int(count)
            done["last_epoch"] = max(done["last_epoch"], epoch)

    def left(self, to: str, kind: str, size: int) -> None:
        """Count a message that leaves the site."""
        with self._lock:
            rows = self._table["left"]
            row = next((row for row in rows if (row["to"], row["kind"]) == (to, kind)), None)
            if row is None:
                row = {"to": to, "kind": kind, "messages": 0, "bytes": 0}
                rows.append(row)
            row["messages"] += 1
            row["bytes"] += size
            if time.monotonic() - self._written > _SECONDS:
                self._write()

    def charge(self, entry: LedgerEntry) -> None:
        """Enter a release in the ledger, before its noisy data leave the site; once."""
        with self._lock:
            if entry.release in self._charged:
                return
            self.noise.keep()
            total = self._ledger.charge(entry)
            self._charged.add(entry.release)
            made = {"release": entry.release, "statement": entry.statement, "total": total.to_table()}
            self._table["privacy"] = made
            self._write()
        _log.info("%s: run %s is %s", self._site.name, self.run, entry.statement)
        _log.info("%s: %s", self._site.name, total.words)

    def refused(self, sentence: str) -> None:
        """Note what was refused."""
        with self._lock:
            self._table["refused"] += 1
            if len(self._table["refusals"]) < _MOST:
                self._table["refusals"].append({"at": _now(), "what": sentence})
            self._write()

    def end(self, how: str) -> dict[str, Any]:
        """Close the record, and return it with its signature."""
        if how == FINISHED:
            self.noise.forget()
            self.parcels.remove()
        with self._lock:
            if self._table["ended"]["how"] == OPEN:
                self._table["ended"] = {"how": how, "at": _now()}
                done, sent = self._table["computed"], sum(row["bytes"] for row in self._table["left"])
                _log.info(
                    "%s: run %s ended (%s): %d replies, %d parcels, %d bytes sent, %d requests refused",
                    *(self._site.name, self.run, how, done["replies"], done["parcels_made"], sent),
                    self._table["refused"],
                )
            return self._write()

    def _write(self) -> dict[str, Any]:
        record = signed(self._table | {"updated": _now()}, self._site.key)
        self._written = time.monotonic()
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_json(self._folder / RECORD, record, durable=False)
            except OSError as error:
                _log.error("the record of run %s cannot be written (%s)", self.run, error.strerror)
        return record

    def _stored(self) -> dict[str, Any] | None:
        """Return the record of an interrupted run of this site."""
        if self._folder is None or not (self._folder / RECORD).exists():
            return None
        try:
            found = json.loads((self._folder / RECORD).read_text(encoding="utf-8"))
            if (found["schema"], found["run"], found["site"]) == (SCHEMA, self.run, self._site.name):
                return {name: value for name, value in found.items() if name not in ("signature", "updated")}
        except (OSError, ValueError, KeyError, TypeError):
            pass
        kept = self._folder / f"damaged-{time.time_ns()}-{RECORD}"
        (self._folder / RECORD).rename(kept)
        _log.warning("the earlier record of run %s is damaged and kept as %s", self.run, kept.name)
        return None


def server_of(folder: Path) -> Mapping[str, Any] | None:
    """Return the server that a kit connects to: its address and the fingerprint of the certificate authority."""
    try:
        settings = json.loads((folder / "startup" / "fed_client.json").read_text(encoding="utf-8"))
        address = str(settings["servers"][0]["service"]["target"])
        authority = hashlib.sha256((folder / "startup" / "rootCA.pem").read_bytes()).hexdigest()
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    return {"address": address, "authority": f"sha256:{authority}"}


@final
class CountingPeers(Peers):
    """The way to other sites, whose messages are counted in the record."""

    def __init__(self, peers: Peers, record: Callable[[], RunRecord | None]) -> None:
        self._peers = peers
        self._record = record

    def send(self, site: str, payload: bytes) -> bytes:
        """Pass a parcel on, and count it."""
        record = self._record()
        if record is not None:
            record.left(site, "parcel, encrypted for the site", len(payload))
        return self._peers.send(site, payload)

    def waiting(self, still: Callable[[], bool]) -> AbstractContextManager[None]:
        """Return the context of the others."""
        return self._peers.waiting(still)


@final
class SumMemory:
    """Which devices were in the sums that a site has opened in a run; thread-safe. Without a folder in memory only.

    The difference of two sums of one epoch that differ in one device is that device's reply. So a resumed run may ask
    for an epoch again only with the same devices.
    """

    def __init__(self, folder: Path | None) -> None:
        self._lock = threading.Lock()
        self._path = None if folder is None else folder / SUMS
        self._opened: dict[str, str] = {}
        if self._path is not None and self._path.exists():
            lines = self._path.read_text(encoding="utf-8").splitlines()
            self._opened = dict(line.split(" ", 1) for line in lines if " " in line)

    def admit(self, site: str, part: str, epoch: int, members: Sequence[int]) -> None:
        """Refuse a sum of other devices than those whose sum was opened before."""
        with self._lock:
            before = self._opened.get(_key(part, epoch))
        if before is not None and before != _words(members):
            raise RefusalError(
                f"{site} has opened the sum of epoch {epoch} with the devices {before} and refuses one with "
                f"{_words(members)}, because their difference shows single devices; resume with the same devices"
            )

    def opened(self, part: str, epoch: int, members: Sequence[int]) -> None:
        """Remember a sum before its last reply leaves the site."""
        key = _key(part, epoch)
        with self._lock:
            if key in self._opened:
                return
            self._opened[key] = _words(members)
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(f"{key} {self._opened[key]}\n")


def _key(part: str, epoch: int) -> str:
    return f"{part}/{epoch}"


def _words(members: Sequence[int]) -> str:
    return ",".join(str(number) for number in sorted(members))
