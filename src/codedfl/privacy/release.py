"""What devices release under differential privacy: noisy Gram matrices and right-hand sides, and how much noise.

One record (phi, y) changes the sum of Gram matrices by phi phi^T and the right-hand side by phi y^T. Noise of standard
deviation s off the diagonal, sqrt(2) s on it and t in the right-hand side gives the release the ratio mu of sensitivity
to noise, mu^2 = (|phi|^2 / (sqrt(2) s))^2 + (|phi| |y| / t)^2: a symmetric matrix counts by its Frobenius norm.

Each device adds a share of noise, and only the shares of devices that neither collude nor are lost are counted. What
they add for those that may be lost is drawn from a seed of its own, which they tell once the sum is made and nobody was
lost, so that it can be removed (as in Jiang, Wang and Chen, "Dordis", EuroSys 2024). Shares
are discrete Gaussians on the grid to which entries are rounded. Up to a distance of exp(-2 pi^2 r^2), such a share of
variance v (in squared steps) is a continuous Gaussian of variance v - r^2 that is rounded at random (Peikert, "An
efficient and parallel Gaussian sampler for lattices", CRYPTO 2010, theorem 3.1), so the law of continuous noise covers
it; r = 4 makes the distance 1e-137.

Schemes may round a noisy share once more, to steps q of their number formats. The rounded share has the density of a
Gaussian and an independent number, uniform within q / 2, at the points of the format, because its noise is far wider
than q. So the sum of such shares is again a continuous Gaussian that is rounded at random, if r steps of q are taken
off its variance, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, hypot, isfinite, log, log2, sqrt
from typing import NamedTuple, cast, final

from codedfl.errors import UsageError
from codedfl.privacy.accounting import composed, epsilon_of, mu_of
from codedfl.privacy.promise import Promise, Unit

GRAM_SHARE = 0.7
"""The part of mu^2 that is spent on the Gram matrix, fixed on Fashion-MNIST; the right-hand side gets the rest."""

MOST_SIGMA = 1 << 24
"""A share's noise in steps: large, so that rounding adds little to the sensitivity."""

SMOOTHING = 4
"""The r of the module's docstring, in steps."""

FORMAT_SHARE = 2.0**-12
"""The largest step of a number format, relative to the noise of one device."""

EXACT = 2.0**52
"""Entries of sums stay below as many steps, so that float64 holds them exactly."""

UNLIKELY = 2.0**-60
"""The probability that any entry of the noise exceeds its reach."""

_UNIT_ROUNDOFF = 2.0**-53
_KEPT = 1 - (SMOOTHING * FORMAT_SHARE) ** 2
"""The part of the variance that is counted on where formats round."""

_LEAST_RATIO = 1e-100
"""Squares of smaller ratios of sensitivity to noise leave the range of float64."""


@final
@dataclass(frozen=True, kw_only=True)
class Release(Promise):
    """The noise of a run that releases sums, and what it promises; make one by ``plan``."""

    clip_targets: float
    gram_bits: int
    """Gram matrices are rounded to multiples of 2^-gram_bits."""
    moments_bits: int
    off_diagonal_steps: int
    """Noise of one device, in steps of the grid."""
    diagonal_steps: int
    moments_steps: int
    spare_steps: tuple[int, int, int]
    """Further noise of one device for those that may be lost, in the same order; zeros: there is none."""
    gram_sensitivity: float
    """Frobenius norm of the largest change that one record (or device) makes, after rounding."""
    moments_sensitivity: float

    @classmethod
    def plan(
        cls,
        *,
        epsilon: float,
        delta: float,
        clip_features: float,
        clip_targets: float,
        features: int,
        outputs: int,
        devices: int,
        largest_rows: int,
        records: int,
        colluding: int = 0,
        losses: int = 0,
        unit: str = "record",
        most_rows: float | None = None,
        releases: int = 1,
        known_seed: bool = False,
    ) -> "Release":
        """Choose grids and noise.

        Parameters
        ----------
        epsilon, delta
            What all releases together must provide.
        clip_features, clip_targets
            Largest norms of a row's features and of its targets.
        features, outputs
            Size of the right-hand side.
        devices, colluding, losses
            How many devices there are, how many of them may pool what they know with the server, and how many others
            may be lost with their noise.
        largest_rows, records
            Rows of the largest device, and of all devices together.
        unit, most_rows
            Whether one record is hidden, or all records of a device, which then count as at most ``most_rows`` rows.
        releases
            How many times the run releases sums, each time with fresh noise.
        known_seed
            Whether others know the seed of the noise.

        Raises
        ------
        UsageError
            If a number is out of range or no noise fulfils the request.
        """
        rows, changes, ratio = basis(
            epsilon=epsilon,
            delta=delta,
            features=features,
            outputs=outputs,
            devices=devices,
            largest_rows=largest_rows,
            records=records,
            colluding=colluding,
            losses=losses,
            unit=unit,
            most_rows=most_rows,
            releases=releases,
            clip_features=clip_features,
            clip_targets=clip_targets,
        )
        spares = _removes_spares(devices - colluding, losses)
        honest = devices - colluding - (0 if spares else losses)
        # twice the largest entries of sums: noise takes less than the other half
        norm, product = clip_features**2, clip_features * clip_targets
        gram = calibrated(changes * norm, features, sqrt(2 * GRAM_SHARE) * ratio, honest, 2 * devices * rows * norm)
        moments = calibrated(
            changes * product,
            sqrt(features * outputs),
            sqrt(1 - GRAM_SHARE) * ratio,
            honest,
            2 * devices * rows * product,
        )
        mu = sqrt(releases) * composed([gram.ratio(honest) / sqrt(2), moments.ratio(honest)])
        sigmas = gram.sigma, ceil(sqrt(2) * gram.sigma), moments.sigma
        return cls(
            epsilon=epsilon_of(mu, delta),
            delta=delta,
            mu=mu,
            clip_features=clip_features,
            clip_targets=clip_targets,
            features=features,
            outputs=outputs,
            devices=devices,
            colluding=colluding,
            losses=losses,
            rows=rows,
            unit=cast(Unit, unit),
            releases=releases,
            gram_bits=gram.bits,
            moments_bits=moments.bits,
            off_diagonal_steps=sigmas[0],
            diagonal_steps=sigmas[1],
            moments_steps=sigmas[2],
            spare_steps=_spares(sigmas, honest, losses) if spares else (0, 0, 0),
            gram_sensitivity=gram.sensitivity,
            moments_sensitivity=moments.sensitivity,
            known_seed=known_seed,
        )

    def counted(self, colluding: int) -> float:
        """How many shares of noise are counted on where so many devices collude."""
        if not any(self.spare_steps):
            return self.devices - colluding - self.losses
        # more devices that collude than planned take off what spare noise makes up for lost ones, as in _spares
        others, more = self.devices - self.colluding, max(0, colluding - self.colluding)
        return self.devices - colluding - self.losses * more / (others - 2 * self.losses)

    @property
    def covered(self) -> str:
        """A run, and how many releases it makes."""
        return "this run" + (f" of {self.releases} releases" if self.releases > 1 else "")

    @property
    def details(self) -> dict[str, float]:
        """The clip of targets, and the noise of all devices."""
        stds = {"gram_noise_std": self.gram_std, "right_hand_side_noise_std": self.moments_std}
        return {"clip_targets": self.clip_targets, **stds}

    @property
    def gram_std(self) -> float:
        """Standard deviation of the noise of all devices in an off-diagonal entry of the sum of Gram matrices.

        If devices are lost, that of the others is larger by what their spare noise adds.
        """
        return sqrt(self.devices) * self.off_diagonal_steps * 2.0**-self.gram_bits

    @property
    def moments_std(self) -> float:
        """Standard deviation of the noise of all devices in an entry of the sum of right-hand sides."""
        return sqrt(self.devices) * self.moments_steps * 2.0**-self.moments_bits

    @property
    def least_gram_std(self) -> float:
        """The part of ``gram_std`` that is counted on."""
        return sqrt(self.honest / self.devices) * self.gram_std

    @property
    def least_moments_std(self) -> float:
        """The part of ``moments_std`` that is counted on."""
        return sqrt(self.honest / self.devices) * self.moments_std

    @property
    def coarsest_steps(self) -> tuple[float, float]:
        """The largest steps to which schemes may round noisy Gram matrices and right-hand sides of a device."""
        gram, moments = (
            steps * 2.0**-bits * FORMAT_SHARE
            for steps, bits in ((self.off_diagonal_steps, self.gram_bits), (self.moments_steps, self.moments_bits))
        )
        return gram, moments

    def gram_reach(self, shares: int = 1) -> float:
        """Bound every entry of the noise of so many devices in Gram matrices, but with probability 2^-60 in a run."""
        steps = hypot(self.diagonal_steps, self.spare_steps[1])
        return sqrt(shares) * steps * 2.0**-self.gram_bits * self._deviations

    def moments_reach(self, shares: int = 1) -> float:
        """Bound every entry of the noise of so many devices in right-hand sides in the same way."""
        steps = hypot(self.moments_steps, self.spare_steps[2])
        return sqrt(shares) * steps * 2.0**-self.moments_bits * self._deviations

    @property
    def _deviations(self) -> float:
        """The z with 2 exp(-z^2 / 2) (numbers drawn) = 2^-60; sums of discrete Gaussians are sub-Gaussian."""
        drawn = 2 * self.features * (self.features + self.outputs) * (self.devices + 1) * self.releases
        return sqrt(2 * log(2 * drawn / UNLIKELY))


class Basis(NamedTuple):
    """What plans of noise have in common."""

    rows: float
    """As how many rows those of the largest device count."""
    changes: float
    """By how many largest products a record (or device) changes a sum, with rounding."""
    ratio: float
    """Ratio of sensitivity to noise that each release may have."""


def basis(
    *,
    epsilon: float,
    delta: float,
    features: int,
    outputs: int,
    devices: int,
    largest_rows: int,
    records: int,
    colluding: int,
    losses: int,
    unit: str,
    most_rows: float | None,
    releases: int,
    **clips: float,
) -> Basis:
    """Check a request, whose arguments are those of :meth:`Release.plan`."""
    _check_sizes(features, outputs, devices, largest_rows, records, releases)
    _check_unit(unit, most_rows)
    _check_budget(epsilon, delta, devices if unit == "device" else records, unit)
    _check_devices(devices, colluding, losses)
    _check_clips(clips)
    units, rows = (most_rows, most_rows) if unit == "device" and most_rows else (1.0, float(largest_rows))
    # sums of products, of the data with the record and of those without it (Higham, "Accuracy and stability of
    # numerical algorithms", 3.5), and norms that are compared with the clips in float64
    changes = (units + 2 * _gamma(largest_rows) * rows) * (1 + _gamma(features + outputs + 8)) ** 2
    return Basis(rows, changes, mu_of(epsilon, delta) / sqrt(releases))


class Calibration(NamedTuple):
    """A grid, and the noise of one device in steps of it."""

    bits: int
    sigma: int
    sensitivity: float

    def ratio(self, honest: int) -> float:
        """Sensitivity over the standard deviation of the continuous noise that is counted on."""
        return self.sensitivity * 2.0**self.bits / sqrt(honest * (self.sigma**2 * _KEPT - SMOOTHING**2))


def calibrated(change: float, entries: float, ratio: float, honest: int, largest: float) -> Calibration:
    """Choose the finest grid on which a share has at most ``MOST_SIGMA`` steps and float64 holds every sum.

    An entry that changes by x changes by at most x and one step after rounding: norms by at most ``entries`` steps.
    """
    finest = floor(log2(min(MOST_SIGMA * ratio * sqrt(honest) / change, EXACT / largest)))
    for bits in range(finest, finest - 64, -1) if ratio > _LEAST_RATIO else ():
        sensitivity = change + entries * 2.0**-bits
        sigma = ceil(sqrt(((sensitivity * 2.0**bits / ratio) ** 2 / honest + SMOOTHING**2) / _KEPT))
        found = Calibration(bits, sigma, sensitivity)
        if found.ratio(honest) > ratio:  # the square root was rounded down
            found = found._replace(sigma=sigma + 1)
        if found.sigma <= MOST_SIGMA:
            return found
    raise UsageError(
        f"rounding alone needs more noise than {MOST_SIGMA} steps at a ratio of {ratio:.2g} a release: "
        "ask for a larger epsilon or for fewer features"
    )


def _removes_spares(others: int, losses: int) -> bool:
    """Tell whether devices add noise for those that may be lost apart from their own, so that it can be removed.

    Not where it has eight times the variance of their own or more: the sampler does not reach that far.
    """
    return 0 < losses < 8 * (others - 2 * losses)


def _spares(sigmas: tuple[int, int, int], others: int, losses: int) -> tuple[int, int, int]:
    """Return the spare noise of a device beside its noise of so many steps.

    A device tells the seed of its spare noise if it is told that nobody was lost. A server that tells so to as many
    devices as the opening of a sum can do without, and to all others that as many were lost, has the noise of
    N - c - L devices and the spare noise of N - c - 2 L of them; together they must be that of N - c devices.
    """
    ratio = losses / (others - 2 * losses)
    off, diagonal, moments = (ceil(sqrt(ratio * (sigma**2 - SMOOTHING**2) + SMOOTHING**2)) + 1 for sigma in sigmas)
    return off, diagonal, moments


def _gamma(roundings: int) -> float:
    """Relative error of a chain of roundings in float64, in whatever order."""
    return roundings * _UNIT_ROUNDOFF / (1 - roundings * _UNIT_ROUNDOFF)


def _check_sizes(features: int, outputs: int, devices: int, largest_rows: int, records: int, releases: int) -> None:
    sizes = {"features": features, "outputs": outputs, "devices": devices}
    sizes |= {"rows of the largest device": largest_rows, "records": records, "releases": releases}
    for name, number in sizes.items():
        if number < 1:
            raise UsageError(f"privacy for {number} {name} is impossible: give at least 1")


def _check_unit(unit: str, most_rows: float | None) -> None:
    if unit not in ("record", "device"):
        raise UsageError(f"privacy.unit '{unit}' is unknown: choose 'record' or 'device'")
    if unit == "record" and most_rows is not None:
        raise UsageError(f"privacy.most_rows is {most_rows}, but privacy.unit is 'record': leave one of them out")
    if unit == "device" and most_rows is None:
        raise UsageError("privacy.unit 'device' needs privacy.most_rows: as how many rows a device may count at most")
    if most_rows is not None and not (isfinite(most_rows) and most_rows >= 1):
        raise UsageError(f"privacy.most_rows is {most_rows}: a device must count as at least 1 row")


def _check_budget(epsilon: float, delta: float, units: int, unit: str) -> None:
    if not (isfinite(epsilon) and epsilon > 0):
        raise UsageError(f"privacy.epsilon is {epsilon}: give a finite number above 0")
    if not 0 < delta < 1:
        raise UsageError(f"privacy.delta is {delta}: give a number above 0 and below 1")
    if delta * units >= 1:
        raise UsageError(
            f"privacy.delta is {delta:g}, too large for {units} {unit}s: "
            f"with 1/{units} or more, publishing one of them would pass for private"
        )


def _check_devices(devices: int, colluding: int, losses: int) -> None:
    for name, number in {"colluding": colluding, "losses": losses}.items():
        if number < 0:
            raise UsageError(f"privacy.{name} is {number}: give a number of devices of at least 0")
    if colluding + losses >= devices:
        raise UsageError(
            f"privacy.colluding {colluding} and privacy.losses {losses} leave none of {devices} devices to add noise: "
            f"together they may be at most {devices - 1}"
        )


def _check_clips(clips: Mapping[str, float]) -> None:
    for name, clip in clips.items():
        if not (isfinite(clip) and clip > 0):
            raise UsageError(f"privacy.{name} is {clip}: give a finite number above 0")
