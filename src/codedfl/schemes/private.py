"""Differential privacy of a run: which runs may add noise, what all parties know of it, and a device's noisy data.

Devices add their noise once, to Gram matrix and right-hand side, before any scheme seals or masks them. So a scheme
whose server sees sums over all devices only needs no change, and all that follows is computed from one release. Where
noise is added in each epoch instead, devices hold their rows, and schemes only noisy gradients.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.randomness import fresh_seed
from codedfl.cipher.seals import Seed
from codedfl.errors import ScenarioError
from codedfl.privacy.descent import GradientRelease
from codedfl.privacy.noise import noisy, spare_seed
from codedfl.privacy.promise import KNOWN_SEED, Promise
from codedfl.privacy.release import Release
from codedfl.scenario import Privacy, Scenario
from codedfl.schemes.plain.row_gradients import ClippedGradients, Keep, NoisyGradients, factors
from codedfl.schemes.secrecy import BOUNDED, FALLS, LEAKS, NO_NOISE, NOT_EXAMINED, NOT_PROTECTED, Secrecy
from codedfl.task import Shard

if TYPE_CHECKING:
    from codedfl.schemes.contract import Scheme


def check_private(scenario: Scenario, scheme: "Scheme[Any]") -> None:
    """Refuse a scheme that noise does not fit, and whatever would be released beside the noisy sums."""
    if not scenario.private:
        return
    if (reason := scheme.refuses_noise(scenario.privacy)) is not None:
        fitting = "one-shot, sealed-coded or secagg" if scenario.privacy.release == "once" else "secagg"
        raise ScenarioError(
            f"privacy.epsilon = {scenario.privacy.epsilon:g} cannot be kept by scheme = '{scenario.scheme}': {reason}; "
            f"choose {fitting}, or leave privacy.epsilon out"
        )
    devices = scenario.fleet.size
    if scenario.privacy.colluding + scenario.privacy.losses > devices - 1:
        raise ScenarioError(
            f"privacy.colluding = {scenario.privacy.colluding} and privacy.losses = {scenario.privacy.losses} leave "
            f"none of the {devices} devices to add noise; lower them"
        )
    if scenario.privacy.colluding and (reason := _opened_by_colluding(scheme)) is not None:
        raise ScenarioError(
            f"privacy.colluding = {scenario.privacy.colluding} cannot be kept by scheme = '{scenario.scheme}': "
            f"{reason}; choose one-shot, or set privacy.colluding = 0"
        )
    several = len(scenario.ridges) > 1
    for wrong, key, advice in (
        (scenario.precision == "float32", 'task.precision = "float32"', "leave it out: float32 rounds too much"),
        (several, "task.ridge with several weights", "give one: choosing releases sums of errors without noise"),
        (scenario.data.held_out > 0, "data.held_out", "set 0: counts on held-out rows are released without noise"),
        (scenario.training.start is not None, "training.start", "leave it out: it moves targets beyond their clip"),
        (scenario.features.missing == "mean", 'features.missing = "mean"', "remove rows with empty cells: means tell"),
    ):
        if wrong:
            raise ScenarioError(f"privacy.epsilon does not go with {key}; {advice}")
    _check_columns(scenario)


def _check_columns(scenario: Scenario) -> None:
    """Refuse means and variances of columns, and clips that do not fit columns with ranges."""
    features, privacy = scenario.features, scenario.privacy
    linear = features.kind == "none"
    if scenario.prepared or (scenario.ranged and features.scale != "auto"):
        raise ScenarioError(
            f"privacy.epsilon does not go with features.scale = '{features.scale}' and features.intercept = "
            f"{str(scenario.intercept).lower()}, because sums of columns are released without noise; "
            + (
                "leave both out"
                if scenario.data.named
                else "leave features.scale out and declare ranges in privacy.columns, or set 'none' and false"
            )
        )
    if privacy.columns and not scenario.ranged:
        raise ScenarioError(
            f"privacy.columns give a range of '{privacy.columns[0].name}', but columns are used as they are "
            f"(data.source = '{scenario.data.source}', features.scale = '{features.scale}'); leave one of them out"
        )
    if not scenario.ranged:
        return
    for name, clip, wanted in (
        ("clip_features", privacy.clip_features, linear),
        ("clip_targets", privacy.clip_targets, True),
    ):
        if wanted and clip != 1:
            raise ScenarioError(
                f"privacy.{name} = {clip:g} does not go with privacy.columns, which scale rows to a norm of at most 1; "
                "leave it out"
            )
    if not linear and scenario.intercept and privacy.clip_features < math.sqrt(2):
        raise ScenarioError(
            f"privacy.clip_features = {privacy.clip_features:g} is too small for random features with an intercept, "
            "which have a norm of 1.41; set it to 1.5, or features.intercept = false"
        )


def _opened_by_colluding(scheme: "Scheme[Any]") -> str | None:
    """Return how a server that colludes reads single devices, whose own noise is less than the sum needs; None if not.

    Noise is sized for sums over all devices that do not collude.
    """
    cells = {(cell.adversary, cell.asset): cell for cell in scheme.secrecy()}
    pooled = cells["server and devices", "gram"]
    return pooled.reason if pooled.verdict in (FALLS, NOT_PROTECTED) else None


def once_only(privacy: Privacy) -> str | None:
    """Refuse noise in each epoch."""
    return None if privacy.release == "once" else "privacy.release = 'each-epoch' is for scheme = 'secagg'"


def release_of(
    scenario: Scenario, samples: Sequence[int], features: int, outputs: int
) -> Release | GradientRelease | None:
    """Return what a run releases, computed from what is public; None without noise."""
    given = scenario.privacy
    if given.epsilon is None:
        return None
    asked: dict[str, Any] = {
        "epsilon": given.epsilon,
        "delta": given.delta,
        "clip_features": given.clip_features,
        "features": features,
        "outputs": outputs,
        "devices": len(samples),
        "colluding": given.colluding,
        "losses": given.losses,
        "largest_rows": max(samples),
        "records": sum(samples),
        "unit": given.unit,
        "most_rows": given.most_rows,
        "known_seed": given.seed is not None,
    }
    if given.release == "once":
        return Release.plan(**asked, clip_targets=given.clip_targets)
    epochs, loss = scenario.training.epochs, scenario.task.loss
    return GradientRelease.plan(**asked, clip_residuals=given.clip_residuals, epochs=epochs, loss=loss)


def privacy_entries(release: Promise | None) -> dict[str, Any]:
    """Return what a run promises, however many epochs it takes, for files and reports; null without noise."""
    if release is None:
        return dict.fromkeys(("epsilon", "delta", "privacy"))
    return {"epsilon": release.epsilon, "delta": release.delta, "privacy": release.to_table()}


def with_release(scenario: Scenario, scheme: "Scheme[Any]") -> "Scheme[Any]":
    """Return a scheme that was made before data are loaded with the noise that its scenario asks for."""
    check_private(scenario, scheme)
    public = scheme.public
    release = release_of(scenario, public.samples, public.features, public.outputs)
    return scheme.with_public(replace(public, release=release))


def stated_secrecy(scheme: "Scheme[Any]") -> tuple[Secrecy, ...]:
    """Return what each adversary may learn of each asset, where devices add noise as well."""
    release = scheme.public.release
    return scheme.secrecy() if release is None else tuple(_under_noise(cell, release) for cell in scheme.secrecy())


def _under_noise(cell: Secrecy, release: Promise) -> Secrecy:
    """Bound what sums tell. Noise is planned for sums over all devices, so what is worse than them stays as it is."""
    if cell.verdict not in (LEAKS, NOT_EXAMINED):
        return cell
    reason = cell.reason.removesuffix(NO_NOISE)
    if release.known_seed:
        return replace(cell, reason=f"{reason}; {KNOWN_SEED}")
    if release.unit == "record" and not cell.asset.startswith("membership"):
        return replace(cell, reason=f"{reason}; with noise, which hides single records, not all of a device")
    pooled = {"device": 1, "deviating device": 1, "devices": release.devices - 1}.get(cell.adversary, 0)
    if cell.adversary == "server and devices":
        if release.colluding == 0:
            return replace(cell, reason=f"{reason}; privacy.colluding = 0: noise is not planned for it")
        pooled = release.colluding
        reason += f"; with at most {pooled} devices"
    bound = f"{reason}; with noise: {release.promise(pooled)}, for this run alone"
    if pooled <= max(1, release.colluding):  # a device that colludes with nobody still knows its own noise
        return replace(cell, verdict=BOUNDED, reason=bound)
    return replace(cell, reason=f"{bound}; they know their own noise, and privacy.colluding = {release.colluding}")


@final
@dataclass(frozen=True, eq=False)
class NoisyShard(Shard):
    """Noisy Gram matrix and right-hand side of a device; its rows are zeros, so that no scheme can send them."""

    spare: bytes | None = field(default=None, repr=False)
    """Seed of the noise for devices that may be lost; None: there is none."""

    @property
    def compact(self) -> bool:
        """Always: there is nothing else to compute with."""
        return True


def noisy_shard(
    shard: Shard,
    release: Release | GradientRelease,
    seed: bytes | None,
    keep: Keep | None = None,
) -> NoisyShard | NoisyGradients:
    """Clip a device's rows, and add its share of the noise: from ``seed``, or from the operating system.

    With noise in each epoch, it is added to each reply, and ``keep`` keeps which models were answered.
    """
    if isinstance(release, GradientRelease):
        return NoisyGradients(*_zeros(shard), gradients=ClippedGradients(shard, release, seed, keep))
    x, y = clipped(shard.x, release.clip_features), clipped(shard.y, release.clip_targets)
    weight = min(1.0, release.rows / len(x))  # below 1 only where all records of a device are hidden together
    secret = fresh_seed(seed)
    gram, moments = noisy(weight * (x.T @ x), weight * (x.T @ y), release, secret)
    spare = spare_seed(secret) if any(release.spare_steps) else None
    made = NoisyShard(*_zeros(shard), spare=spare)
    vars(made).update(gram=gram, moments=moments)
    return made


def noise_key(privacy: Privacy) -> bytes:
    """Return the key of all noise of a simulation: from the operating system, unless the scenario names a seed."""
    seed = privacy.seed
    return fresh_seed(None if seed is None else hashlib.sha256(f"codedfl known noise {seed}".encode()).digest())


def device_seed(key: bytes, device: int) -> bytes:
    """Return the seed of one device's noise in a simulation."""
    return Seed(key).derive(f"codedfl noise of device {device}".encode())


def noisy_shards(
    shards: Sequence[Shard], release: Release | GradientRelease, key: bytes
) -> list[NoisyShard | NoisyGradients]:
    """Return what all devices of a simulation train on, each with noise of its own from one key."""
    return [noisy_shard(shard, release, device_seed(key, device)) for device, shard in enumerate(shards)]


def noiseless_shard(shard: Shard, release: Release | GradientRelease | None) -> Shard:
    """Return a shard that costs a device what its noisy one would, for predictions of costs."""
    if release is None or isinstance(release, GradientRelease):
        return shard if release is None else noisy_shard(shard, release, bytes(32))
    made = NoisyShard(shard.x, shard.y)
    vars(made).update(gram=shard.gram, moments=shard.moments)
    return made


def shortened_rows(shards: Sequence[Shard], release: Release | GradientRelease) -> dict[str, float]:
    """Return the share of rows whose features, or targets, are scaled down to less than half."""
    found = {"features": np.concatenate([factors(s.x.astype(np.float64), release.clip_features) for s in shards])}
    if isinstance(release, Release):
        found["targets"] = np.concatenate([factors(s.y.astype(np.float64), release.clip_targets) for s in shards])
    return {what: float(np.mean(each < 0.5)) for what, each in found.items()}


def _zeros(shard: Shard) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n c"]]:
    zero = np.zeros(1)
    return np.broadcast_to(zero, shard.x.shape), np.broadcast_to(zero, shard.y.shape)


def clipped(rows: Float[np.ndarray, "n k"], longest: float) -> Float[np.ndarray, "n k"]:
    """Return rows in float64, those that are longer scaled down to that length."""
    wide = rows.astype(np.float64)
    wide *= factors(wide, longest)[:, None]
    return wide
