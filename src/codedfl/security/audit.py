"""The audit of a scheme: run it with a tap on its messages, attack the views of its parties, and score the attacks.

Attacks see views only (``codedfl.security.views.kinds``); the truth comes from the shards and goes to the scorer alone.
"""

import math
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from codedfl import schemes
from codedfl.codes.bounds import least_overlap
from codedfl.engines import VirtualEngine
from codedfl.errors import UsageError
from codedfl.network import DelayModel
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.schemes.secrecy import Secrecy
from codedfl.security import EPOCHS
from codedfl.security.attacks import ATTACKS
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.attacks.null import Null
from codedfl.security.attacks.parity_data import ParityGram
from codedfl.security.attacks.server_view import ServerReplies
from codedfl.security.contract import Attack, Finding
from codedfl.security.estimates.claimed import claimed_level
from codedfl.security.estimates.estimate import Estimate
from codedfl.security.estimates.known_supports import bits_with_known_positions
from codedfl.security.estimates.parameters import problem_of
from codedfl.security.estimates.suite import estimates
from codedfl.security.scoring import Score, Truth, relative_error, score
from codedfl.security.tap import tap
from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.verdicts import verdict_table
from codedfl.security.views.kinds import MembershipView, ParityMembershipView, ParityView, View
from codedfl.security.views.registry import build_exposures
from codedfl.task import Problem, gram
from codedfl.training import State, train


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

    def to_table(self) -> dict[str, Any]:
        """Return plain values; an estimate that could not be computed is null."""
        found = {estimate.name: estimate.bits for estimate in self.estimates}
        return vars(self) | {"estimates": found, "secrecy": [cell.to_table() for cell in self.secrecy]}


def statement(scenario: Scenario) -> Statement:
    """Return what a scenario claims and what is known of it, without running anything."""
    scheme, problem = schemes.nominal(scenario), problem_of(scenario)
    found = () if problem is None else estimates(problem)
    claimed: int | None = None
    left: int | None = None
    if problem is not None and 0 < problem.w <= problem.n - problem.k:
        claimed = claimed_level(problem.n, problem.k, problem.t, problem.beta, problem.q_bits)
        options: Any = scenario.options()
        overlap = least_overlap(options.t_tot, options.t, options.M)
        left = math.floor(bits_with_known_positions(problem, options.t, overlap)) if options.M > 1 else claimed
    words = scheme.verdict, scheme.verdict_reason, verdict_table(scheme), scheme.allowed_if
    return Statement(scenario.name, scenario.scheme, claimed, left, found, *words)


@dataclass(frozen=True)
class Outcome:
    """One attack on one view: its score and its cost."""

    preset: str
    attack: str
    aim: str
    view: str
    holder: str
    assumption: str
    score: Score
    seconds: float
    peak_bytes: int

    def to_table(self) -> dict[str, Any]:
        """Return plain values, the score among them."""
        table = {name: value for name, value in vars(self).items() if name != "score"}
        table |= vars(self.score)
        if table["relative_error"] == float("inf"):
            table["relative_error"] = None
        return table


def exposures(
    scenario: Scenario, problem: Problem, epochs: int = EPOCHS, progress: Progress = silent
) -> Sequence[Exposure]:
    """Run a scenario for some epochs with a tap, and return the views of single parties."""
    if epochs < 2:
        raise UsageError(f"attack at least 2 epochs, not {epochs}: the first one shows replies to the zero model only")
    shortened = scenario.with_settings({"training.epochs": epochs, "training.stop_at_last_target": False})
    scheme = schemes.create(shortened, problem)
    transcript = Transcript()
    devices = tap([scheme.device(index, shard) for index, shard in enumerate(problem.shards)], transcript)
    delays = DelayModel.create(scenario.fleet, scenario.links)
    timing, last_epochs = scenario.timing, scenario.fleet.last_epochs
    engine = VirtualEngine(devices, delays, seed=timing.seed, draw=timing.draw, last_epochs=last_epochs)

    def report(state: State) -> None:
        progress(f"running {scenario.scheme} with a tap", state.epoch, epochs)

    train(problem, shortened, scheme, engine, State.fresh(problem), report)
    return build_exposures(scheme, transcript, problem.shards)


def attack_scenario(
    scenario: Scenario,
    problem: Problem,
    *,
    names: Sequence[str] = (),
    epochs: int = EPOCHS,
    progress: Progress = silent,
) -> list[Outcome]:
    """Attack a scenario with the named attacks (all if none) on every view that they accept."""
    seen = exposures(scenario, problem, epochs, progress)
    wanted = [attack for name, attack in ATTACKS.items() if not names or name in names]
    pairs = [
        (attack, exposure)
        for attack in wanted
        for exposure in seen
        if attack.suits(exposure.view) and not (isinstance(attack, Null) and exposure.assumption)
    ]
    outcomes: list[Outcome] = []
    test = gram(problem.x_test)
    for done, (attack, exposure) in enumerate(pairs):
        progress("attacking", done, len(pairs))
        guess = _public_guess(problem, test, exposure)
        length = exposure.view.G.shape[1] if hasattr(exposure.view, "G") else 0
        guess_error = relative_error(guess, exposure.gram)
        truth = Truth(gram=exposure.gram, support=exposure.support, length=length, guess_error=guess_error)
        tried = type(attack)(guess) if isinstance(attack, ServerReplies | ParityGram) else attack
        outcome, finding = _run_attack(scenario.name, tried, exposure.view, truth, exposure.assumption)
        outcomes.append(outcome)
        if isinstance(attack, LeftKernel) and finding.gram is not None and not exposure.assumption:
            outcomes += _membership(outcome, problem, exposure, finding.gram, names)
    for exposure in seen:
        if isinstance(exposure.view, ParityView):
            outcomes += _parity_membership(scenario.name, problem, exposure, exposure.view, wanted)
    progress("attacking", len(pairs), len(pairs))
    return outcomes


def _public_guess(problem: Problem, test: Float[np.ndarray, "d d"], exposure: Exposure) -> Float[np.ndarray, "rows d"]:
    """Return the public guess: the Gram matrix of the test data, scaled to as many points.

    Shards of one distribution look alike, so an attack must do better than this.
    """
    points = np.trace(exposure.gram) if len(exposure.gram) > 1 else problem.shards[exposure.subject].samples
    scale = points / (np.trace(test) if len(exposure.gram) > 1 else len(problem.x_test))
    return np.asarray(test[: len(exposure.gram)] * scale)


def _run_attack(preset: str, attack: Attack[Any], view: View, truth: Truth, assumption: str) -> tuple[Outcome, Finding]:
    tracemalloc.start()
    began = time.perf_counter()
    finding = attack.run(view, np.random.default_rng(0))
    seconds = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    words = (attack.name, attack.aim, view.label, view.holder, assumption)
    return Outcome(preset, *words, score(finding, truth), seconds, peak), finding


def _membership(
    outcome: Outcome, problem: Problem, exposure: Exposure, found: Float[np.ndarray, "d d"], names: Sequence[str]
) -> Iterable[Outcome]:
    """Infer membership with the matrix that an attack found; where it is right, with the true one, too."""
    candidates, truth = _candidates(problem, exposure)
    for name, attack in ATTACKS.items():
        if attack.view_type is not MembershipView or (names and name not in names):
            continue
        matrices = {"with the matrix found": found}
        if outcome.score.verdict == "falls":
            matrices["with the true matrix"] = exposure.gram
        for words, matrix in matrices.items():
            yield _run_attack(outcome.preset, attack, MembershipView(matrix, candidates), truth, words)[0]


def _parity_membership(
    preset: str, problem: Problem, exposure: Exposure, view: ParityView, wanted: Sequence[Attack[Any]]
) -> Iterable[Outcome]:
    """Infer membership in a batch from its parity data."""
    candidates, truth = _candidates(problem, exposure)
    asked = ParityMembershipView(view.parity, view.points, candidates)
    for attack in wanted:
        if attack.suits(asked):
            yield _run_attack(preset, attack, asked, truth, exposure.assumption)[0]


def _candidates(problem: Problem, exposure: Exposure) -> tuple[Float[np.ndarray, "m d"], Truth]:
    """Return the points behind a view and the test points as candidates, and the truth."""
    inside = problem.shards[exposure.subject].x if exposure.points is None else exposure.points
    candidates = np.concatenate([inside, problem.x_test])
    return candidates, Truth(members=np.arange(len(candidates)) < len(inside))
