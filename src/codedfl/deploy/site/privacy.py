"""What a site has released under differential privacy: the ledger, the owner's budget, and noise that is drawn once.

``privacy.json`` in the site's folder has an entry for every release, written before any noisy data leave the site. A
run keeps the seed of its noise in ``records/RUN/noise.json`` until it ends. A session that resumes it releases the same
sums, so it has the same entry; whatever differs (data, terms, cohort, sizes) derives other noise from the seed, and is
another release. Without its seed, a run that is resumed is another release, too.

Sites tell each other, through the server, marks of their seeds and data. If that of one site has changed, all derive
other noise: noise that stays beside fresh noise of others would show by and by, as theirs averages out.
"""

import dataclasses
import fcntl
import hashlib
import hmac
import json
import logging
import math
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Shaped

from codedfl import schemes
from codedfl.cipher.randomness import SEED_BYTES
from codedfl.cipher.seals import Seed
from codedfl.deploy.protocol.terms import terms_of
from codedfl.errors import RefusalError
from codedfl.privacy.accounting import composed, epsilon_of, mu_of
from codedfl.privacy.descent import GradientRelease
from codedfl.privacy.promise import Promise, rounded_up
from codedfl.privacy.release import Release
from codedfl.scenario import Scenario
from codedfl.schemes.private import noisy_shard
from codedfl.settings import Settings, setting
from codedfl.storage import write_json, write_whole
from codedfl.task import Shard

LEDGER = "privacy.json"
KEY = "privacy.key"
"""Beside the ledger: the key of its digests of data, which never leaves the site."""
SEED = "noise.json"
SCHEMA = 1
_ABOUT = "Releases of this site under differential privacy; docs/records.md explains each key."
_NAME_BYTES = 16

_log = logging.getLogger(__name__)


class SitePrivacy(Settings, table="privacy"):
    """What the owner allows: a budget that the runs of a ``ledger`` use up together, and whether noise is a must.

    Without a budget nothing is refused, and the total is in log and record. With one, runs without noise are refused.
    """

    ledger: str = setting(default="default")
    budget_epsilon: float | None = setting(default=None, above=0)
    budget_delta: float = setting(default=1e-5, above=0, below=1)
    only_private: bool = setting(default=False)


@final
@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One release."""

    release: str
    """Its name, which follows from the secret seed of its noise."""
    ledger: str
    run: str
    at: str
    scenario: str
    unit: str
    epsilon: float
    delta: float
    mu: float
    """Ratio of sensitivity to noise; those of several releases add up as sqrt(sum of squares)."""
    releases: int
    """How many times the run releases sums; planned, and charged in advance."""
    data: str
    """Digest of the rows under the site's own key."""
    terms: str
    statement: str

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "LedgerEntry":
        """Validate an entry; further keys are the owner's."""
        entry = cls(**{field.name: table[field.name] for field in dataclasses.fields(cls)})
        texts = (entry.release, entry.ledger, entry.run, entry.at, entry.scenario, entry.data, entry.terms)
        sound = all(isinstance(text, str) for text in (*texts, entry.statement)) and type(entry.releases) is int
        sound &= all(type(number) is float for number in (entry.epsilon, entry.delta, entry.mu))
        if not sound or entry.unit not in ("record", "device") or not (entry.mu > 0 and math.isfinite(entry.mu)):
            raise ValueError(f"no entry of a ledger: {table}")
        return entry


@final
@dataclass(frozen=True)
class PrivacyTotal:
    """What the releases of a ledger amount to together."""

    ledger: str
    releases: int
    unit: str
    """``device`` only if every release hides all records of a device."""
    mu: float
    epsilon: float
    delta: float
    budget: float | None
    left: float | None
    """The epsilon of a further run, at the same delta, that the budget still allows."""

    @classmethod
    def of(cls, entries: Sequence[LedgerEntry], allowed: SitePrivacy) -> "PrivacyTotal":
        """Compose the releases of the owner's ledger."""
        own = [entry for entry in entries if entry.ledger == allowed.ledger]
        mu, delta = composed(entry.mu for entry in own), allowed.budget_delta
        left = None
        if allowed.budget_epsilon is not None:
            most = mu_of(allowed.budget_epsilon, delta)
            left = epsilon_of(math.sqrt(most**2 - mu**2), delta) if mu < most else 0.0
        unit = "device" if own and all(entry.unit == "device" for entry in own) else "record"
        epsilon = epsilon_of(mu, delta)
        return cls(allowed.ledger, len(own), unit, mu, epsilon, delta, allowed.budget_epsilon, left)

    @property
    def words(self) -> str:
        """The total in one sentence."""
        what = "one record" if self.unit == "record" else "all records of this site"
        releases = f"{self.releases} release{'s' * (self.releases != 1)}"
        left = "" if self.left is None else f"; a budget of {self.budget:g} leaves {_shown_left(self.left)}"
        return (
            f"{releases} in ledger '{self.ledger}': together ({_shown(self.epsilon)}, {self.delta:g})-differentially "
            f"private for {what}{left}"
        )

    def to_table(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


def _shown(epsilon: float) -> str:
    return rounded_up(epsilon) if epsilon > 0 else "0"


def _shown_left(epsilon: float) -> str:
    """Three digits, never more than the number."""
    return f"{math.floor(epsilon * 1000) / 1000:.3g}" if epsilon < 1 else f"{math.floor(epsilon * 100) / 100:g}"


@final
class PrivacyLedger:
    """The releases of a site, in a file that several processes may write; without a folder in memory only."""

    def __init__(self, site: str, folder: Path | None, allowed: SitePrivacy) -> None:
        self.allowed = allowed
        self._site = site
        self._folder = folder
        self._lock = threading.Lock()
        self._entries: list[LedgerEntry] = []
        self._key = secrets.token_bytes(SEED_BYTES)

    def admit_run(self, scenario: Scenario) -> None:
        """Refuse a run without noise where the owner wants noise, and one that releases more than noisy sums."""
        if scenario.private:
            schemes.check(scenario)
        elif self.allowed.only_private or self.allowed.budget_epsilon is not None:
            raise RefusalError(
                f"{self._site} takes part in runs with noise only, and this one adds none; set privacy.epsilon"
            )

    def total(self) -> PrivacyTotal:
        """Return what was released so far."""
        return PrivacyTotal.of(self.entries(), self.allowed)

    def admit(self, entry: LedgerEntry) -> None:
        """Refuse a release beyond the budget, unless it is one that was made before."""
        self._admit(self.entries(), entry)

    def charge(self, entry: LedgerEntry) -> PrivacyTotal:
        """Enter a release, once; refuse it beyond the budget. Only then may its noisy data leave the site."""
        with self._locked():
            entries = self.entries()
            if not self._admit(entries, entry):
                entries.append(entry)
                self._write(entries)
        return PrivacyTotal.of(entries, self.allowed)

    def entries(self) -> list[LedgerEntry]:
        """Return all releases; refuse a damaged ledger instead of starting from nothing."""
        if self._folder is None:
            return list(self._entries)
        try:
            found = json.loads((self._folder / LEDGER).read_text(encoding="utf-8"))
            if found["schema"] != SCHEMA:
                raise ValueError
            return [LedgerEntry.read(row) for row in found["releases"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise RefusalError(
                f"the ledger of {self._site} under differential privacy cannot be read, so nobody knows what it has "
                f"released; its owner repairs {LEDGER}, or restores a copy"
            ) from None

    def digest(self, *arrays: Shaped[np.ndarray, "..."]) -> str:
        """Return a digest of numbers under the site's own key: who has the ledger alone cannot try out data."""
        digest = hmac.new(self._secret(), digestmod=hashlib.sha256)
        for array in arrays:
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return f"hmac-sha256:{digest.hexdigest()}"

    def _admit(self, entries: Sequence[LedgerEntry], entry: LedgerEntry) -> bool:
        """Return whether a release was made before; refuse a new one beyond the budget."""
        if any(before.release == entry.release for before in entries):
            return True
        allowed, used = self.allowed, PrivacyTotal.of(entries, self.allowed)
        after = PrivacyTotal.of([*entries, entry], allowed)
        if allowed.budget_epsilon is not None and after.epsilon > allowed.budget_epsilon:
            raise RefusalError(
                f"{self._site} has used epsilon {_shown(used.epsilon)} of its budget of {allowed.budget_epsilon:g} "
                f"(delta {allowed.budget_delta:g}), and this run asks for {_shown(entry.epsilon)} (delta "
                f"{entry.delta:g}), where {_shown_left(used.left or 0.0)} is left; its owner decides"
            )
        return False

    def _write(self, entries: list[LedgerEntry]) -> None:
        self._entries = list(entries)
        if self._folder is None:
            return
        table = {"schema": SCHEMA, "about": _ABOUT, "releases": [dataclasses.asdict(entry) for entry in entries]}
        try:
            write_json(self._folder / LEDGER, table, private=True)
            folder = os.open(self._folder, os.O_RDONLY)
            os.fsync(folder)  # the new name of the file, too, survives a loss of power
            os.close(folder)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> RefusalError:
        return RefusalError(
            f"the ledger of {self._site} under differential privacy cannot be written ({error.strerror}), so nothing "
            "leaves it; its owner sees to its folder"
        )

    def _secret(self) -> bytes:
        """Return the key of digests, which is made when it is first needed."""
        if self._folder is None:
            return self._key
        path = self._folder / KEY
        with self._locked():
            try:
                if not path.exists():
                    write_whole(path, lambda file: file.write(self._key), private=True)
                found = path.read_bytes()
            except OSError as error:
                raise self._unwritable(error) from None
        if len(found) != SEED_BYTES:
            raise RefusalError(f"{KEY} of {self._site} is damaged; its owner restores a copy, or deletes it")
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Work alone, also among processes."""
        with self._lock:
            if self._folder is None:
                yield
                return
            try:
                file = (self._folder / f".{LEDGER}.lock").open("w")
            except OSError as error:
                raise self._unwritable(error) from None
            with file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield


@final
class RunNoise:
    """The noise of one run at a site; without a folder in memory only."""

    def __init__(self, ledger: PrivacyLedger, run: str, folder: Path | None) -> None:
        """``folder`` is that of the run's record."""
        self._ledger = ledger
        self._run = run
        self._folder = folder
        self._seed: bytes | None = None
        self._sums: dict[str, str] = {}
        """Digests of the noisy sums by the name of their release; of replies in each epoch, with its number."""

    def mark(self, shard: Shard, scenario: Scenario) -> str:
        """Return a public name of seed, terms and data: as long as it stays, the same noise is added to the same."""
        bound = f"{self._run} {terms_of(scenario).digest} {self._ledger.digest(shard.x, shard.y)}"
        return Seed(self._secret()).derive(b"codedfl mark of noise 1 " + bound.encode(), _NAME_BYTES).hex()

    def released(
        self, shard: Shard, release: Release | GradientRelease, scenario: Scenario, facts: Mapping[str, Any]
    ) -> tuple[Shard, LedgerEntry]:
        """Return noisy sums or gradients and their entry, as before for the same data, terms, facts and marks."""
        if facts["marks"][facts["index"]] != self.mark(shard, scenario):
            raise RefusalError(f"the noise of run {self._run} is not that which this session began with; begin again")
        data, terms = self._ledger.digest(shard.x, shard.y), terms_of(scenario).digest
        text = json.dumps([self._run, terms, data, dataclasses.asdict(release), facts], sort_keys=True).encode()
        own = Seed(Seed(self._secret()).derive(b"codedfl noise of a site 1 " + hashlib.sha256(text).digest()))
        name = own.derive(b"codedfl name of a release 1", _NAME_BYTES).hex()
        entry = self._entry(name, release, scenario, terms, data)
        self._ledger.admit(entry)
        made = noisy_shard(shard, release, own.derive(b"codedfl noise of a release 1"), partial(self._answer, name))
        sums = self._ledger.digest(made.gram, made.moments)
        if self._sums.setdefault(name, sums) != sums:
            # sums of products were rounded otherwise (threads, libraries): no noise is added to different numbers
            self.forget()
            raise RefusalError(
                f"the sums of run {self._run} are not those of before to the last bit, and the same noise would show "
                "the difference; resume it once more, as another release"
            )
        return made, entry

    def keep(self) -> None:
        """Store the seed, before the release is entered in the ledger."""
        if self._folder is None or self._seed is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(self._folder / SEED, {"seed": self._seed.hex(), "sums": self._sums}, private=True)
        except OSError as error:
            raise RefusalError(
                f"the noise of run {self._run} cannot be kept ({error.strerror}), so nothing leaves the site; its "
                "owner sees to its folder"
            ) from None

    def forget(self) -> None:
        """Delete the seed; should the run go on nevertheless, it is another release."""
        self._seed, self._sums = None, {}
        if self._folder is not None:
            (self._folder / SEED).unlink(missing_ok=True)

    def _entry(self, name: str, release: Promise, scenario: Scenario, terms: str, data: str) -> LedgerEntry:
        return LedgerEntry(
            release=name,
            ledger=self._ledger.allowed.ledger,
            run=self._run,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            scenario=scenario.name,
            unit=release.unit,
            epsilon=release.epsilon,
            delta=release.delta,
            mu=release.mu,
            releases=release.releases,
            data=data,
            terms=terms,
            statement=release.statement,
        )

    def _answer(self, name: str, epoch: int, answer: bytes) -> bytes:
        """Keep what is answered in an epoch before it leaves the site; return what was answered first."""
        if (key := f"{name} {epoch}") not in self._sums:
            self._sums[key] = answer.hex()
            self.keep()
        return bytes.fromhex(self._sums[key])

    def _secret(self) -> bytes:
        """Return the seed of the run: that in memory, that of an interrupted run, or a fresh one."""
        if self._seed is None:
            self._seed, self._sums = self._stored() or (secrets.token_bytes(SEED_BYTES), {})
        return self._seed

    def _stored(self) -> tuple[bytes, dict[str, str]] | None:
        if self._folder is None:
            return None
        try:
            found = json.loads((self._folder / SEED).read_text(encoding="utf-8"))
            seed, sums = bytes.fromhex(found["seed"]), dict(found["sums"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            seed, sums = b"", {}
        if len(seed) != SEED_BYTES:
            _log.warning("the seed of the noise of run %s is damaged: it goes on as another release", self._run)
            return None
        return seed, sums
