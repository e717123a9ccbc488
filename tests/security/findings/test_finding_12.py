"""Finding 12: one worker's wrong reply.

"About a quarter of lies pass silently and the gradient is off a hundredfold; the rest end the run and name nobody. With
all W replies the liar can be named every time."
"""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes.messages import Message, Work
from codedfl.task.objective import PublicObjective
from codedfl.training import State, train
from tiny import problem, scenario

SIZES = [9, 6, 8, 7, 5, 6]
LIES = 24
EPOCH = 4
LIAR = 0


def chosen(scheme: str) -> Scenario:
    """Six devices, of whose replies two are enough; the liar is the fastest, so that its reply is used."""
    options = {"workers": 6, "threshold": 2} if scheme == "sealed-coded" else {"alpha": 5}
    speeds = [{"count": 1, "mac_rate": 1e7}, {"count": 5, "mac_rate": 1e3}]
    fleet = {"fleet.devices": speeds, "training.epochs": 6}
    return scenario({"scheme": scheme, f"schemes.{scheme}": options, **fleet})


def trained(wanted: Scenario, lie: int | None) -> State:
    """Train; in one epoch the liar changes one number of its reply, each ``lie`` to another one."""
    given = problem(SIZES, dtype="float32")
    scheme: Any = schemes.create(wanted, given)
    devices: list[Any] = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    honest, field = devices[LIAR].reply, scheme.formats.field

    def reply(epoch: int, request: Message, work: Work) -> Message:
        message = honest(epoch, request, work)
        if lie is None or epoch != EPOCH:
            return message
        rng, product = np.random.default_rng(lie), field.from_wire(message["product"]).copy()
        product.flat[rng.integers(product.size)] = rng.integers(field.modulus)
        return {"product": field.to_wire(product)}

    devices[LIAR].reply = reply
    delays, timing = DelayModel.create(wanted.fleet, wanted.links), wanted.timing
    engine = VirtualEngine(devices, delays, seed=timing.seed, draw=timing.draw)
    # as a server of real sites, which has no data to hold gradients against
    objective = PublicObjective(
        samples=given.samples, shape=given.shape, dtype=given.dtype, ridge=given.ridge, kind=given.kind
    )
    return train(objective, wanted, scheme, engine, State.fresh(objective))


@pytest.mark.parametrize("scheme", ["sealed-coded", "coded-padded"])
def test_no_lie_passes_and_the_liar_is_named_every_time(scheme: str) -> None:
    wanted = chosen(scheme)
    honest = trained(wanted, None)
    for lie in range(LIES):
        state = trained(wanted, lie)
        assert state.model.tobytes() == honest.model.tobytes(), f"lie {lie} passed silently"
        assert {found.device for found in state.lies} == {LIAR}, f"nobody was named for lie {lie}"
    assert honest.lies == []
