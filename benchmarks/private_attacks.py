"""Attacks on data with noise: what the server gets with all other devices, and alone, beside what epsilon allows.

With all other devices (privacy.colluding = N - 1) the server subtracts their data and noise from the opened sum, and
what is left is the Gram matrix of one device with its own noise. On digits both are taken from a real run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from jaxtyping import Bool, Float64

from benchmarks.measure import show
from codedfl.cipher.seals import unpack_upper
from codedfl.privacy.noise import noisy
from codedfl.privacy.release import Release
from codedfl.runs.backend import SimulationBackend
from codedfl.scenario import Scenario, load
from codedfl.schemes.private import clipped, noise_key, noisy_shards, release_of
from codedfl.security.attacks.membership import RECOVERED_ERROR, Decomposition
from codedfl.security.scoring import area_under_curve, relative_error
from codedfl.security.views.kinds import MembershipView
from codedfl.task import Problem, Shard
from codedfl.training import State, train

PRESETS = {"digits, 300 features": ("paper-quick", 20), "mnist, 2000 features": ("paper", 3)}
"""Preset, and how many times noise and candidates are drawn: one draw of noise moves the scores of all candidates."""
EPSILONS = (8.0, 3.0, 1.0)
MEMBERS, OUTSIDERS = 1024, 2048
POOLED, ALONE = "server and all other devices", "server"


@dataclass(frozen=True, eq=False)
class Target:
    """What is attacked: rows of one or all devices, a public guess of their sums, and candidates."""

    data: Shard
    guess: Float64[np.ndarray, "d d"]
    right_guess: Float64[np.ndarray, "d c"]
    x: Float64[np.ndarray, "m d"]
    y: Float64[np.ndarray, "m c"]
    members: Bool[np.ndarray, "m"]

    @classmethod
    def of(cls, data: Shard, outside: Shard, public: Shard, rng: np.random.Generator) -> "Target":
        """Mix some of the rows with rows of nobody."""
        scale, inside = data.samples / public.samples, rng.permutation(data.samples)[:MEMBERS]
        x, y = np.concatenate([data.x[inside], outside.x]), np.concatenate([data.y[inside], outside.y])
        return cls(data, scale * public.gram, scale * public.moments, x, y, np.arange(len(x)) < len(inside))


def main() -> dict[str, Any]:
    """Attack two data sets in clear and at every epsilon."""
    results = {}
    for name, (preset, draws) in PRESETS.items():
        wanted = load(preset).with_settings({"scheme": "one-shot", "training.solver": "closed-form"})
        problem = Problem.build(wanted.with_settings({"privacy.epsilon": 1.0}))
        found: dict[str, list[dict[str, Any]]] = {}
        for draw in range(draws):
            for label, scores in _attacked(wanted, problem, draw, real=preset == "paper-quick"):
                found.setdefault(label, []).append(scores)
                print(f"   {name}; {label}, draw {draw}: likelihood {scores['likelihood_auc']:.3f}", flush=True)
        results[name] = {label: _mean(each) for label, each in found.items()}
        for label, scores in results[name].items():
            _print(f"{name}; {label}, {draws} draws", scores)
    return results


def _attacked(scenario: Scenario, problem: Problem, draw: int, *, real: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Attack one division of the training rows into data and rows of nobody; test rows are public."""
    rng, d = np.random.default_rng(draw), problem.shape[0]
    kept, left = zip(*(_divided(shard, rng) for shard in problem.shards), strict=True)
    outside, everyone, victim = _joined(left), _joined(kept), draw % len(kept)
    outside = Shard(*(rows[rng.permutation(outside.samples)[:OUTSIDERS]] for rows in (outside.x, outside.y)))
    public = Shard(clipped(problem.x_test, 1.0), np.eye(problem.shape[1])[problem.y_test])
    one, union = (Target.of(data, outside, public, rng) for data in (kept[victim], everyone))
    penalty = everyone.samples * float(np.max(problem.ridge)) * np.eye(d)
    model = np.linalg.solve(everyone.gram + penalty, everyone.moments)
    share = (everyone.gram @ model - everyone.moments) * (one.data.samples / everyone.samples)
    noised = replace(problem, shards=kept, raw=None)
    pooled = {"privacy.colluding": len(kept) - 1, "privacy.seed": draw}
    device = {"privacy.unit": "device", "privacy.most_rows": max(shard.samples for shard in kept)}
    cases: list[tuple[str, Target, dict[str, Any]]] = [(POOLED, one, {}), (ALONE, union, {})]
    for epsilon in EPSILONS:
        budget = {"privacy.epsilon": epsilon, "privacy.seed": draw}
        cases.append((f"{POOLED}, epsilon {epsilon:g}", one, budget | pooled))
        cases.append((f"{POOLED}, epsilon {epsilon:g} for a device", one, budget | pooled | device))
        cases.append((f"{ALONE}, epsilon {epsilon:g}", union, budget))
    for label, target, changes in cases:
        private, release = scenario.with_settings(changes), None
        gram, moments = target.data.gram, target.data.moments
        if changes:
            release = release_of(private, [shard.samples for shard in kept], *problem.shape)
            gram, moments = _seen(private, noised, release, victim if target is one else None, target.data, real=real)
        scores = _scores(target, gram, moments, release) | _allowed(release)
        if target is one:
            true = target.data.gram @ model - target.data.moments
            scores["gradient_error"] = relative_error(gram @ model - moments, true)
            scores["gradient_guess"] = relative_error(share, true)
        yield label, scores


def _divided(shard: Shard, rng: np.random.Generator) -> tuple[Shard, Shard]:
    """Return three quarters of a device's rows, and the rest, which nobody has: so both are alike but for the run."""
    x, y, order = clipped(shard.x, 1.0), clipped(shard.y, 1.0), rng.permutation(shard.samples)
    count = 3 * shard.samples // 4
    first, second = (Shard(x[part], y[part]) for part in (order[:count], order[count:]))
    return first, second


def _joined(shards: Sequence[Shard]) -> Shard:
    return Shard(np.concatenate([shard.x for shard in shards]), np.concatenate([shard.y for shard in shards]))


def _mean(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means over draws, and of areas their standard error."""
    means = {
        key: None if value is None else float(np.mean([each[key] for each in found])) for key, value in found[0].items()
    }
    areas = [key for key in means if key.endswith("_auc")]
    errors = {f"{key}_error": float(np.std([each[key] for each in found])) / math.sqrt(len(found)) for key in areas}
    return means | errors | {"draws": len(found)}


def _seen(
    scenario: Scenario, problem: Problem, release: Any, victim: int | None, data: Shard, *, real: bool
) -> tuple[Any, Any]:
    """Return the opened sums; where there is a victim, less the noisy data of all other devices."""
    key = noise_key(scenario.privacy)
    if not real and victim is None:  # noise of one device that stands for all is that of all together
        single = release_of(scenario, [problem.samples], *problem.shape)
        return noisy(data.gram, data.moments, single, key)  # type: ignore[arg-type]
    if not real:  # what is left of the sum is the data of one device with its noise
        return noisy(data.gram, data.moments, release, key)
    backend, state = SimulationBackend(scenario, problem), State.fresh(problem)
    opened = train(problem, scenario, backend.scheme, backend.engine(state, {}), state).server
    gram, moments = unpack_upper(opened["gram"]), opened["moments"]
    if victim is not None:
        for device, each in enumerate(noisy_shards(problem.shards, release, key)):
            if device != victim:
                gram, moments = gram - each.gram, moments - each.moments
    return gram, moments


def _scores(target: Target, gram: Any, moments: Any, release: Release | None) -> dict[str, float]:
    """Attack the matrix, and who is in it, knowing how much noise there is."""
    d = len(gram)
    s, t = (1.0, 1.0) if release is None else (release.least_gram_std, release.least_moments_std)
    noise = 0.0 if release is None else s * math.sqrt(d * (d + 1))
    # the squared distance of what is seen and guessed is that of the guess and the truth, plus noise, known to 6/d
    distance = float(np.linalg.norm(gram - target.guess)) ** 2
    weight = max(0.0, 1 - noise**2 * (1 + 6 / d) / distance)
    mixed = weight * gram + (1 - weight) * target.guess
    error = min(1.0, max(RECOVERED_ERROR, noise / float(np.linalg.norm(gram))))
    found_by = Decomposition(error).run(MembershipView(gram, target.x), np.random.default_rng(0))
    scores = {"decomposition": np.asarray(found_by.membership)}
    # the likelihood ratio of one record, all others replaced by the guess
    own = np.einsum("md,md->m", target.x @ (gram - target.guess), target.x) / (2 * s**2)
    beside = np.einsum("md,md->m", target.x, target.y @ (moments - target.right_guess).T) / t**2
    scores["likelihood"] = own + beside
    found: dict[str, float] = {
        "gram_error": relative_error(gram, target.data.gram),
        "gram_error_with_guess": relative_error(mixed, target.data.gram),
        "gram_guess": relative_error(target.guess, target.data.gram),
    }
    for name, values in scores.items():
        found[f"{name}_auc"] = area_under_curve(values, target.members)
        found[f"{name}_advantage"] = _advantage(values, target.members)
    return found


def _advantage(scores: Float64[np.ndarray, "m"], members: Bool[np.ndarray, "m"]) -> float:
    """Return the largest true positive rate less false positive rate of all thresholds."""
    inside = members[np.argsort(-scores)]
    return float(np.max(np.cumsum(inside) / inside.sum() - np.cumsum(~inside) / (~inside).sum()))


def _allowed(release: Release | None) -> dict[str, float | None]:
    """Return the most that AUC and advantage may be: for noise of ratio mu, and for any (epsilon, delta)."""
    if release is None:
        return dict.fromkeys(("epsilon", "mu", "auc_allowed", "advantage_allowed"))
    e = math.exp(release.epsilon)
    return {
        "epsilon": release.epsilon,
        "mu": release.mu,
        "auc_allowed": float(scipy.special.ndtr(release.mu / math.sqrt(2))),
        "advantage_allowed": (e - 1 + 2 * release.delta) / (e + 1),
    }


def _print(label: str, found: Mapping[str, Any]) -> None:
    print(f" {label}")
    best = max(("decomposition", "likelihood"), key=lambda name: found[f"{name}_auc"])
    spread = found[f"{best}_auc_error"]
    show(f"membership: mean AUC of {best} (+- {spread:.3f})", found[f"{best}_auc"], found["auc_allowed"])
    show("   advantage", max(found[f"{best}_advantage"], 0.0), found["advantage_allowed"])
    show("Gram matrix: relative error as seen", found["gram_error"])
    show("   mixed with the public guess", found["gram_error_with_guess"])
    show("   of the guess alone", found["gram_guess"])
    if "gradient_error" in found:
        show("gradient: relative error as seen", found["gradient_error"])
        show("   of the guess alone", found["gradient_guess"])


if __name__ == "__main__":
    main()
