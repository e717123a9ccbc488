"""The audit of a scheme: run it with a tap on its messages, attack the views of its parties, and score the attacks.

Attacks see views only (``codedfl.security.views.kinds``); the truth comes from the shards and goes to the scorer alone.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.codes.bounds import least_overlap
from codedfl.engines import VirtualEngine
from codedfl.errors import ScenarioError, UsageError
from codedfl.network import DelayModel
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.schemes.contract import Device
from codedfl.schemes.private import with_release
from codedfl.schemes.secrecy import Secrecy
from codedfl.security import MARGIN
from codedfl.security.attacks import ATTACKS
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.attacks.null import Null
from codedfl.security.attacks.server_view import ServerReplies
from codedfl.security.attempts import SECOND_RUN, Attempt, Outcome, Range
from codedfl.security.contract import Attack, Finding
from codedfl.security.estimates.claimed import claimed_level
from codedfl.security.estimates.estimate import Estimate
from codedfl.security.estimates.known_supports import bits_with_known_positions
from codedfl.security.estimates.parameters import problem_of
from codedfl.security.estimates.suite import estimates
from codedfl.security.inference import from_matrix, from_model, from_parity
from codedfl.security.tap import TappedEngine, tap
from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.verdicts import condition, verdict_table
from codedfl.security.views.kinds import UNSTEADY, MembershipView, ModelView, ParcelView, SummedRepliesView, TwoRunsView
from codedfl.security.views.models import model_exposures
from codedfl.security.views.registry import build_exposures
from codedfl.solvers import GradientDescent
from codedfl.task import Problem, learning_rate
from codedfl.training import State, create_solver, train


@dataclass(frozen=True)
class Statement:
    """What is claimed for a scenario, what is estimated, and what is known."""

    preset: str
    scheme: str
    claimed_bits: int | None
    bits_after_overlap: int | None
    """Upper bound on the claimed level against a device that knows its own support; None where none is claimed."""
    estimates: tuple[Estimate, ...]
    verdict: str
    sentence: str
    secrecy: tuple[Secrecy, ...]
    """All cells of the verdict table."""
    allowed_if: str
    """The rest of the sentence "allow it if"."""
    privacy: Mapping[str, Any] | None = None
    """What noise promises; None without noise."""
    refused: str | None = None
    """Why the scheme cannot keep the epsilon that is asked for; all else is then said of it without noise."""

    def to_table(self) -> dict[str, Any]:
        """Return plain values; an estimate that could not be computed is null."""
        found = {estimate.name: estimate.bits for estimate in self.estimates}
        return vars(self) | {"estimates": found, "secrecy": [cell.to_table() for cell in self.secrecy]}


def statement(scenario: Scenario) -> Statement:
    """Return what a scenario claims and what is known of it, without running anything."""
    scheme, problem, refused = schemes.nominal(scenario), problem_of(scenario), None
    try:
        scheme = with_release(scenario, scheme)
    except ScenarioError as error:
        refused = str(error)
    found = () if problem is None else estimates(problem)
    claimed: int | None = None
    left: int | None = None
    if problem is not None and 0 < problem.w <= problem.n - problem.k:
        claimed = claimed_level(problem.n, problem.k, problem.t, problem.beta, problem.q_bits)
        options: Any = scenario.options()
        overlap = least_overlap(options.t_tot, options.t, options.M)
        left = math.floor(bits_with_known_positions(problem, options.t, overlap)) if options.M > 1 else claimed
    words = scheme.verdict, scheme.verdict_reason, verdict_table(scheme), condition(scheme)
    release = scheme.public.release
    privacy = None if release is None else release.to_table()
    return Statement(scenario.name, scenario.scheme, claimed, left, found, *words, privacy, refused)


def decisive_epochs(scenario: Scenario, problem: Problem) -> int:
    """Return how many epochs decide what replies tell: c dimensions of d each where they are exact, and a margin."""
    d, c = problem.shape
    return max(2, min(scenario.training.epochs, -(-d // c) + MARGIN))


def exposures(
    scenario: Scenario, problem: Problem, epochs: int | None = None, progress: Progress = silent
) -> Sequence[Exposure]:
    """Run a scenario for some epochs with a tap, and return the views of single parties."""
    epochs = decisive_epochs(scenario, problem) if epochs is None else epochs
    if epochs < 2:
        raise UsageError(f"attack at least 2 epochs, not {epochs}: the first one shows replies to the zero model only")
    shortened = scenario.with_settings({"training.epochs": epochs, "training.stop_at_last_target": False})
    scheme = schemes.create(shortened, problem)
    transcript = Transcript()
    devices = tap([scheme.device(index, shard) for index, shard in enumerate(problem.shards)], transcript)

    def report(state: State) -> None:
        progress(f"running {scenario.scheme} with a tap", state.epoch, epochs)

    engine = TappedEngine(_engine(scenario, devices), transcript)
    train(problem, shortened, scheme, engine, State.fresh(problem), report)
    found = list(build_exposures(scheme, transcript, problem.shards))
    if scheme.exact and shortened.training.solver == GradientDescent.name:
        found += model_exposures(transcript, problem, partial(learning_rate, shortened.training))
    return found


def released_model(scenario: Scenario, problem: Problem) -> Float[np.ndarray, "d c"]:
    """Return the model at the end of the training; where the scheme is exact, by plaintext gradients, which it owes.

    Secure aggregation owes the model of the scheme inside.
    """
    scheme: Any = schemes.create(scenario, problem)
    scheme = getattr(scheme, "inner", scheme)
    state = State.fresh(problem)
    if not scheme.exact:
        devices = [scheme.device(index, shard) for index, shard in enumerate(problem.shards)]
        return train(problem, scenario, scheme, _engine(scenario, devices), state).model
    solver = create_solver(problem, scenario, state)
    if scheme.sums:
        return problem.ridge_solution()
    for _ in range(scenario.training.epochs):
        if solver.finished:
            break
        solver.update(problem.gradient(solver.query()))
    return solver.model


def _engine(scenario: Scenario, devices: Sequence[Device]) -> VirtualEngine:
    delays, timing = DelayModel.create(scenario.fleet, scenario.links), scenario.timing
    return VirtualEngine(devices, delays, seed=timing.seed, draw=timing.draw, last_epochs=scenario.fleet.last_epochs)


def attack_scenario(
    scenario: Scenario,
    problem: Problem,
    *,
    names: Sequence[str] = (),
    epochs: int | None = None,
    progress: Progress = silent,
) -> list[Outcome]:
    """Attack a scenario with the named attacks (all if none) on every view that they accept.

    Every device is attacked, and the least hidden reported.
    """
    if scenario.private:
        raise ScenarioError(
            "attacks are scored on runs without noise; leave privacy.epsilon out (python -m benchmarks private_attacks "
            "scores them with noise)"
        )
    if scenario.task.loss != "squared":
        raise ScenarioError(
            f"attacks are made for gradients of the squared loss, so they say nothing of task.loss = "
            f"'{scenario.task.loss}'; leave it out"
        )
    epochs = decisive_epochs(scenario, problem) if epochs is None else epochs
    seen = exposures(scenario, problem, epochs, progress)
    place = Range(scenario.name, problem, epochs)
    wanted = [attack for name, attack in ATTACKS.items() if not names or name in names]
    told = [attack for attack in wanted if attack.view_type is MembershipView]
    pairs = [
        (attack, group)
        for attack in wanted
        for group in _groups(seen)
        if attack.suits(group[0].view) and _sensible(attack, group[0])
    ]
    outcomes: list[Outcome] = []
    for done, (attack, group) in enumerate(pairs):
        progress("attacking", done, len(pairs))
        attempts = place.least_hidden(attack, group[:1] if isinstance(attack, Null) else group)
        outcomes += [attempt.outcome for attempt in attempts]
        if isinstance(attack, LeftKernel | ServerReplies):
            outcomes += _membership(place, attempts[-1], told)
    progress("attacking", len(pairs), len(pairs))
    outcomes += from_parity(place, seen, wanted)
    if any(attack.view_type is TwoRunsView for attack in wanted):
        outcomes += _two_runs(scenario, place, seen, wanted, told, progress)
    if any(attack.view_type is ModelView for attack in wanted):
        outcomes += from_model(place, released_model(scenario, problem), wanted)
    return outcomes


def _sensible(attack: Attack[Any], exposure: Exposure) -> bool:
    """Tell whether the attack says anything new: chance is measured once, and a parcel that is open only read."""
    opened = isinstance(exposure.view, ParcelView) and exposure.party in ("server and devices", "deviating server")
    return not (isinstance(attack, Null) and exposure.assumption) and (isinstance(attack, LeftKernel) or not opened)


def _groups(seen: Sequence[Exposure]) -> list[list[Exposure]]:
    """Return the exposures of one kind to one party together: one for each device, or one of all."""
    found: dict[tuple[Any, ...], list[Exposure]] = {}
    for exposure in seen:
        key = (type(exposure.view), exposure.assumption, exposure.party, exposure.subject is None)
        found.setdefault(key, []).append(exposure)
    return list(found.values())


def _membership(place: Range, attempt: Attempt, attacks: Sequence[Attack[Any]]) -> Iterable[Outcome]:
    """Infer membership with the matrix that an attack found; where one parcel gave it, with the true one, too."""
    yield from from_matrix(place, attempt, attacks)
    parcel = attempt.outcome.attack == LeftKernel.name and not attempt.exposure.assumption
    if parcel and attempt.outcome.score.verdict == "falls":
        true = replace(attempt, finding=Finding(gram=attempt.exposure.gram))
        yield from from_matrix(place, true, attacks, "with the true matrix")


def _two_runs(
    scenario: Scenario,
    place: Range,
    seen: Sequence[Exposure],
    wanted: Sequence[Attack[Any]],
    told: Sequence[Attack[Any]],
    progress: Progress,
) -> Iterable[Outcome]:
    """Run the scenario again without its last device, and attack the difference of the sums that the server gets."""
    problem, last = place.problem, len(place.problem.shards) - 1
    summed = next((each for each in seen if _opened(each)), None)
    if summed is None or last < 2:
        return
    fewer = dataclasses.replace(problem, shards=problem.shards[:-1])
    again = exposures(scenario.with_devices(last), fewer, place.epochs, progress)
    second = next(each for each in again if _opened(each))
    sums = [_found_sum(place, each) for each in (summed, second)]
    truth = problem.shards[last].gram
    exposure = Exposure(TwoRunsView(*sums), last, truth, assumption=SECOND_RUN)
    for attack in wanted:
        if attack.suits(exposure.view) and not isinstance(attack, Null):
            (attempt,) = place.least_hidden(attack, [exposure])
            yield attempt.outcome
            yield from from_matrix(place, attempt, told)


def _opened(exposure: Exposure) -> bool:
    """Tell whether the server opens sums over all devices by itself, over the same ones in every epoch."""
    view = exposure.view
    return isinstance(view, SummedRepliesView) and not exposure.assumption and (view.unit or 0.0) < UNSTEADY


def _found_sum(place: Range, exposure: Exposure) -> Any:
    attack: Attack[Any] = ServerReplies(place.guess(exposure.gram, exposure))
    return attack.run(exposure.view, np.random.default_rng(0)).gram
