"""Costs of schemes whose devices differ by their shards only: one device is asked for each shard, not all of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codedfl.network import RoundCosts
from codedfl.schemes.contract import Counted, Round, Scheme
from codedfl.schemes.messages import Work, payloads
from codedfl.task import Shard


def counted_rounds(scheme: Scheme[Any], shards: Sequence[Shard], epochs: int) -> Counted:
    """Count epochs of one round each, whose replies follow from the request, the epoch and the device's shard.

    The server must do no work that is counted. It is a new one in every epoch, so it asks whom it asks at first.
    """
    model = np.zeros((scheme.public.features, scheme.public.outputs))
    devices = {id(shard): scheme.device(device, shard) for device, shard in _distinct(shards)}
    found = []
    for epoch in range(1, epochs + 1):
        question = scheme.server().ask(epoch, model)
        known: dict[tuple[int, int], tuple[int, int, int]] = {}
        rows = []
        for device, request in question.requests.items():
            key = id(shards[device]), id(request)
            if key not in known:
                work = Work()
                reply = devices[key[0]].reply(epoch, request, work)
                down, up = payloads([request, reply])
                known[key] = down, work.macs, up
            rows.append((device, *known[key]))
        found.append([_costs(question, rows)])
    return Counted(found)


def _distinct(shards: Sequence[Shard]) -> list[tuple[int, Shard]]:
    """Return one device for each shard."""
    return list({id(shard): (device, shard) for device, shard in enumerate(shards)}.values())


def _costs(question: Round, rows: Sequence[tuple[int, int, int, int]]) -> RoundCosts:
    """Return costs as a run records them, given device, bits down, operations and bits up of each."""
    asked, down, macs, up = np.array(rows, np.int64).reshape(-1, 4).T.copy()
    deadline = math.inf if question.deadline is None else question.deadline
    quorum = question.quorum if question.standing else min(question.quorum, len(asked))
    return RoundCosts(asked, down, macs, up, quorum, 0, min(question.least, quorum), deadline, question.standing)
