"""Each number that the paper claims beside what is measured here, with a verdict and its reason."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from codedfl.codes.constant_weight import Family
from codedfl.codes.frame_errors import FrameErrorRate
from codedfl.security.estimates.claimed import claimed_level
from codedfl.security.estimates.counting import elimination_bits
from codedfl.security.estimates.known_supports import bits_with_known_positions, levels_after_overlap
from codedfl.security.estimates.parameters import DecodingProblem
from codedfl.training.timing import Band

SCALE = 40
"""On small data computing takes a fortieth of its time at the paper's size, and so do the Deltas."""

REPRODUCED, NOT_REPRODUCED, CANNOT_EXIST = "reproduced", "not reproduced", "cannot exist"
BEYOND = "beyond the paper"
FITTED = "fitted"
NOT_JUDGED = "not judged"
PAPER_LINKS = {
    "parallel": "the paper's links: 5 Mbit/s between devices, each sends and takes one parcel at a time; set-up "
    "charged",
    "shared": "the paper's links, with one channel for all parcels between devices; set-up charged",
}
"""The links between devices in both readings."""
_NEAR = 0.25
"""A speed-up counts as reproduced within this share: the paper names neither its seed nor its epochs to 95%."""
_SMALL = "a small scenario that shows the machinery; the claim is about the paper's size"
_SMALL_DELTA = f"{_SMALL}, where computing takes {SCALE} times as long: the paper's Delta is tried as a fortieth"
_ABOUT = 0.1
"""What "about" may mean, as a share."""
_FLAT = 0.03
"""A best Delta is reproduced if the claimed one costs at most this share of the best speed-up."""


@dataclass(frozen=True)
class Claim:
    """A number of the paper, ours, the range of ours, and the verdict."""

    name: str
    claimed: float | None
    measured: float | None
    low: float | None
    high: float | None
    verdict: str
    reason: str


def speedup(name: str, claimed: float, measured: Band | None, context: str) -> Claim:
    """Judge a speed-up of the time to the last target against mini-batch FL."""
    if measured is None:
        return _not_reached(name, claimed, context)
    gap = measured.mean / claimed - 1
    reason = f"{context}; {abs(gap):.0%} {'above' if gap > 0 else 'below'} the claim"
    verdict = REPRODUCED if abs(gap) <= _NEAR else NOT_REPRODUCED
    return Claim(name, claimed, measured.mean, measured.low, measured.high, verdict, reason)


def not_in_paper(name: str, measured: Band | None, paper: Band | None, how: str, links: str) -> Claim:
    """State a speed-up that the paper does not have, beside that of its own scheme in the same run."""
    if measured is None:
        return _not_reached(name, None, how)
    times = "" if paper is None else f"{measured.mean / paper.mean:.1f} times the paper's scheme in this run; "
    return Claim(name, None, measured.mean, measured.low, measured.high, BEYOND, f"{times}{how}; {links}")


def without_verdict(claim: Claim) -> Claim:
    """Take the verdict off what depends on the size of the data."""
    if claim.name == "gradient-error":
        return claim
    reason = _SMALL_DELTA if claim.name.startswith("best-delta") else _SMALL
    return replace(claim, verdict=NOT_JUDGED, reason=reason)


def _not_reached(name: str, claimed: float | None, context: str) -> Claim:
    reason = f"{context}; the target accuracy is not reached by every feature seed"
    return Claim(name, claimed, None, None, None, NOT_REPRODUCED, reason)


def best_delta(name: str, claimed: float, deltas: Sequence[float], speedups: Sequence[float]) -> Claim:
    """Judge a best Delta: the optimum is flat, so what counts is how much the claimed value loses."""
    best = max(range(len(deltas)), key=lambda number: speedups[number])
    first = last = best
    enough = (1 - _FLAT) * speedups[best]
    while first > 0 and speedups[first - 1] >= enough:
        first -= 1
    while last + 1 < len(deltas) and speedups[last + 1] >= enough:
        last += 1
    near = deltas[first : last + 1]
    loss = 1 - speedups[list(deltas).index(claimed)] / speedups[best]
    verdict = REPRODUCED if claimed in near else NOT_REPRODUCED
    reason = (
        f"the optimum is flat: every Delta from {min(near):g} to {max(near):g} is within {_FLAT:.0%} of the best, "
        f"the claimed one within {loss:.1%}"
    )
    return Claim(name, claimed, deltas[best], min(near), max(near), verdict, reason)


def security_level(name: str, claimed: int, n: int, k: int, t: int, beta: int) -> Claim:
    """Compute a level of Table I by a formula that is fitted to it, so agreement reproduces nothing."""
    level = claimed_level(n, k, t, beta, q_bits=32)
    verdict = FITTED if level == claimed else NOT_REPRODUCED
    reason = (
        "the formula is a fit to Table I, for the paper prints none; it says what is claimed: "
        "the cipher is broken by linear algebra at either level"
    )
    return Claim(name, claimed, level, level, level, verdict, reason)


def level_after_overlap(name: str, claimed: int, n: int, k: int, beta: int, supports: Family) -> Claim:
    """Judge a level of Table I against a device that knows its own support; low and high are over pairs of supports."""
    t = supports.weight
    problem = DecodingProblem(n, k, t, beta, q_bits=32)
    levels = [math.floor(bits_with_known_positions(problem, t, shared)) for shared in supports.overlaps]
    verdict = FITTED if min(levels) >= claimed else NOT_REPRODUCED
    floor = math.floor(elimination_bits(n, k, "k^3"))
    enough = next((entry.known for entry in levels_after_overlap(problem, supports) if entry.level <= floor), None)
    collusion = "" if enough is None else f"; {enough} who collude are left with one elimination, {floor} bits"
    variant = "with length n - t and weight t - overlap - beta" if supports.overlap else "in the shortened code"
    reason = (
        f"two supports share up to {supports.overlap} of {t} positions: by the formula fitted to Table I, "
        f"{variant}, one device that knows its own support is left with {min(levels)} bits"
        f"{collusion}; linear algebra breaks the cipher without knowing any support"
    )
    return Claim(name, claimed, min(levels), min(levels), max(levels), verdict, reason)


def frame_errors(claimed: float, measured: FrameErrorRate) -> Claim:
    """Judge the failure rate of peeling: the claim is reproduced if the interval covers it."""
    verdict = REPRODUCED if measured.low <= claimed <= measured.high else NOT_REPRODUCED
    reason = (
        f"{measured.failures} failures in {measured.trials:,} random sets of {measured.erasures} erasures, "
        "95% Wilson interval; the code is drawn anew, with the paper's length and degrees"
    )
    return Claim("frame-error-rate", claimed, measured.rate, measured.low, measured.high, verdict, reason)


def gradient_error(measured: float, limit: float) -> Claim:
    """Tell how far the decoded gradients are from the plaintext ones; the paper takes them for equal."""
    verdict = REPRODUCED if measured <= limit else NOT_REPRODUCED
    reason = f"largest difference to the plaintext gradient, relative to the first one; wanted: at most {limit:g}"
    return Claim("gradient-error", 0.0, measured, 0.0, measured, verdict, reason)


def overlap(name: str, length: int, weight: int, count: int, found: int, least: int) -> Claim:
    """Judge the claim that the supports meet in at most one position."""
    verdict = REPRODUCED if found <= 1 else CANNOT_EXIST if least > 1 else NOT_REPRODUCED
    must = f"of {count} sets of {weight} among {length} positions, two must share at least {least}"
    reason = f"{must}; ours share at most {found}"
    return Claim(name, 1, found, least, found, verdict, reason)


def transfer_hours(claimed: float, shared: Band, parallel: Band, how: str) -> Claim:
    """Judge that CodedPaddedFL needs more than so many hours just to transfer data."""
    verdict = REPRODUCED if shared.low > claimed else NOT_REPRODUCED
    reason = (
        f'claimed: "more than {claimed:g} hours"; {how}, on one channel that all parcels share; with a link of its own '
        f"for every pair it takes {60 * parallel.mean:.1f} minutes"
    )
    return Claim("codedpadded-transfer-hours", claimed, shared.mean, shared.low, shared.high, verdict, reason)


def public_key(claimed: float, size: int) -> Claim:
    """Judge the size of G, in bytes; "about" is taken as within a tenth."""
    megabytes = size / 1e6
    verdict = REPRODUCED if abs(megabytes / claimed - 1) <= _ABOUT else NOT_REPRODUCED
    reason = f'claimed: "about {claimed:g} MB"; k n numbers of 32 bits are {megabytes:.1f} MB or {size / 2**20:.1f} MiB'
    return Claim("public-key-megabytes", claimed, megabytes, megabytes, megabytes, verdict, reason)


def ordering(ratio: Band | None, context: str) -> Claim:
    """Judge that the higher level takes longer, by the ratio of times to the target."""
    if ratio is None:
        return _not_reached("ordering-by-level", 1, context)
    verdict = REPRODUCED if ratio.mean > 1 else NOT_REPRODUCED
    reason = f'claimed: "a higher security level entails a higher training time", a ratio above 1; {context}'
    return Claim("ordering-by-level", 1, ratio.mean, ratio.low, ratio.high, verdict, reason)


def gain_above(rows: Sequence[Mapping[str, float]], ridge: Sequence[float], context: str) -> Claim:
    """Judge that there is a speed-up at accuracies above the target, too."""
    name, quoted = "gain-above-95", 'claimed: "a significant speed-up for an accuracy level of higher than 95%"'
    if not rows:
        return Claim(name, 1, None, None, None, NOT_REPRODUCED, f"{quoted}; no higher accuracy is reached by all seeds")
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    listed = ", ".join(f"{row['speedup']:.2f} at {row['accuracy']:.1%}" for row in rows)
    limits = f"the ridge limits of the seeds are {min(ridge):.2%} to {max(ridge):.2%}"
    verdict = REPRODUCED if low > 1 else NOT_REPRODUCED
    reason = f"{quoted}; {listed}, the highest that every seed and both schemes reach; {limits}; {context}"
    return Claim(name, 1, rows[-1]["speedup"], low, high, verdict, reason)


def inactivation(rows: Sequence[Mapping[str, Any]], limit: float, gain: str) -> Claim:
    """Judge that inactivation decoding improves the scheme: larger erasure sets at the failure rate of peeling."""
    first = rows[0]
    larger = [row for row in rows if row["inactivation_high"] <= limit or row["inactivation"] == 0]
    last = larger[-1] if larger else first
    stalls = next((row for row in rows if row["peeling"] > 0.5), None)
    verdict = REPRODUCED if last["t_tot"] > first["t_tot"] else NOT_REPRODUCED
    peeling = "" if stalls is None else f"peeling fails on {stalls['peeling']:.0%} of sets of {stalls['t_tot']}, "
    reason = (
        f"{peeling}inactivation on {last['inactivation']:.2g} of {last['trials']:,} sets of {last['t_tot']} (below "
        f"{last['inactivation_high']:.2g}), which allows {last['M']} supports of {last['t']} instead of {first['t']} "
        f"positions, a claimed level of {last['level']} instead of {first['level']} bits; {gain}"
    )
    return Claim("inactivation-improves", first["t_tot"], last["t_tot"], first["t_tot"], last["t_tot"], verdict, reason)


def single_device(shares: Mapping[float, float], context: str) -> Claim:
    """Judge that a small Delta may leave a single device, given by Delta the share of draws where it does."""
    alone = [delta for delta, share in shares.items() if share > 0]
    verdict = REPRODUCED if alone else NOT_REPRODUCED
    listed = ", ".join(f"{share:.0%} of draws at Delta = {delta:g} s" for delta, share in shares.items())
    reason = f'claimed: "if Delta is small, the learning process may end up with a single device"; {listed}; {context}'
    largest = max(alone) if alone else None
    return Claim("single-device-at-end", None, largest, min(alone, default=None), largest, verdict, reason)


def first_epoch_detection(claimed: float, early: Band | None, late: Band | None, context: str) -> Claim:
    """State what finding stragglers in epoch 1 changes."""
    if early is None or late is None:
        return _not_reached("epoch-1-detection", claimed, context)
    verdict = REPRODUCED if abs(early.mean / claimed - 1) <= _NEAR else NOT_REPRODUCED
    reason = (
        f'"the server asks the devices to send the starting time of their computations": stragglers found in epoch 1 '
        f"give {early.mean:.2f}, from epoch 2 on {late.mean:.2f}; {context}"
    )
    return Claim("epoch-1-detection", claimed, early.mean, early.low, early.high, verdict, reason)
