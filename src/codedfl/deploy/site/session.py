"""A site's session with a server: its data, device, parcels and queue of requests."""

import hashlib
import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from codedfl import schemes
from codedfl.data import Column, FeatureMap, Preparation
from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.envelopes import (
    NONCE_BYTES,
    DeviceKey,
    Envelopes,
    Member,
    SessionKey,
    open_grants,
    read_members,
    run_name,
    told_digest,
)
from codedfl.deploy.protocol.receipts import Receipts
from codedfl.deploy.protocol.sums import ColumnFacts, SumOrder
from codedfl.deploy.protocol.task_facts import TaskFacts
from codedfl.deploy.protocol.wire import Frame, decode
from codedfl.deploy.site.agreement import Agreement, RoundOrder, check_model, identity_of
from codedfl.deploy.site.emulation import Emulation, TransferDelays, TransferEvent
from codedfl.deploy.site.locks import Cancelled, RequestQueue
from codedfl.deploy.site.parcels import CarriedParcels, Inbox
from codedfl.deploy.site.privacy import LedgerEntry, RunNoise, SitePrivacy
from codedfl.deploy.site.reception import Reception
from codedfl.deploy.site.requests import TRAINING, admit_facts
from codedfl.errors import DataError, EngineError, RefusalError, UsageError
from codedfl.runs.sums import sum_shard
from codedfl.scenario import Scenario
from codedfl.schemes import Device, Message, Public
from codedfl.schemes.identity import Identity
from codedfl.schemes.private import release_of
from codedfl.task import Shard, make_shard
from codedfl.task.folds import DeviceRows, RowChoice, held_out_rows
from codedfl.task.preparing import COUNTS, SumRequest, bounds_of, sums_of

_log = logging.getLogger(__name__)

Emulate = Callable[[Scenario, int], Emulation]
"""Returns the emulation of a device of a scenario."""


@final
@dataclass(frozen=True, eq=False)
class LocalData:
    """A site's data for a scenario, and the classes of a classification.

    ``shard`` is what the device trains on. Where a scenario prepares columns, it follows from the raw ``rows``. The
    rows ``held`` out are neither in the shard nor among ``rows``.
    """

    shard: Shard
    kind: str
    classes: tuple[str, ...] = ()
    rows: DeviceRows | None = None
    features: FeatureMap | None = None
    columns: tuple[Column, ...] = ()
    held: DeviceRows | None = None

    def divided(self, scenario: Scenario, device: int) -> "LocalData":
        """Return the data without the rows that this device holds out for a scenario, which are kept apart."""
        if scenario.data.held_out == 0:
            return self
        (rows, features), settings = self.raw, scenario.data
        out = held_out_rows(len(rows.x), settings.held_out, seed=settings.seed, device=device)
        shard = Shard(self.shard.x[~out], self.shard.y[~out])
        return replace(self, shard=shard, rows=rows.where(~out), features=features, held=rows.where(out))

    def _summed(self, request: SumRequest) -> DeviceRows:
        """Return the rows that a request is about."""
        rows, _ = self.raw
        if request.kind != COUNTS:
            return rows
        return self.held or rows.where(np.zeros(len(rows.x), bool))

    def task(self, scenario: Scenario, *, share_names: bool) -> TaskFacts:
        """Return what is published about the task; names of classes only if owner or scenario publish them."""
        return TaskFacts.of(self.kind, self.classes, share=share_names or self.classes == scenario.data.classes)

    def measured(self, order: SumOrder, scenario: Scenario, device: int, site: "Site") -> ColumnFacts:
        """Return what is published before sums of columns."""
        rows, features = self.raw
        undeclared = not scenario.features.categories and any(column.categories for column in self.columns)
        found = {column.name: column.categories for column in self.columns if column.categories}
        names = json.dumps([[column.name, *column.categories] for column in self.columns])
        dummies = [bool(column.categories) for column in self.columns for _ in column.inputs]
        return ColumnFacts(
            samples=len(rows.x),
            dummies=tuple(dummies or [False] * rows.x.shape[1]),
            outputs=rows.y.shape[1],
            columns=hashlib.sha256(names.encode()).hexdigest(),
            task=self.task(scenario, share_names=site.share_names),
            bounds=tuple(bounds_of(order.request, self._summed(order.request), features, device).tolist()),
            categories=found if undeclared and site.shares_categories else None,
            undeclared=undeclared,
        )

    def added(self, order: SumOrder, device: int) -> "LocalData":
        """Return the data whose first gradient are this site's sums."""
        _, features = self.raw
        sums = sums_of(order.request, self._summed(order.request), features, device)
        if order.scales is None or order.scales.shape != sums.shape:
            raise EngineError("the scales of the sums do not fit the columns of this site; check the server")
        return LocalData(sum_shard(sums / order.scales), "regression")

    def prepared(self, table: Mapping[str, Any], choice: RowChoice | None, device: int) -> "LocalData":
        """Return the data, or some rows of them, with columns prepared as the server says."""
        (rows, features), preparation = self.raw, Preparation.from_table(table)
        rows = rows if choice is None else choice.of(rows, device)
        shapes = preparation.shift.shape, preparation.target_shift.shape
        if shapes != ((rows.x.shape[1],), (rows.y.shape[1],)):
            raise EngineError("the preparation of columns does not fit the columns of this site; check the server")
        return replace(self, shard=make_shard(rows, features, preparation))

    @property
    def raw(self) -> tuple[DeviceRows, FeatureMap]:
        """The raw rows and the feature map."""
        if self.rows is None or self.features is None:  # the shard is all there is
            kept = FeatureMap.create("none", inputs=self.shard.x.shape[1], dtype=self.shard.x.dtype)
            return DeviceRows(self.shard.x, self.shard.y), kept
        return self.rows, self.features

    def check(self, site: str) -> None:
        """Refuse missing and infinite numbers."""
        for what, values in (("features", self.shard.x), ("targets", self.shard.y)):
            if not np.isfinite(values).all():
                raise DataError(f"the {what} of {site} hold missing or infinite numbers; remove or replace them")


@final
@dataclass(frozen=True, eq=False)
class Site:
    """A site as its owner configures it.

    ``load`` returns the data for a scenario; the server never names a file. Parcels need a ``key`` and ``pins``, the
    key fingerprints of the other sites. What the owner has agreed to is in ``agreement``; by default nothing is.
    """

    name: str
    load: Callable[[Scenario], LocalData] = field(repr=False)
    key: DeviceKey | None = None
    pins: Mapping[str, str] | None = None
    agreement: Agreement = field(default_factory=Agreement)
    share_categories: bool = False
    """Whether the values of text columns may be told to the server."""
    share_names: bool = False
    """The same for them and the names of classes."""
    folder: Path | None = None
    """Where records are kept; without it they are in memory only."""
    server: Mapping[str, Any] | None = None
    """The server that the site connects to, for records."""
    privacy: SitePrivacy = field(default_factory=SitePrivacy)
    """The owner's budget of differential privacy."""

    @property
    def shares_categories(self) -> bool:
        """Whether the server may collect the values of text columns."""
        return self.share_categories or self.share_names


@final
class Session:
    """One session of a server with a site; it can be prepared once."""

    def __init__(
        self, name: str, site: Site, scenario: Scenario, local_data: LocalData, noise: RunNoise, part: str, told: str
    ) -> None:
        """``told`` is the digest of the request to describe the data."""
        self._noise = noise
        self.name = name
        self.told = told
        """Digest of all that the server told, which sites must have been told alike."""
        self.part = part
        """Which part of the run it is for."""
        self.scenario = scenario
        self.local_data = local_data
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        """Fresh randomness of this site in this session; public."""
        self.mark = noise.mark(local_data.shard, scenario) if scenario.private else ""
        """What the other sites learn of the seed of its noise."""
        self._key: SessionKey | None = None
        self.own: Member | None = None
        if site.key is not None:
            self._key = SessionKey()
            self.own = Member.of(site.key, self._key, name, site.name)
        self.queue = RequestQueue()
        self.inbox = Inbox()
        self.reception = Reception()
        self.slow: Emulation | None = None
        self.uploads = self.one_sum = False
        self._site = site
        self._lock = threading.Lock()
        self._begun = False
        self._device: Device | None = None
        self._envelopes: Envelopes | None = None
        self._run = ""
        self._sites: list[str] = []
        self.release: LedgerEntry | None = None
        """What the session releases with noise."""
        self._granted = 0
        """The last stage with grants; later ones have larger numbers."""
        self.carried = CarriedParcels()
        """The parcels of the last stages that overlapped."""
        self.receipts = Receipts(name, site.name, site.key)

    @property
    def device(self) -> Device:
        """The device of the scheme."""
        if self._device is None:
            raise EngineError("this site is not prepared for the session; prepare it first")
        return self._device

    @property
    def envelopes(self) -> Envelopes:
        """The encryption of parcels."""
        if self.own is not None and self._key is None:
            raise Cancelled
        if self._envelopes is None:
            raise EngineError("this site has no key and can exchange no parcels; name one in its site.toml")
        return self._envelopes

    def announce(
        self, description: Mapping[str, Any], announced: Message, emulate: Emulate | None
    ) -> Callable[[], None]:
        """Read the server's description of the run and what it announces; return a function that creates the device.

        Only once per session: a second time would restart the sequence numbers of parcels.
        """
        with self._lock:
            if self._begun:
                raise EngineError("this site has already been prepared for this session; start another one")
            self._begun = True
        index, public = fields.count(description, "index"), self._public(description, announced)
        scheme = schemes.build(self.scenario, public)
        if scheme.unfit_for_sites is not None:
            raise UsageError(scheme.unfit_for_sites)
        self._sites = fields.names(description, "sites")
        site, self._run = self._site, run_name(fields.text(description, "run"), announced)
        if announced:
            _log.info("%s takes part in run %s under the announced %s", site.name, self._run, ", ".join(announced))
        self.told += told_digest({**description, "run": self._run}, {})
        identity: Identity | None = None
        if self.own is not None and self._key is not None:
            members, named = read_members(description), f"{self._run} {self.told}"
            identity = identity_of(site.name, site.key, site.pins, self._sites, members, self.told.encode())
            self._envelopes = Envelopes(site.name, self._key, self.own, members, self.name, named, site.pins)
            self.receipts.members = members
        self.slow = None if emulate is None else emulate(self.scenario, index)
        self.uploads = scheme.uploads
        self.one_sum = scheme.opens_sums and scheme.sums
        returns = public.devices if scheme.repeats_epochs else 0
        self.rounds = RoundOrder(site.name, self.scenario.training.epochs, returns)
        self._model = (public.features, public.outputs), public.dtype
        self.inbox.expect(scheme.parcels(index), public, scheme.parcels_at_once)

        def make_device() -> None:
            shard = self.local_data.shard
            if public.release is not None:
                facts = {"index": index, "sites": self._sites, "samples": public.samples, "part": self.part}
                facts["marks"] = fields.names(description, "marks")
                shard, self.release = self._noise.released(shard, public.release, self.scenario, facts)
            device = scheme.device(index, shard)
            if identity is not None:
                device.identify(identity)
            self._device = device

        return make_device

    def number_of(self, site: str) -> int:
        """Return the number of a site's device in this run."""
        if site not in self._sites:
            raise EngineError(f"{fields.one_line(site)} is no site of this run; check the server")
        return self._sites.index(site)

    def admit(self, epoch: int, question: int, request: Message) -> None:
        """Refuse a round out of order, and a model that does not fit the agreed data."""
        self.rounds.admit(epoch, question)
        if "model" in request:
            check_model(request["model"], *self._model)

    def admit_sum(self, members: Sequence[int]) -> None:
        """Refuse to open sums of columns or folds over some devices: the difference to those over all shows others'."""
        if self.part != TRAINING and len(set(members)) < len(self._sites):
            everyone = f"sums of columns and folds over all {len(self._sites)} devices only"
            raise RefusalError(
                f"{self._site.name} opens {everyone}, not over {len(set(members))}; begin again with all"
            )

    def admit_parties(self, sites: Iterable[str | None]) -> None:
        """Refuse to exchange parcels with this site itself, and with sites that are not in the cohort."""
        for site in sites:
            if site is not None and (site == self._site.name or site not in self._site.agreement.cohort):
                raise RefusalError(
                    f"{self._site.name} exchanges no parcels with {fields.one_line(site)}; check the server"
                )

    def grants(self, frame: Frame) -> Message:
        """Return the grants of a request, which only a site without a key takes as they are."""
        if self.own is None:
            return frame.arrays
        if self._key is None:
            raise Cancelled
        if set(frame.arrays) != {"sealed"}:
            raise EngineError(f"grants for {self._site.name} are not encrypted under its key; check the server")
        request = {name: value for name, value in frame.fields.items() if name not in ("session", "number")}
        closed, stage = frame.arrays["sealed"].tobytes(), fields.count(frame.fields, "stage")
        grants = decode(open_grants(self._site.name, self._key, self.own, self._run, request, closed)).arrays
        with self._lock:
            if stage <= self._granted:
                raise EngineError(f"the grants of stage {stage} are a repetition; refused")
            self._granted = stage
        return grants

    def _public(self, description: Mapping[str, Any], announced: Message) -> Public:
        """Read the public facts of the run and check those of this site."""
        own, index = self.local_data.shard, fields.count(description, "index")
        sites, samples = fields.names(description, "sites"), fields.counts(description, "samples")
        dtype = fields.text(description, "dtype")
        shape = fields.count(description, "features"), fields.count(description, "outputs")
        alike = len(sites) == len(samples) == len(set(sites)) == self.scenario.fleet.size
        confused = f"the server takes {self._site.name} for another site"
        if not alike or index >= len(sites) or sites[index] != self._site.name:
            raise RefusalError(f"{confused}; check the list of sites")
        self._site.agreement.admit_cohort(self._site.name, sites)
        told = ("feature_claims", "target_claims") if "feature_claims" in description else ()
        claims = [fields.reals(description, name) for name in told]
        if not {len(bounds) for bounds in claims} <= {len(sites)}:
            raise RefusalError(f"{self._site.name} is told bounds that are not those of all sites; check the server")
        if (samples[index], shape, dtype) != (own.samples, (own.x.shape[1], own.y.shape[1]), own.x.dtype.name):
            raise RefusalError(f"{confused}: its data have other sizes; check the list")
        public = Public(
            tuple(samples),
            *shape,
            np.dtype(dtype),
            largest_feature=fields.real(description, "largest_feature"),
            largest_target=fields.real(description, "largest_target"),
            accuracy=fields.real(description, "accuracy"),
            feature_energy=fields.real_or_none(description, "feature_energy"),
            target_energy=fields.real_or_none(description, "target_energy"),
            claims=tuple(zip(*claims, strict=True)),
            bound_share=self.scenario.bound_share,
            names=tuple(sites),
            delays=schemes.known_delays(self.scenario),
            first_offline=self.scenario.training.first_epoch_offline,
            nonces=self._nonces(description, index),
            signed=self.own is not None,
            announced=announced,
            release=release_of(self.scenario, samples, *shape),
            loss=self.scenario.task.loss,
        )
        if public.release is not None:
            if self.own is None or self._site.pins is None:
                raise RefusalError(
                    f"{self._site.name} adds noise beside devices that it knows only, as a server that invents them "
                    "would have its data under its own share; give it a key and pin the keys of the others"
                )
            admit_facts(self._site.name, self.scenario, own, public)
            if len(marks := fields.names(description, "marks")) != len(sites) or marks[index] != self.mark:
                raise RefusalError(f"{self._site.name} is told another mark of its noise than its own; start again")
        return public

    def _nonces(self, description: Mapping[str, Any], index: int) -> tuple[bytes, ...]:
        """Read the nonces of all sites; this site's is the own one, whatever the server says."""
        try:
            told = [bytes.fromhex(each) for each in fields.names(description, "nonces")]
        except ValueError:
            told = []
        if {len(each) for each in told} != {NONCE_BYTES} or len(told) != self.scenario.fleet.size:
            raise EngineError("the announced nonces of the sites cannot be read; check that versions agree")
        return (*told[:index], self.nonce, *told[index + 1 :])

    def transfer_delays(self, event: TransferEvent | None) -> TransferDelays | None:
        """Return the emulated delays of a transfer, if any."""
        return None if self.slow is None or event is None else self.slow.transfers(event)

    def close(self) -> None:
        """Cancel all work, and forget the keys: nobody can open this session's parcels any more."""
        self.queue.close()
        self.reception.close()
        self._key, self._envelopes = None, None
