"""One attack on the views that parties had of all devices: the scores, and which device is hidden least."""

import time
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.security.contract import Attack, Finding
from codedfl.security.scoring import Score, Truth, relative_error, score
from codedfl.security.transcript import Exposure
from codedfl.security.views.kinds import CohortsView, View
from codedfl.task import Problem, gram

GRAM, GRADIENT, MEMBERSHIP, UNION = "gram", "gradient", "membership of a device", "membership in the union"
"""What is attacked: a device's Gram matrix, its gradient, who is in its data, who is in the union of all data."""
SECOND_RUN = "a second run without this device"
EXACT = 1e-5
"""Relative error at which no other device can be hidden less: the rounding of float32."""


@dataclass(frozen=True)
class Outcome:
    """One attack: its score on the least hidden device, and its cost."""

    preset: str
    attack: str
    aim: str
    view: str
    holder: str
    assumption: str
    score: Score
    seconds: float
    peak_bytes: int
    adversary: str = ""
    asset: str = GRAM
    device: int | None = None
    """The least hidden device; None where the attack is on all together."""
    epochs: int = 0

    def to_table(self) -> dict[str, Any]:
        """Return plain values, the score among them."""
        table = {name: value for name, value in vars(self).items() if name != "score"}
        table |= vars(self.score)
        for name in ("relative_error", "guess_error"):
            if table[name] == float("inf"):
                table[name] = None
        return table

    @property
    def exposed(self) -> tuple[int, float]:
        """How much the attack got: the verdict first, then the figure."""
        rank = ("holds", "leaks", "falls").index(self.score.verdict)
        if self.score.auc is not None:
            return rank, self.score.auc
        error = self.score.relative_error
        return rank, -np.inf if error is None else -error


@final
@dataclass(frozen=True)
class Attempt:
    """An outcome, and what the attack found on which view."""

    outcome: Outcome
    finding: Finding
    exposure: Exposure


@final
class Range:
    """Runs attacks on a scenario's exposures and scores them; the truth comes from its problem."""

    def __init__(self, preset: str, problem: Problem, epochs: int) -> None:
        self.preset = preset
        self.problem = problem
        self.epochs = epochs

    @cached_property
    def _test(self) -> Float[np.ndarray, "d d"]:
        return gram(self.problem.x_test)

    def guess(self, true: Float[np.ndarray, "rows d"], exposure: Exposure) -> Float[np.ndarray, "rows d"]:
        """Return the public guess: the Gram matrix of the test data, scaled to as many points.

        Shards of one distribution look alike, so an attack must do better than this.
        """
        columns = slice(None) if exposure.columns is None else exposure.columns
        test = self._test[columns][:, columns]
        if len(true) > 1:
            return np.asarray(test * (np.trace(true) / np.trace(test)))
        points = self.problem.shards[exposure.subject or 0].samples
        return np.asarray(test[: len(true)] * (points / len(self.problem.x_test)))

    def least_hidden(self, attack: Attack[Any], exposures: Sequence[Exposure]) -> list[Attempt]:
        """Attack views of one kind, of one device each or of all together; return the attempts on the least hidden.

        Where one view is of all devices, the attack runs once, and every device is held against its result.
        """
        found: dict[str, Attempt] = {}
        seconds, peak = 0.0, 0
        for exposure in exposures:
            for attempt in self._attempts(attack, exposure):
                asset = attempt.outcome.asset
                if asset not in found or attempt.outcome.exposed > found[asset].outcome.exposed:
                    found[asset] = attempt
            last = attempt.outcome
            seconds, peak = seconds + last.seconds, max(peak, last.peak_bytes)
            error = last.score.relative_error
            if last.score.support_recovered is not False and error is not None and error <= EXACT:
                break
        return [
            replace(attempt, outcome=replace(attempt.outcome, seconds=seconds, peak_bytes=peak))
            for attempt in found.values()
        ]

    def _attempts(self, attack: Attack[Any], exposure: Exposure) -> Iterable[Attempt]:
        view = exposure.view
        if isinstance(view, CohortsView):
            guess = np.asarray(self._test / len(self.problem.x_test))
        else:
            guess = self.guess(exposure.gram, exposure)
        outcome, finding = self.run(attack.informed(guess), exposure)
        if exposure.subject is not None:
            length = view.G.shape[1] if hasattr(view, "G") else 0
            error = relative_error(guess, exposure.gram)
            truth = Truth(gram=exposure.gram, support=exposure.support, length=length, guess_error=error)
            yield Attempt(replace(outcome, score=score(finding, truth), device=exposure.subject), finding, exposure)
            return
        if finding.gram is not None:
            truth = Truth(gram=exposure.gram, guess_error=relative_error(guess, exposure.gram))
            yield Attempt(replace(outcome, score=score(finding, truth), asset=UNION), finding, exposure)
        scored = [self._of_device(outcome, finding, exposure, device) for device in exposure.parts]
        yield Attempt(max(scored, key=lambda each: each.exposed), finding, exposure)

    def _of_device(self, outcome: Outcome, finding: Finding, exposure: Exposure, device: int) -> Outcome:
        """Score the result of a view of several devices for one of them: its own part, or its share of the points."""
        true, points = exposure.parts[device], {part: self.problem.shards[part].samples for part in exposure.parts}
        if finding.gradients is not None:
            share, guess, asset = 1.0, exposure.gram * self._share(device), GRADIENT
            whole = finding.gradients[device]
        else:
            share, guess, asset = points[device] / sum(points.values()), self.guess(true, exposure), GRAM
            whole = exposure.gram if finding.gram is None else finding.gram
        found = Finding(gram=share * whole, remark=finding.remark)
        result = score(found, Truth(gram=true, guess_error=relative_error(guess, true)))
        return replace(outcome, score=result, asset=asset, device=device)

    def _share(self, device: int) -> float:
        return self.problem.shards[device].samples / self.problem.samples

    def run(self, attack: Attack[Any], exposure: Exposure, view: View | None = None) -> tuple[Outcome, Finding]:
        """Run an attack on a view, that of the exposure unless it is given; the score is yet to be made."""
        seen = exposure.view if view is None else view
        tracemalloc.start()
        began = time.perf_counter()
        finding = attack.run(seen, np.random.default_rng(0))
        seconds = time.perf_counter() - began
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        unscored = Score(None, None, None, None, "holds")
        words = (attack.name, attack.aim, seen.label, seen.holder, exposure.assumption)
        outcome = Outcome(self.preset, *words, unscored, seconds, peak, exposure.party, epochs=self.epochs)
        return outcome, finding
