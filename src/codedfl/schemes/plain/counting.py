"""Costs of schemes whose devices differ by their shards only: one device is asked for each shard, not all of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from codedfl.network import RoundCosts
from codedfl.schemes.contract import CountedCosts, Round, Scheme
from codedfl.schemes.messages import Work, payloads
from codedfl.task import Shard


def counted_rounds(scheme: Scheme[Any], shards: Sequence[Shard], epochs: int) -> CountedCosts:
    """Count epochs of one round each with one request to all, whose replies follow from it, the epoch and the shard.

    The server must do no work that is counted, and await no more replies than it asks for. It is a new one in every
    epoch, so it asks whom it asks at first.
    """
    model = np.zeros((scheme.public.features, scheme.public.outputs))
    kinds = {id(shard): kind for kind, (_, shard) in enumerate(_distinct(shards))}
    devices = [scheme.device(device, shard) for device, shard in _distinct(shards)]
    kind_of = np.array([kinds[id(shard)] for shard in shards])
    found = []
    for epoch in range(1, epochs + 1):
        question = scheme.server().ask(epoch, model)
        asked = np.fromiter(question.requests, np.int64, len(question.requests))
        (request,) = {id(each): each for each in question.requests.values()}.values()
        table = np.zeros((len(devices), 3), np.int64)
        for kind in np.unique(kind_of[asked]).tolist():
            work = Work()
            reply = devices[kind].reply(epoch, request, work)
            down, up = payloads([request, reply])
            table[kind] = down, work.macs, up
        found.append([_costs(question, asked, *table[kind_of[asked]].T.copy())])
    return CountedCosts(found)


def _distinct(shards: Sequence[Shard]) -> list[tuple[int, Shard]]:
    """Return one device for each shard."""
    return list({id(shard): (device, shard) for device, shard in enumerate(shards)}.values())


def _costs(
    question: Round,
    asked: Int[np.ndarray, "n"],
    down: Int[np.ndarray, "n"],
    macs: Int[np.ndarray, "n"],
    up: Int[np.ndarray, "n"],
) -> RoundCosts:
    """Return costs as a run records them."""
    deadline = math.inf if question.deadline is None else question.deadline
    return RoundCosts(asked, down, macs, up, question.quorum, 0, question.least, deadline, question.standing)
