"""Who is in the data: membership from every matrix that an attack found, from parity data, and from the released model.

One run of an attack weighs points of one device, points of other devices, and test points, which nobody has. A device's
points are told apart from all others where the matrix is of its data alone, and from those of other devices where it is
a sum; who is in the union is told apart from test points.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from codedfl.security.attempts import MEMBERSHIP, UNION, Attempt, Outcome, Range
from codedfl.security.contract import Attack, Finding
from codedfl.security.scoring import Truth, score
from codedfl.security.transcript import Exposure
from codedfl.security.views.kinds import MembershipView, ModelView, ParityMembershipView, ParityView, View
from codedfl.task import Problem, Shard

MOST = 1024
"""Candidates of each kind: from the device, from other devices; twice as many from nobody."""


@final
class Candidates:
    """Points of one device, of others and of nobody, in this order; samples where there are more than enough."""

    def __init__(self, place: Range, exposure: Exposure, device: int) -> None:
        problem, rng = place.problem, np.random.default_rng(0)
        inside = sorted(exposure.parts) or range(len(problem.shards))
        others = [problem.shards[other] for other in inside if other != device]
        own: Any = problem.shards[device]
        if exposure.points is not None:
            own = Shard(exposure.points, np.zeros((len(exposure.points), problem.shape[1]), exposure.points.dtype))
        pools = [[own], others, [_outsiders(problem)]]
        sizes = (MOST, MOST, 2 * MOST)
        chosen = [(kind, *_sampled(pool, sizes[kind], rng)) for kind, pool in enumerate(pools) if pool]
        self.x = np.concatenate([x for _, x, _ in chosen])
        self.y = np.concatenate([y for _, _, y in chosen])
        self.kinds = np.concatenate([np.full(len(x), kind) for kind, x, _ in chosen])

    @cached_property
    def has_others(self) -> bool:
        """Whether points of other devices are among them."""
        return bool(np.any(self.kinds == 1))


def _outsiders(problem: Problem) -> Shard:
    """Return the test points as a shard that nobody has."""
    y = problem.y_test
    if problem.kind == "classification":
        y = np.eye(problem.shape[1], dtype=problem.dtype)[y]
    if problem.start is not None:
        y = y - problem.x_test @ problem.start
    return Shard(problem.x_test, np.asarray(y).reshape(len(y), -1))


def _sampled(pool: Sequence[Shard], most: int, rng: np.random.Generator) -> tuple[Any, Any]:
    x, y = np.concatenate([shard.x for shard in pool]), np.concatenate([shard.y for shard in pool])
    rows = np.sort(rng.permutation(len(x))[:most])
    return x[rows], y[rows]


def from_matrix(place: Range, attempt: Attempt, attacks: Iterable[Attack[Any]], words: str = "") -> Iterable[Outcome]:
    """Infer membership with the matrix that an attempt found, on the directions in which it is known."""
    finding, exposure = attempt.finding, attempt.exposure
    device = attempt.outcome.device
    if finding.gram is None or device is None or finding.gram.shape[0] != finding.gram.shape[1]:
        return
    known = Candidates(place, exposure, device)
    matrix, points = finding.gram, known.x if exposure.columns is None else known.x[:, exposure.columns]
    if finding.reached is not None:
        points = points @ finding.reached
        matrix = finding.reached.T @ matrix @ finding.reached
    source = words or f"with the matrix found by {attempt.outcome.attack} from {attempt.outcome.view}"
    told = replace(exposure, assumption=", ".join(filter(None, (source, exposure.assumption))))
    yield from _infer(place, attacks, told, MembershipView(matrix, points), known, device)


def from_parity(place: Range, exposures: Iterable[Exposure], attacks: Sequence[Attack[Any]]) -> Iterable[Outcome]:
    """Infer membership in a batch from its parity data; of all devices, return the least hidden."""
    best: dict[str, Outcome] = {}
    for exposure in exposures:
        if isinstance(exposure.view, ParityView) and exposure.subject is not None:
            known = Candidates(place, exposure, exposure.subject)
            view = ParityMembershipView(exposure.view.parity, exposure.view.points, known.x)
            for outcome in _infer(place, attacks, exposure, view, known, exposure.subject):
                if outcome.attack not in best or outcome.exposed > best[outcome.attack].exposed:
                    best[outcome.attack] = outcome
    yield from best.values()


def from_model(place: Range, model: Float[np.ndarray, "d c"], attacks: Sequence[Attack[Any]]) -> Iterable[Outcome]:
    """Infer membership from the released model; the device is the one with the fewest points."""
    samples = [shard.samples for shard in place.problem.shards]
    device = int(np.argmin(samples))
    parts = dict.fromkeys(range(len(samples)), model)
    exposure = Exposure(
        ModelView(model, np.zeros((0, len(model))), np.zeros((0, model.shape[1]))), None, model, parts=parts
    )
    known = Candidates(place, exposure, device)
    yield from _infer(place, attacks, exposure, ModelView(model, known.x, known.y), known, device)


def _infer(
    place: Range, attacks: Iterable[Attack[Any]], exposure: Exposure, view: View, known: Candidates, device: int
) -> Iterable[Outcome]:
    for attack in attacks:
        if not attack.suits(view):
            continue
        outcome, finding = place.run(attack, exposure, view)
        alone = exposure.subject is not None
        if alone or known.has_others:
            others = (1, 2) if alone else (1,)
            yield replace(outcome, score=_told(finding, known.kinds, (0,), others), asset=MEMBERSHIP, device=device)
        if not alone:
            yield replace(outcome, score=_told(finding, known.kinds, (0, 1), (2,)), asset=UNION)


def _told(finding: Finding, kinds: Int[np.ndarray, "m"], inside: Sequence[int], outside: Sequence[int]) -> Any:
    """Score how well points of some kinds are told apart from those of others."""
    if finding.membership is None:
        return score(finding, Truth())
    asked = np.isin(kinds, [*inside, *outside])
    members = np.isin(kinds, inside)[asked]
    return score(Finding(membership=finding.membership[asked], remark=finding.remark), Truth(members=members))
