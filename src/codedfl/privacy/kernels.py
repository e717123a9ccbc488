"""Compiled sampler of the discrete Gaussian: integers only, from an array of uniform 64-bit words.

An event of probability n / d is drawn as follows: with q = (2^64 - 1) // d, words from q d on are skipped, and the
event happens if the word is below q n. Every function returns the position of the next word beside its outcome, and
the outcome ``EXHAUSTED`` where words do not suffice.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

NO, YES, EXHAUSTED = 0, 1, -1
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)
_TWO = np.uint64(2)


@njit(cache=True, nogil=True)
def _event(words: NDArray[np.uint64], at: int, threshold: np.uint64, limit: np.uint64) -> tuple[int, int]:
    """An event of probability threshold / limit."""
    while at < words.size:
        word = words[at]
        at += 1
        if word < limit:
            return (YES if word < threshold else NO), at
    return EXHAUSTED, at


@njit(cache=True, nogil=True)
def exponential_event(words: NDArray[np.uint64], at: int, threshold: np.uint64, limit: np.uint64) -> tuple[int, int]:
    """An event of probability exp(-g), g = threshold / limit at most 1.

    Events of probabilities g / 1, g / 2, ... are drawn until one fails: the number of the failure exceeds i with
    probability g^i / i! and is therefore odd with probability exp(-g) (Canonne, Kamath and Steinke, "The discrete
    Gaussian for differential privacy", NeurIPS 2020, algorithm 1).
    """
    number = _ONE
    while True:
        outcome, at = _event(words, at, threshold, limit)
        if outcome == YES and number > _ONE:
            part = _LARGEST // number
            outcome, at = _event(words, at, part, part * number)
        if outcome == EXHAUSTED:
            return EXHAUSTED, at
        if outcome == NO:
            return (YES if number & _ONE else NO), at
        number += _ONE


@njit(cache=True, nogil=True)
def _repeated_event(
    words: NDArray[np.uint64], at: int, threshold: np.uint64, limit: np.uint64, times: int
) -> tuple[int, int]:
    """An event of probability exp(-times threshold / limit)."""
    for _ in range(times):
        outcome, at = exponential_event(words, at, threshold, limit)
        if outcome != YES:
            return outcome, at
    return YES, at


@njit(cache=True, nogil=True)
def _attempt(words: NDArray[np.uint64], at: int, sigma: np.uint64) -> tuple[int, int, int]:
    """One attempt at a sample: its outcome, the sample and the next position.

    Karney, "Sampling exactly from the normal distribution", 2016, algorithm D with an integer sigma and mean zero. The
    sample s (k sigma + j) is accepted with probability proportional to exp(-k/2) exp(-k (k - 1) / 2)
    exp(-k j / sigma) exp(-j^2 / (2 sigma^2)) = exp(-(k sigma + j)^2 / (2 sigma^2)).
    """
    half = _LARGEST // _TWO
    k = 0
    while True:
        outcome, at = exponential_event(words, at, half, half * _TWO)
        if outcome == EXHAUSTED:
            return EXHAUSTED, 0, at
        if outcome == NO:
            break
        k += 1
    outcome, at = _repeated_event(words, at, half, half * _TWO, k * (k - 1))
    if outcome != YES:
        return outcome, 0, at
    # j and the sign from one number below 2 sigma
    part = _LARGEST // (_TWO * sigma)
    while at < words.size and words[at] >= part * _TWO * sigma:
        at += 1
    if at >= words.size:
        return EXHAUSTED, 0, at
    number = words[at] // part
    at += 1
    j, negative = number // _TWO, number % _TWO == _ONE
    if negative and k == 0 and j == 0:  # zero has no second sign
        return NO, 0, at
    part = _LARGEST // (_TWO * sigma * sigma)
    outcome, at = exponential_event(words, at, part * j * j, part * _TWO * sigma * sigma)
    if outcome != YES:
        return outcome, 0, at
    part = _LARGEST // sigma
    outcome, at = _repeated_event(words, at, part * j, part * sigma, k)
    magnitude = k * int(sigma) + int(j)
    return outcome, (-magnitude if negative else magnitude), at


@njit(cache=True, nogil=True)
def fill(words: NDArray[np.uint64], sigma: np.uint64, samples: NDArray[np.int64]) -> tuple[int, int]:
    """Fill ``samples`` as far as the words suffice; return how many are filled and how many words they used."""
    at, filled, used = 0, 0, 0
    while filled < samples.size:
        outcome, sample, at = _attempt(words, at, sigma)
        if outcome == EXHAUSTED:
            break
        used = at
        if outcome == YES:
            samples[filled] = sample
            filled += 1
    return filled, used
