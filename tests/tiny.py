"""What tests share beside ``codedfl.testing.small``: what is owed by schemes that compute with residues."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from codedfl import schemes
from codedfl.schemes import Message, Round, Scheme
from codedfl.schemes.aggregated.one_shot import OneShot
from codedfl.schemes.aggregated.secagg import SecAgg
from codedfl.schemes.coded.coded_padded import CodedPadded
from codedfl.schemes.coded.sealed_coded import SealedCoded
from codedfl.schemes.sharing.he import Encrypted
from codedfl.schemes.sharing.sealed import Sealed
from codedfl.task import Shard
from codedfl.testing.small import (
    PAPER_FLEET,
    Seen,
    conversed,
    gamma,
    is_one_sentence,
    placed,
    plain_gradient,
    problem,
    scenario,
    spied,
    trained,
)
from codedfl.training import State

__all__ = [
    "PAPER_FLEET",
    "SEALED",
    "Seen",
    "conversed",
    "gamma",
    "is_one_sentence",
    "known",
    "moved",
    "placed",
    "plain_gradient",
    "problem",
    "promised_gradient",
    "proper",
    "scenario",
    "shares",
    "spied",
    "trained",
]

SEALED = (Sealed, SealedCoded, CodedPadded, Encrypted)
"""Schemes that compute with residues: all they send is unsigned integers."""


def proper(question: Round) -> list[Message]:
    """The requests of a round that asks for masked replies; none if it asks for anything else."""
    return [request for request in question.requests.values() if "envelopes" in request]


def promised_gradient(
    scheme: Scheme[Any], shards: Sequence[Shard], seen: "Sequence[Seen]"
) -> tuple[np.ndarray, np.ndarray]:
    """The plaintext gradient that an exact scheme owes in the last of these epochs, and how far it may be from it.

    Where residues are computed with, it is owed at the point of the round, in float64. Every device rounds its data to
    half a step: N/2 steps of the Gram matrix for each unit of ||theta_k||_1, and N/2 steps of the moments. In every
    epoch so far the server added to its point and to the product there in float64. Each of the two roundings moves the
    product by at most u ||theta_k||_1 S, with S the bound on entries of the summed Gram matrix.

    Where a secure sum is opened, each device rounds its reply to half a step of the question; where sums are opened
    once, its data.
    """
    if isinstance(scheme, SecAgg):
        value, bound = promised_gradient(scheme.inner, shards, seen)
        forms = {int(request.get("form", 0)) for asked, _ in seen[-1].questions for request in proper(asked)}
        step = 0.0 if isinstance(scheme.inner, SEALED) else 2.0 ** -forms.pop()
        return value, bound + len(shards) / 2 * step / sum(shard.samples for shard in shards)
    if isinstance(scheme, OneShot):
        value, bound = plain_gradient(shards, seen[-1].model)
        steps = scheme.formats.gram.data_step * np.abs(seen[-1].model).sum(axis=0) + scheme.formats.moments.data_step
        return value, bound + len(shards) / 2 * steps / sum(shard.samples for shard in shards)
    if not isinstance(scheme, SEALED):
        return plain_gradient(shards, seen[-1].model)
    points = [np.asarray(epoch.round.point) for epoch in seen if epoch.round.point is not None]
    assert len(points) == len(seen)
    point = points[-1]
    _, rounding = plain_gradient(shards, point)
    parts = [(shard.x.astype(float), shard.y.astype(float)) for shard in shards]
    samples = sum(len(x) for x, _ in parts)
    value = sum(x.T @ (x @ point - y) for x, y in parts) / samples
    form, moments = scheme.formats.gram, scheme.formats.moments
    steps = len(shards) / 2 * (form.data_step * np.abs(point).sum(axis=0) + moments.data_step)
    kept = gamma(2, np.float64) * form.sum_bound * sum(np.abs(earlier).sum(axis=0) for earlier in points)
    return value, rounding + (steps + kept) / samples


def known(name: str) -> Scheme[Any]:
    """A scheme with its default options on the paper's fleet, to be asked what it promises."""
    return schemes.nominal(scenario({"scheme": name}))


def shares(name: str) -> bool:
    """Whether the devices of a scheme hand data over."""
    return known(name).sharing is not None


def moved(state: State) -> list[tuple[int, int, int | None]]:
    """Sender, recipient and support of every hand-over."""
    return [(sender, to, None if support < 0 else support) for _, sender, to, support in state.server["moved"].tolist()]
