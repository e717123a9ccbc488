"""Runs on real sites: the scheme, training loop and run directory of simulations, with real seconds.

``deploy`` resumes from a checkpoint: it prepares the sites again and repeats the transfers made so far, so the model
is the same as without the interruption. The server's keys are never stored: a resumed run draws others, and sites
encode under them; with ``code-based`` the model then differs by rounding.
"""

import hashlib
import logging
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import schemes
from codedfl.deploy.protocol.carrier import Carrier
from codedfl.deploy.protocol.keeping import SessionSecret
from codedfl.deploy.server.board import Board, BoardObserver, Show
from codedfl.deploy.server.channel import Channel, Clock
from codedfl.deploy.server.membership import UNPINNED, read_pins
from codedfl.deploy.server.records import KnownRun, collect_records, known_run, write_run
from codedfl.deploy.server.remote import RECORDS, RemoteEngine
from codedfl.deploy.server.sessions import Returns, SessionTerms, SiteSession
from codedfl.deploy.server.sums import RemoteSummer, load_test_set, ranged
from codedfl.engines.contract import Engine
from codedfl.errors import LostDevicesError, RunDirectoryError, UsageError
from codedfl.network import OverlappingStage, sending_order
from codedfl.progress import Progress, silent
from codedfl.runs import Run, default_directory, execute
from codedfl.runs.backend import RunBackend
from codedfl.runs.directory import CHECKPOINT
from codedfl.runs.scoring import Scoring, held_out_counts, score_held_out
from codedfl.runs.selection import choose_ridge
from codedfl.scenario import Scenario
from codedfl.schemes.contract import Stage
from codedfl.storage import write_json
from codedfl.task import Problem
from codedfl.task.description import Description, likely_labels
from codedfl.task.metrics import Counts
from codedfl.task.objective import PublicObjective
from codedfl.task.ranges import declared_columns
from codedfl.task.shard import penalties
from codedfl.training import State, with_noise_ridge
from codedfl.training.checking import lie_words

STATUS = "status.json"
"""In the server's folder: the state of every device (``codedfl.deploy.server.board``)."""

BY_NUMBER = "classes are numbered from 0 in the order of data.classes of the sites, which keep their names"

_MOST_REFUSALS = 100

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class DeploymentOptions:
    """Options of a deployment.

    ``pins``: expected key fingerprints of the sites, None without a check. ``revoked``: names and key fingerprints of
    sites that are refused. ``ready_seconds``: how long to wait for
    sites to connect. ``patience`` and ``longest``: timeouts of the channel. ``time_scale``: that of sites which emulate
    slow devices. ``test``: evaluate on the scenario's test set. ``seeded_keys``: keys of the scenario's seed instead of
    fresh ones, so that models equal those of virtual time to the last bit; for studies and tests, never for data.
    ``return_seconds``: how long a training that cannot go on waits for lost sites to come back.
    """

    pins: Mapping[str, str] | None = None
    revoked: tuple[str, ...] = ()
    ready_seconds: float = 60.0
    patience: float = 30.0
    longest: float = 3600.0
    time_scale: float = 1.0
    test: bool = True
    seeded_keys: bool = False
    return_seconds: float = 0.0
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        times = (self.ready_seconds, self.patience, self.longest, self.time_scale)
        if not all(0 < value < math.inf for value in times):
            raise UsageError(f"ready_seconds, patience, longest and time_scale are {times}; give numbers above 0")
        if not 0 <= self.return_seconds < math.inf:
            raise UsageError(f"return_seconds = {self.return_seconds:g} must be a number from 0 on")
        if self.patience > self.longest:
            raise UsageError(f"patience = {self.patience:g} must be at most longest = {self.longest:g}")


def deploy(
    scenario: Scenario,
    carrier: Carrier,
    sites: Sequence[str],
    path: Path,
    *,
    options: DeploymentOptions | None = None,
    check: Problem | None = None,
    progress: Progress = silent,
    show: Show = lambda _: None,
) -> Run:
    """Run a scenario on sites (in the order of the devices), resume it, or load it if it is finished.

    ``check`` holds all data, so that loss and gradient errors are recorded; for tests only. ``show`` receives the state
    of every device from time to time.
    """
    if scenario.training.start is not None:
        raise UsageError(
            f"training.start = '{scenario.training.start}' is for virtual time alone, because sites do not have that "
            "model; leave it out"
        )
    if len(sites) != scenario.fleet.size or len(set(sites)) != len(sites):
        raise UsageError(f"{len(set(sites))} sites were given for the {scenario.fleet.size} devices; name one for each")
    terms = options or DeploymentOptions()
    if barred := [site for site in sites if site in terms.revoked]:
        raise UsageError(f"{', '.join(barred)}: revoked by the server's site.toml; leave out what is revoked")
    channel = Channel(carrier, sites, patience=terms.patience, longest=terms.longest, clock=terms.clock)
    board = Board(sites, show)
    board.show(now=True)

    def report(stage: str, done: int, total: int) -> None:
        board.progress(stage, done, total)
        progress(stage, done, total)

    returns = Returns(channel, carrier, board, terms.return_seconds)

    def backend() -> DeploymentBackend:
        known = known_run(path)
        # devices that open sums know the keys of all that are in the session
        resumed = known is not None and (path / CHECKPOINT).exists() and not schemes.nominal(scenario).opens_sums
        returns.find_sites(terms.ready_seconds, min(terms.ready_seconds, terms.patience) if resumed else None)
        known = known or KnownRun(f"{scenario.name[:40]}-{secrets.token_hex(8)}")
        channel.run = known.run
        return DeploymentBackend(scenario, channel, board, terms, check, report, path, known, returns)

    while True:
        try:
            run = execute(scenario, path, backend=backend, progress=report, observer=BoardObserver(board))
            break
        except LostDevicesError as error:
            if returns.awaited(error):
                continue
            reasons = ", ".join(f"{sites[device]} ({reason})" for device, reason in sorted(channel.lost.items()))
            raise LostDevicesError(f"{error}; lost: {reasons}" if reasons else str(error)) from None
    SessionSecret(path).remove()
    channel.end_session()
    board.finish()
    if (found := run.summary["deployment"]["sites"]) != list(sites):
        raise RunDirectoryError(f"'{path}' was trained on other sites ({', '.join(found)}); choose another --out")
    return run


@final
class DeploymentBackend(RunBackend):
    """Sites that are described and prepared; the server has no training data."""

    def __init__(
        self,
        scenario: Scenario,
        channel: Channel,
        board: Board,
        options: DeploymentOptions,
        check: Problem | None,
        progress: Progress,
        folder: Path,
        known: KnownRun,
        returns: Returns,
    ) -> None:
        if scenario.ranged and scenario.data.elsewhere:  # refuse what no site can use before they are asked
            declared_columns(scenario, regression=scenario.data.kind == "regression")
        self._folder = folder
        self._returns = returns
        self.given = self.scenario = scenario
        self._channel = channel
        self._board = board
        self._options = options
        self._engine: RemoteEngine
        self._progress = progress
        self._summer: RemoteSummer | None = None
        progress("describing sites", 0, 0)
        began, prepared, loading, terms = channel.clock(), None, scenario, self._terms
        self._selection, self._prepared_seconds = None, 0.0
        self._class_names: str | None = None
        if known.loading is not None and len(scenario.ridges) == 1:  # a resumed run need not sum again
            prepared, loading = known.prepared, Scenario.from_toml(known.loading)
        elif scenario.prepared or len(scenario.ridges) > 1:
            self._summer = summer = RemoteSummer(scenario, channel, board, terms, progress)
            prepared, loading = summer.prepared(), summer.scenario
            if len(scenario.ridges) > 1:
                self._selection = choose_ridge(loading, summer, prepared, partial(summer.fit, prepared), progress)
                # sites are sent the scenario that they have agreed to; the weight is the server's own
                self.scenario = scenario.with_settings({"task.ridge": self._selection.ridge})
            self._prepared_seconds = (channel.clock() - began) / options.time_scale
        scenario = self.scenario
        earlier = known.described
        session = SiteSession(scenario, channel, board, terms, load=loading, prepared=prepared, earlier=earlier)
        self._known = replace(known, described=session.described, loading=loading.to_toml(), prepared=prepared)
        self._session = session
        self._held = np.array(
            [[f.samples, f.features, f.outputs, f.largest_feature, f.largest_target] for f in session.facts], np.float64
        )
        public, self.scheme = session.public, session.scheme
        self.scenario = scenario = with_noise_ridge(scenario, public)
        self.saves_every_epoch = self.scheme.opens_sums  # sites open a sum again with the same devices only
        task = session.descriptions[0].task
        preparation = None if prepared is None else prepared.preparation
        if scenario.ranged:
            preparation = ranged(scenario, public, task, progress)
        self._preparation = preparation
        wanted = options.test and check is None
        test, described = load_test_set(loading, public, task, preparation, progress) if wanted else (None, None)
        inputs = len(preparation.shift) if preparation is not None else public.features
        if described is None and (preparation is not None or scenario.features.kind == "none"):
            names = task.known_names(scenario.data.classes or ())
            self._class_names = None if not task.classes else "public" if names else BY_NUMBER
            labels = tuple(range(task.classes)) if names is None else likely_labels(names)
            named = declared_columns(scenario, regression=not task.classes) if scenario.ranged else ((), ())
            described = Description.create(inputs, public.outputs, *named, labels, preparation=preparation)
        self.objective = PublicObjective(
            samples=sum(public.samples),
            shape=(public.features, public.outputs),
            dtype=public.dtype,
            ridge=penalties(scenario.ridge, preparation),
            penalty=penalties(1.0, preparation),
            kind=task.kind,
            test=test,
            described=described,
        )
        if check is not None:
            # other reference data would train another model
            alike = ("samples", "shape", "kind", *(["ridge"] if preparation is None else []))
            if any(getattr(check, name) != getattr(self.objective, name) for name in alike):
                raise UsageError("the reference data belong to another task than the data of the sites")
            raw = check.raw
            self.objective = check if prepared is None or raw is None else Problem.of_raw(scenario, raw, prepared)
        progress("preparing sites", 0, 0)
        session.prepare()

    @property
    def _terms(self) -> SessionTerms:
        options = self._options
        fresh = not options.seeded_keys
        return SessionTerms(options.pins, fresh_keys=fresh, time_scale=options.time_scale, revoked=options.revoked)

    def engine(self, state: State, restored: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return the remote engine; records of an unfinished epoch are dropped."""
        write_run(self._folder, self._known)
        records = {}
        if restored:
            own = self._identity()
            if not {*RECORDS, *own} <= restored.keys():
                raise RunDirectoryError("the checkpoint of the run is damaged; delete it to restart the run")
            if not all(np.array_equal(restored[name], value) for name, value in own.items()):
                raise RunDirectoryError(
                    "the run was started on other sites, with other data or another time_scale; choose another --out"
                )
            records = {name: restored[name][restored["epoch"] <= state.epoch] for name in RECORDS}
        self._engine = RemoteEngine(
            self._channel,
            now=state.now or self._prepared_seconds,
            time_scale=self._options.time_scale,
            # a real network shares its links as it does; one where only some sites emulate links, too
            one_at_a_time=self._session.emulated_links and self.scenario.links.d2d_channel == "shared",
            records=records,
            board=self._board,
            seal=self._session.seal,
            has_accepted=self._session.has_accepted,
            secret=SessionSecret(self._folder),
            returned=self._returns.seen,
            order=self._sending_order,
        )
        return self._engine

    def _sending_order(self, stages: Sequence[Stage], first: int) -> Sequence[int] | None:
        """Return the order in which virtual time sends the parcels of overlapping stages; None on real links."""
        if not self._session.emulated_links or any(stage.counted is None for stage in stages):
            return None
        timing, delays = self.scenario.timing, schemes.known_delays(self.scenario)
        costs = [
            OverlappingStage(number, stage.counted(), stage.after or ())
            for number, stage in enumerate(stages, start=first)
            if stage.counted is not None
        ]
        return sending_order(delays, costs, seed=timing.seed, draw=timing.draw)

    def checkpoint_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return the records of all requests so far, and the identity of the run."""
        return {**self._engine.records, **self._identity()}

    def _identity(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return what must not change between interruption and resumption."""
        scale = np.array(self._options.time_scale, np.float64)
        return {"sites": np.array(self._channel.sites), "held": self._held, "time_scale": scale}

    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Return the one real draw."""
        return np.array([state.history.columns["time"]])

    def _scored(self, model: Float[np.ndarray, "d c"]) -> Scoring:
        """Sum counts over all sites under the scheme of the run."""
        channel, options = self._channel, self._options
        began = channel.clock()

        def count() -> Counts:
            if channel.lost:
                raise LostDevicesError(f"{', '.join(channel.sites[device] for device in sorted(channel.lost))} lost")
            terms, report = self._terms, self._progress
            summer = self._summer or RemoteSummer(self.scenario, channel, self._board, terms, report)
            return held_out_counts(summer, self.objective.kind, model, self._preparation)

        return score_held_out(count, lambda: {"seconds": (channel.clock() - began) / options.time_scale})

    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return one row per request and device."""
        return {"devices.parquet": dict(self._engine.records)}

    def facts(self, state: State) -> dict[str, Any]:
        """Return the real time, the sites, the lost ones and refused messages; the run is over, so sites are told."""
        channel = self._channel
        lost = {channel.sites[device]: reason for device, reason in sorted(channel.lost.items())}
        collected = collect_records(channel, self._folder, self._session.keys)
        chosen = {} if self._selection is None else {"selection": self._selection.to_table()}
        return chosen | {
            "virtual_seconds": None,
            "real_seconds": state.history.columns["time"][-1],
            "deployment": {
                "sites": list(channel.sites),
                "lost": lost,
                "liars": {channel.sites[lie.device]: lie_words(lie) for lie in state.lies},
                "refused": len(channel.refused),
                "refusals": channel.refused[:_MOST_REFUSALS],
                "run": channel.run,
                "records": collected,
                "class_names": self._class_names,
                "announced_bytes": self._session.announced_bytes,
                "time_scale": self._options.time_scale,
                "last_seconds": self._last("seconds"),
                "last_working_seconds": self._last("working_seconds"),
            },
        }

    def _last(self, column: str) -> dict[str, float | None]:
        """Return the latest value of a column per site."""
        records = self._engine.records
        pairs = zip(records["device"].tolist(), records[column].tolist(), strict=True)
        known = {self._channel.sites[device]: value for device, value in pairs if not math.isnan(value)}
        return {site: known.get(site) for site in self._channel.sites}


def serve(carrier: Carrier, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Deploy from plain data, for adapters that start the server from a configuration.

    Arguments: ``scenario`` (TOML), ``sites``, optional ``run`` (a folder) and options of :class:`DeploymentOptions`;
    ``site`` is the server's own configuration with ``folder`` (of ``run`` and the status file), ``fingerprints`` of the
    sites' keys, and ``revoked`` sites. Return the path of the run and its summary.
    """
    scenario, site = Scenario.from_toml(arguments["scenario"]), arguments.get("site", {})
    known = ("patience", "longest", "ready_seconds", "return_seconds", "time_scale", "test")
    chosen = {name: arguments[name] for name in known if name in arguments}
    pins, revoked = read_pins(site)
    if pins is None:
        _log.warning("%s", UNPINNED)
    options = DeploymentOptions(pins=pins, revoked=revoked, **chosen)
    sites = tuple(arguments["sites"])
    usual = default_directory(scenario)
    usual = usual.with_name(f"{usual.name}-{hashlib.sha256(' '.join(sites).encode()).hexdigest()[:8]}")
    path = Path(site.get("folder", ".")) / arguments.get("run", str(usual))

    def show(table: dict[str, Any]) -> None:
        status = Path(site.get("folder", ".")) / STATUS
        about = {"scenario_id": scenario.id(), "scenario": scenario.name, "scheme": scenario.scheme}
        write_json(status, about | table, durable=False)

    run = deploy(scenario, carrier, sites, path, options=options, show=show)
    return {"run": str(run.path), "summary": run.summary}
