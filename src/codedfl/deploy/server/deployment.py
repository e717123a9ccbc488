"""A run on real sites: the same scheme, loop and run directory as in virtual time; the seconds are real.

``deploy`` waits for the sites, asks what they hold, prepares them, trains and writes the run directory. Given the same
directory again, it goes on from the checkpoint: sites are prepared anew, what devices had sent each other is sent
again, and the training ends as if it had not stopped.
"""

import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import schemes
from codedfl.data import load_rows
from codedfl.deploy.protocol.carrier import Carrier
from codedfl.deploy.protocol.envelopes import Member, fingerprint
from codedfl.deploy.protocol.fields import count, names, real, text, words
from codedfl.deploy.server.board import Board, Show
from codedfl.deploy.server.correspondence import Clock, Correspondence, Heard, Question
from codedfl.deploy.server.remote import RECORDS, RemoteEngine
from codedfl.engines.contract import Engine
from codedfl.errors import DataError, EngineError, LostDevicesError, RunDirectoryError, UsageError
from codedfl.progress import Progress, silent
from codedfl.runs import Run, default_directory, execute
from codedfl.runs.backend import Parties
from codedfl.scenario import Scenario
from codedfl.schemes import Facts, Public
from codedfl.storage import write_json
from codedfl.task import Problem, feature_map, load_data
from codedfl.task.objective import Objective, PublicObjective, TestSet
from codedfl.training import State

__all__ = ["STATUS", "Conditions", "Deployment", "deploy", "serve"]

STATUS = "status.json"
"""In the server's own folder: how the run stands, device by device (``codedfl.deploy.server.board``)."""

_MOST_REFUSALS = 100
_PRECISIONS = ("float32", "float64")


@final
@dataclass(frozen=True)
class Conditions:
    """How a deployment is run.

    ``pins``: the fingerprints of the sites' keys, if the server is to check them. ``ready_seconds`` is how long sites
    may take to appear; ``patience`` and ``longest`` are those of the correspondence. ``time_scale`` is that of sites
    which emulate slow devices. ``test`` False: the server has no test set. ``clock``: another than that of the machine.
    """

    pins: Mapping[str, str] | None = None
    ready_seconds: float = 60.0
    patience: float = 30.0
    longest: float = 3600.0
    time_scale: float = 1.0
    test: bool = True
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        times = (self.ready_seconds, self.patience, self.longest, self.time_scale)
        if not all(0 < value < math.inf for value in times):
            raise UsageError(f"ready_seconds, patience, longest and time_scale are {times}; give numbers above 0")
        if self.patience > self.longest:
            raise UsageError(f"patience = {self.patience:g} must be at most longest = {self.longest:g}")


def deploy(
    scenario: Scenario,
    carrier: Carrier,
    sites: Sequence[str],
    path: Path,
    *,
    conditions: Conditions | None = None,
    check: Problem | None = None,
    progress: Progress = silent,
    show: Show | None = None,
) -> Run:
    """Run a scenario on sites, in the order of the devices, or go on where it stopped, or load it if it is finished.

    With ``check``, all data, the loss and the error of gradients are known as in a simulation; for trials only.
    ``show`` is given, now and then, how every device stands.
    """
    if len(sites) != scenario.fleet.size or len(set(sites)) != len(sites):
        raise UsageError(
            f"{len(set(sites))} sites were given for the {scenario.fleet.size} devices of the fleet; name one for each"
        )
    terms = conditions or Conditions()
    letters = Correspondence(carrier, sites, patience=terms.patience, longest=terms.longest, clock=terms.clock)
    board = Board(sites) if show is None else Board(sites, show)
    board.show(now=True)

    def report(stage: str, done: int, total: int) -> None:
        board.progress(stage, done, total)
        progress(stage, done, total)

    def parties() -> Deployment:
        carrier.ready(sites, terms.ready_seconds)
        return Deployment(scenario, letters, terms, check, report, board)

    try:
        run = execute(scenario, path, parties=parties, progress=report)
    except LostDevicesError as error:
        reasons = ", ".join(f"{sites[device]} ({reason})" for device, reason in sorted(letters.lost.items()))
        raise LostDevicesError(f"{error}; lost: {reasons}" if reasons else str(error)) from None
    letters.farewell()
    return run


@final
class Deployment(Parties):
    """Sites that have been asked and prepared; a server that has no training data."""

    def __init__(
        self,
        scenario: Scenario,
        letters: Correspondence,
        conditions: Conditions,
        check: Problem | None = None,
        progress: Progress = silent,
        board: Board | None = None,
    ) -> None:
        self.scenario = scenario
        self._letters = letters
        self._board = board or Board(letters.sites)
        self._conditions = conditions
        self._engine: RemoteEngine | None = None
        progress("asking sites what they hold", 0, 0)
        answers = self._everyone(
            {device: Question("describe", {"scenario": scenario.to_toml()}) for device in self._all}
        )
        told = [_Told.read(self._letters.sites[device], answers[device].frame.fields) for device in self._all]
        self._check_keys(told)
        kind, classes = self._agreed(told)
        for device, each in enumerate(told):
            self._board.samples(device, each.facts.samples)
        public = schemes.agree(scenario, [each.facts for each in told])
        self.scheme = schemes.build(scenario, public)
        if self.scheme.unfit_for_sites is not None:
            raise UsageError(self.scheme.unfit_for_sites)
        self._held = np.array([_sizes(each.facts) for each in told], np.float64)
        if check is not None:
            _check_fits(check, scenario, public, kind)
        self.objective = check or _objective(scenario, public, kind, classes, conditions.test, progress)
        progress("preparing sites", 0, 0)
        self._prepare(public, told)

    @property
    def _all(self) -> range:
        return range(len(self._letters.sites))

    def _everyone(self, questions: Mapping[int, Question]) -> dict[int, Heard]:
        answers = self._letters.everyone(questions)
        if len(answers) < len(questions):
            lost = self._letters.lost
            reasons = "; ".join(f"{self._letters.sites[device]}: {lost[device]}" for device in sorted(lost))
            raise EngineError(f"the run cannot begin ({reasons}); mend that and give the same command again")
        return answers

    def _check_keys(self, told: Sequence["_Told"]) -> None:
        pins = self._conditions.pins
        for site, each in zip(self._letters.sites, told, strict=True):
            shown = None if each.member is None else fingerprint(each.member.public)
            if pins is not None and shown != pins.get(site):
                raise EngineError(
                    f"{site} shows the key {shown or 'none'}, and the server has pinned {pins.get(site, 'none')}; find "
                    "out which is right"
                )

    def _agreed(self, told: Sequence["_Told"]) -> tuple[str, tuple[str, ...]]:
        """Return kind and classes of the data, which all sites must share."""
        kinds = [(each.kind, each.classes) for each in told]
        for site, found in zip(self._letters.sites, kinds, strict=True):
            if found != kinds[0]:
                raise DataError(
                    f"{site} and {self._letters.sites[0]} differ in what is to be learned ({_words(*found)}; "
                    f"{_words(*kinds[0])}); give all sites the same kind and the same list data.classes"
                )
        return kinds[0]

    def _prepare(self, public: Public, told: Sequence["_Told"]) -> None:
        sites = self._letters.sites
        members = {site: each.member for site, each in zip(sites, told, strict=True) if each.member is not None}
        common = {
            "run": f"{self.scenario.id()} {secrets.token_hex(8)}",
            "sites": list(sites),
            "samples": list(public.samples),
            "features": public.features,
            "outputs": public.outputs,
            "dtype": public.dtype.name,
            "largest_feature": public.largest_feature,
            "largest_target": public.largest_target,
            "members": {site: [member.public.hex(), member.nonce.hex()] for site, member in members.items()},
        }
        self._everyone({device: Question("prepare", {**common, "index": device}) for device in self._all})

    def engine(self, state: State, kept: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return the remote engine; what was noted of an epoch that did not end is forgotten."""
        if kept:
            self._check_same(kept)
        records = {name: kept[name][kept["epoch"] <= state.epoch] for name in RECORDS} if kept else {}
        self._engine = RemoteEngine(
            self._letters,
            now=state.now,
            time_scale=self._conditions.time_scale,
            records=records,
            board=self._board,
        )
        return self._engine

    def to_keep(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return the records of all questions so far, and who was asked."""
        return {**self._records(), **self._identity()}

    def _identity(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return what must not change while a run is interrupted: sites and their order, sizes and bounds of data."""
        scale = np.array(self._conditions.time_scale, np.float64)
        return {"sites": np.array(self._letters.sites), "held": self._held, "time_scale": scale}

    def _check_same(self, kept: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        own = self._identity()
        if not {*RECORDS, *own} <= kept.keys():
            raise RunDirectoryError("the checkpoint of the run is damaged; delete it to start the run again")
        if not all(np.array_equal(kept[name], value) for name, value in own.items()):
            raise RunDirectoryError(
                "the run was begun on other sites, with other data or another time_scale; give the same ones in the "
                "same order, or begin a new run in another directory"
            )

    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Return the one real draw."""
        return np.array([state.history.columns["time"]])

    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return what every device was asked in every epoch, and how long it took."""
        return {"devices.parquet": dict(self._records())}

    def facts(self, state: State) -> dict[str, Any]:
        """Return the real time, the sites, who was lost and what was refused."""
        letters = self._letters
        return {
            "virtual_seconds": None,
            "real_seconds": state.history.columns["time"][-1],
            "deployment": {
                "sites": list(letters.sites),
                "lost": {letters.sites[device]: reason for device, reason in sorted(letters.lost.items())},
                "refused": len(letters.refused),
                "refusals": letters.refused[:_MOST_REFUSALS],
                "time_scale": self._conditions.time_scale,
                "last_seconds": self._last("seconds"),
                "last_working_seconds": self._last("working_seconds"),
            },
        }

    def _last(self, column: str) -> dict[str, float | None]:
        """Return of each site the newest value in a column of the records."""
        records = self._records()
        found: dict[str, float | None] = dict.fromkeys(self._letters.sites)
        for device, value in zip(records["device"].tolist(), records[column].tolist(), strict=True):
            if not math.isnan(value):
                found[self._letters.sites[device]] = value
        return found

    def _records(self) -> Mapping[str, Shaped[np.ndarray, "..."]]:
        return {} if self._engine is None else self._engine.records


@dataclass(frozen=True)
class _Told:
    """What a site says of itself."""

    facts: Facts
    kind: str
    classes: tuple[str, ...]
    member: Member | None

    @classmethod
    def read(cls, site: str, fields: Mapping[str, Any]) -> "_Told":
        """Read it; refuse what cannot be."""
        own = version("codedfl")
        if fields.get("version") != own:
            other = words(fields.get("version"))
            raise EngineError(f"{site} has version {other} of codedfl and the server {own}; install one everywhere")
        try:
            samples, features, outputs = (count(fields, name) for name in ("samples", "features", "outputs"))
            bounds = [real(fields, name) for name in ("largest_feature", "largest_target")]
            facts = Facts(samples, features, outputs, np.dtype(text(fields, "dtype")), *bounds)
            shown = fields["public"], fields["nonce"]
            member = None if shown == (None, None) else Member(*(bytes.fromhex(each) for each in shown))
            told = cls(facts, text(fields, "kind"), tuple(names(fields, "classes")), member)
            sound = min(samples, features, outputs) >= 1 and facts.dtype.name in _PRECISIONS
            sound = sound and told.kind in ("classification", "regression")
        except (KeyError, TypeError, ValueError, EngineError):
            sound = False
        if not sound:
            raise EngineError(f"{site} does not say properly what it holds; start it anew")
        return told


def _sizes(facts: Facts) -> tuple[float, ...]:
    return facts.samples, facts.features, facts.outputs, facts.largest_feature, facts.largest_target


def _words(kind: object, classes: tuple[str, ...]) -> str:
    return f"{kind}{' of ' if classes else ''}{', '.join(classes[:5])}{' and more' if len(classes) > 5 else ''}"


def _check_fits(check: Problem, scenario: Scenario, public: Public, kind: str) -> None:
    """Refuse data to check by that are of another task: they would train another model without a word."""
    held = (sum(public.samples), (public.features, public.outputs), kind, scenario.task.ridge)
    if (check.samples, check.shape, check.kind, check.ridge) != held:
        raise UsageError("the data to check by are of another task than the sites' own; build them from the scenario")


def _objective(
    scenario: Scenario, public: Public, kind: str, classes: tuple[str, ...], test: bool, progress: Progress
) -> Objective:
    return PublicObjective(
        samples=sum(public.samples),
        shape=(public.features, public.outputs),
        dtype=public.dtype,
        ridge=scenario.task.ridge,
        kind=kind,
        test=_test_set(scenario, public, kind, classes, progress) if test else None,
    )


def _test_set(
    scenario: Scenario, public: Public, kind: str, classes: tuple[str, ...], progress: Progress
) -> TestSet | None:
    """Load the test samples that the scenario names, if it does."""
    if scenario.data.elsewhere:
        if not scenario.data.test_source:
            return None
        wanted = scenario.data
        rows = load_rows(
            Path(wanted.test_source),
            target=wanted.target or None,
            kind=kind,
            classes=classes,
            dtype=scenario.task.precision,
        )
        x, y, found = rows.x, rows.y, (rows.kind, rows.classes)
    else:
        loaded = load_data(scenario, progress)
        x, y, found = loaded.x_test, loaded.y_test, (loaded.kind, loaded.class_names)
    if found != (kind, classes):
        raise DataError(
            f"the server's test set ({_words(*found)}) is none for what sites hold ({_words(kind, classes)})"
        )
    embedded = feature_map(scenario, x.shape[1]).transform(x)
    if embedded.shape[1] != public.features:
        raise DataError(
            f"the server's test set has {embedded.shape[1]} features and the sites have {public.features}; use another"
        )
    return TestSet(embedded, y, kind)


def serve(carrier: Carrier, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Deploy as told by plain data, for adapters that start the server from a configuration.

    ``scenario`` (TOML), ``sites``, and if wanted ``run`` (a folder), ``patience``, ``longest``, ``ready_seconds``,
    ``time_scale`` and ``test``; ``site`` is the server's own configuration: ``folder``, which a relative ``run`` is in,
    and ``fingerprints`` of the sites' keys. How the run stands is written there too. Return where the run is and its
    summary.
    """
    scenario, site = Scenario.from_toml(arguments["scenario"]), arguments.get("site", {})
    known = ("patience", "longest", "ready_seconds", "time_scale", "test")
    chosen = {name: arguments[name] for name in known if name in arguments}
    conditions = Conditions(pins=site.get("fingerprints"), **chosen)
    path = Path(site.get("folder", ".")) / arguments.get("run", str(default_directory(scenario)))
    status = Path(site.get("folder", ".")) / STATUS

    def show(table: dict[str, Any]) -> None:
        write_json(status, {"scenario_id": scenario.id(), "scheme": scenario.scheme, **table}, durable=False)

    run = deploy(scenario, carrier, tuple(arguments["sites"]), path, conditions=conditions, show=show)
    return {"run": str(run.path), "summary": run.summary}
