"""What a run is carried out on: objective, scheme, engine and timing, simulated or deployed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

from codedfl import schemes
from codedfl.cipher.masks.simulated import SimulatedAgreement
from codedfl.data import Preparation
from codedfl.engines import Engine, VirtualEngine
from codedfl.errors import ScenarioError
from codedfl.network import DelayModel
from codedfl.progress import Progress, silent
from codedfl.runs.scoring import Scoring, held_out_counts, score_held_out
from codedfl.runs.selection import Selection, choose_ridge, fold_scenario
from codedfl.runs.sums import SEED_STEP, SchemeSummer, SumRecord
from codedfl.scenario import Scenario
from codedfl.schemes.contract import Device
from codedfl.schemes.private import noise_key, noisy_shards, shortened_rows
from codedfl.task import Problem, RawData, Shard, make_shard
from codedfl.task.folds import RowChoice
from codedfl.task.objective import Objective
from codedfl.task.preparing import Prepared, prepare
from codedfl.task.ranges import ranged_preparation
from codedfl.task.shard import penalties
from codedfl.training import State, create_solver, train, with_noise_ridge
from codedfl.training.costs import LINKS
from codedfl.training.timeline import timeline
from codedfl.training.timing import Variant, epoch_ends

WITHOUT_NOISE = (
    "losses, gradient norms and scores of this simulation are computed from the data without noise: the promise covers "
    "what devices send and the model, not these files"
)


class RunBackend(ABC):
    """The backend of one run."""

    given: Scenario
    """The scenario as it was given."""
    scenario: Scenario
    """The scenario of the training: with the weight of the ridge term that was chosen."""
    objective: Objective
    scheme: schemes.Scheme[Any]
    saves_every_epoch: bool = False
    """Whether no epoch may be computed again after an interruption."""

    @abstractmethod
    def engine(self, state: State, restored: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return an engine that starts at a state; ``restored`` are the :meth:`checkpoint_arrays` saved with it."""

    def checkpoint_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return arrays of the backend for a checkpoint."""
        return {}

    @abstractmethod
    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Return the end of each epoch in each timing draw."""

    @final
    def score(self, state: State) -> Scoring | None:
        """Score the final model on rows that devices hold out; None if they hold none."""
        return self._scored(self.objective.whole(state.model)) if self.given.data.held_out > 0 else None

    @abstractmethod
    def _scored(self, model: Float[np.ndarray, "d c"]) -> Scoring:
        """Score a model on rows that devices hold out."""

    @abstractmethod
    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return further tables of the run directory, by file name."""

    @abstractmethod
    def facts(self, state: State) -> dict[str, Any]:
        """Return entries of the summary that depend on the backend."""


@final
class SimulationBackend(RunBackend):
    """All devices in one process, in virtual time."""

    def __init__(
        self, scenario: Scenario, data: Problem | RawData, progress: Progress = silent, *, summed: bool = True
    ) -> None:
        """Raw columns are prepared under the scheme of the run, also where a problem has them prepared in clear.

        ``summed`` is whether replies in clear may be summed in one product, with other last bits than one by one.
        """
        self._summed = summed
        self._delays = DelayModel.create(scenario.fleet, scenario.links)
        self._earlier: list[SumRecord] = []
        """What was done before the training: how it is replayed, its record, and the seed of its delays."""
        self._selection: Selection | None = None
        self._noise: bytes | None = None
        """The key that the noise of all devices is derived from."""
        self.given = self.scenario = scenario
        several = len(scenario.ridges) > 1
        if isinstance(data, RawData):
            problem = self._prepared(data, progress)
        elif data.raw is not None and (several or data.prepared is not None):
            problem = self._prepared(data.raw, progress)
        elif several:
            raise ScenarioError("task.ridge must be a number for data that are given as shards")
        elif scenario.data.held_out > 0 and data.raw is None:
            raise ScenarioError("data.held_out must be 0 for data that are given as shards")
        else:
            problem = data
        self.objective = self.problem = problem
        # with ``summed``, no reply is held against that of a deployment; nor is a key
        self.scheme = schemes.create(self.scenario, problem, agreement=SimulatedAgreement() if summed else None)
        self.scenario = with_noise_ridge(self.scenario, self.scheme.public)

    def _prepared(self, raw: RawData, progress: Progress) -> Problem:
        """Sum columns, and choose the weight of the ridge term, under the scheme of the run."""
        rows, scenario, prepared = [raw.device(index) for index in range(len(raw.parts))], self.scenario, None
        summer = SchemeSummer(scenario, rows, raw.features, self._earlier, raw.loaded.columns)
        if scenario.prepared:
            prepared = prepare(scenario, summer, raw.dummies, regression=raw.loaded.kind == "regression")
        elif (ranged := ranged_preparation(scenario, raw.loaded)) is not None:
            prepared = Prepared(ranged, None, None)
        if len(scenario.ridges) > 1:
            fit = partial(self._fit, raw, prepared)
            self._selection = choose_ridge(scenario, summer, prepared, fit, progress)
            self.scenario = scenario.with_settings({"task.ridge": self._selection.ridge})
        return Problem.of_raw(self.scenario, raw, prepared)

    def _fit(
        self, raw: RawData, prepared: Prepared | None, rows: RowChoice, preparation: Preparation, count: float
    ) -> Float[np.ndarray, "l d c"]:
        """Train the models of all weights on some rows."""
        devices = range(len(raw.parts))
        shards = tuple(make_shard(rows.of(raw.device(i), i), raw.features, preparation) for i in devices)
        wanted = fold_scenario(self.scenario, count, sum(shard.samples for shard in shards))
        seed = wanted.timing.seed + SEED_STEP * (1 + len(self._earlier))
        known = None if prepared is None else replace(prepared, preparation=preparation)
        empty, kind = (np.zeros((0, shards[0].x.shape[1])), raw.loaded.y_test[:0]), raw.loaded.kind
        problem = Problem(shards, *empty, kind, penalties(wanted.ridge, preparation), None, None, known)
        scheme, state = schemes.create(wanted, problem), State.fresh(problem)
        sides = [scheme.device(index, shard) for index, shard in enumerate(shards)]
        engine = VirtualEngine(sides, self._delays, seed=seed, draw=wanted.timing.draw)
        state = train(problem, wanted, scheme, engine, state)
        offline = wanted.training.first_epoch_offline
        course = Variant.create(scheme, problem, state.history, first_offline=offline) or state.history
        self._earlier.append((course, state.history, seed))
        return create_solver(problem, wanted, state).models

    @property
    def _began(self) -> float:
        """When the training begins in the run's own draw."""
        return float(_costs(self._earlier)["seconds"])

    @cached_property
    def _earlier_seconds(self) -> Float[np.ndarray, "draws"]:
        """How long everything before the training takes in each timing draw."""
        draws = self.scenario.timing.draws
        total = np.zeros(draws)
        for course, history, seed in self._earlier:
            (ends,) = epoch_ends([course], self._delays, epochs=len(history), seed=seed, draws=draws)
            total += ends[:, -1]
        return total

    def checkpoint_arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return the key of the noise, so that a resumed run releases nothing else."""
        return {} if self._noise is None else {"noise": np.frombuffer(self._noise, np.uint8)}

    def _devices(self, restored: Mapping[str, Shaped[np.ndarray, "..."]]) -> Sequence[Device]:
        """Return the devices, on noisy sums where they add noise."""
        release = self.scheme.public.release
        if release is None and self._summed:
            return self.scheme.simulated(self.problem, self.scenario.training.epochs)
        shards: Sequence[Shard] = self.problem.shards
        if release is not None:
            self._noise = restored["noise"].tobytes() if "noise" in restored else noise_key(self.scenario.privacy)
            shards = noisy_shards(shards, release, self._noise)
        return [self.scheme.device(index, shard) for index, shard in enumerate(shards)]

    def engine(self, state: State, restored: Mapping[str, Shaped[np.ndarray, "..."]]) -> Engine:
        """Return the virtual engine in the scenario's own timing draw; it has no state besides time and noise."""
        timing = self.scenario.timing
        return VirtualEngine(
            self._devices(restored),
            self._delays,
            seed=timing.seed,
            draw=timing.draw,
            now=state.now or self._began,
            last_epochs=self.scenario.fleet.last_epochs,
        )

    def timings(self, state: State, progress: Progress) -> Float[np.ndarray, "draws epochs"]:
        """Return the times in many draws, or in the run's own one if the model follows the timing."""
        scheme, timing = self.scheme, self.scenario.timing
        if scheme.follows_timing:
            return np.array([state.history.columns["time"]])
        report = partial(progress, f"timing {self.scenario.scheme}")
        offline = self.scenario.training.first_epoch_offline
        course = Variant.create(scheme, self.problem, state.history, first_offline=offline) or state.history
        (seconds,) = epoch_ends(
            [course], self._delays, epochs=state.epoch, seed=timing.seed, draws=timing.draws, progress=report
        )
        return np.asarray(seconds + self._earlier_seconds[:, None])

    def _scored(self, model: Float[np.ndarray, "d c"]) -> Scoring:
        """Sum counts under the scheme of the run."""
        raw, prepared = self.problem.raw, self.problem.prepared
        assert raw is not None  # noqa: S101 - checked when the backend was made
        rows, records = [raw.held_out(index) for index in range(len(raw.held))], [*self._earlier]
        summer = SchemeSummer(self.scenario, rows, raw.features, records)
        preparation = None if prepared is None else prepared.preparation
        return score_held_out(
            lambda: held_out_counts(summer, self.problem.kind, model, preparation),
            lambda: _costs(records[len(self._earlier) :]),
        )

    def tables(self, state: State) -> dict[str, dict[str, Any]]:
        """Return the timeline of the run's own draw."""
        scheme, timing = self.scheme, self.scenario.timing
        parallel = scheme.sharing is not None and scheme.sharing.parallel
        steps = timeline(
            state.history, self._delays, seed=timing.seed, draw=timing.draw, parallel=parallel, start=self._began
        )
        return {"timeline.parquet": steps}

    def facts(self, state: State) -> dict[str, Any]:
        """Return the time of the run's own draw, and what the sums of columns cost."""
        facts: dict[str, Any] = {"virtual_seconds": state.history.columns["time"][-1]}
        if (release := self.scheme.public.release) is not None:
            facts |= {
                "without_noise": WITHOUT_NOISE,
                "shortened_rows": shortened_rows(self.problem.shards, release),
            }
        if self._earlier:
            facts["preparation"] = _costs(self._earlier)
        if self._selection is not None:
            facts["selection"] = self._selection.to_table()
        if self.problem.raw is not None and self.problem.raw.owners:
            facts["owners"] = list(self.problem.raw.owners)
        return facts


def _costs(records: Sequence[SumRecord]) -> dict[str, Any]:
    """Return what was done outside the training took in the run's own draw."""
    histories = [history for _, history, _ in records]
    bits = {link: sum(int(sum(each.columns[f"{link}_bits"])) for each in histories) for link in LINKS}
    seconds = float(sum(history.columns["time"][-1] for history in histories))
    return {"epochs": sum(map(len, histories)), "seconds": seconds, "bits_sent": bits}
