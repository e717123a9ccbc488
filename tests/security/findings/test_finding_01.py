"""Finding 1: a site never checks who is in the sum.

With the victim and one invented device as the fleet, `one-shot` gives the victim's Gram matrix exactly. In
`sealed-coded`, asking only the victim to seal and then sending the identity as "model" gives it to 1e-6. In `secagg`
round `sealed`, an unmasked question to one device gives it to 2e-7. Devices join any number of sums in an epoch: all
five, then four, gives one gradient to 2e-13; a resume that asks an epoch again with a device missing would do the same.
"""

import numpy as np

from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import LocalData, Site
from codedfl.schemes import Work
from fleets import CLASSES, fleet
from security.findings.hostile import HostileServer, attempt, wanted
from tiny import problem

GIVEN = problem([9, 8, 7, 6, 5])
VICTIM = GIVEN.shards[0]


def test_the_victim_and_one_invented_device_as_the_fleet() -> None:
    """Its data are the server's own, so that the sum less these is the victim's."""
    invented = GIVEN.shards[1]
    local_data = LocalData(invented, GIVEN.kind, CLASSES[: GIVEN.shape[1]])
    with fleet(GIVEN) as sites:
        other = Site("device-9", lambda _: local_data, DeviceKey(), None)
        sites.carrier.attach("device-9", DeviceHost(other, sites.carrier.peers("device-9")))

        def attack() -> np.ndarray:
            hostile = HostileServer(sites, wanted("one-shot", 2), ("device-1", "device-9"))
            server = hostile.scheme.server()
            hostile.sum_over(server, 1, np.zeros(GIVEN.shape), (0, 1))
            return np.asarray(server.totals()[0] - invented.gram)

        error, refusal = attempt(attack, VICTIM.gram)
    assert error == np.inf, f"read the Gram matrix of the victim to {error:.0e}"
    assert refusal


def test_only_the_victim_seals_and_the_model_is_the_identity() -> None:
    """The honest set-up with the pieces of one device alone; workers then hold its sealed matrix, coded."""
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("sealed-coded", 5, **{"schemes.sealed-coded": {"threshold": 2}}))
        scheme, server = hostile.scheme, hostile.scheme.server()

        def attack() -> np.ndarray:
            keys, pieces, blocks, parts = (stage.transfers for stage in server.set_up())
            sealed = [transfer for transfer in pieces if transfer.sender == 0]
            hostile.carry(keys)
            hostile.carry(sealed)
            hostile.carry(blocks)
            hostile.carry(parts)
            server.add_pads([sealed[0].grant])
            ring = scheme.formats.ring
            identity = np.eye(GIVEN.shape[0]).astype(ring.dtype)
            asked = {worker: {"model": ring.to_wire(identity)} for worker in sorted(scheme.workers.chosen)}
            opened = server.opened(identity, hostile.ask(2, asked), Work())
            return np.asarray(ring.centred(opened) * scheme.formats.gram.data_step)

        error, refusal = attempt(attack, VICTIM.gram)
    assert error == np.inf, f"read the Gram matrix of the victim to {error:.0e}"
    assert "no sealed piece of device" in refusal


def test_a_model_of_another_shape_is_refused() -> None:
    """The identity instead of c columns, after an honest set-up, would read the sum of all Gram matrices at once."""
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("sealed-coded", 5, **{"schemes.sealed-coded": {"threshold": 2}}))
        scheme, server = hostile.scheme, hostile.scheme.server()
        for stage in server.set_up():
            hostile.carry(stage.transfers)

        def attack() -> np.ndarray:
            ring = scheme.formats.ring
            identity = np.eye(GIVEN.shape[0]).astype(ring.dtype)
            asked = {worker: {"model": ring.to_wire(identity)} for worker in sorted(scheme.workers.chosen)}
            opened = server.opened(identity, hostile.ask(2, asked), Work())
            return np.asarray(ring.centred(opened) * scheme.formats.gram.data_step)

        error, refusal = attempt(attack, sum(shard.gram for shard in GIVEN.shards))
    assert error == np.inf, f"read the sum of all Gram matrices to {error:.0e} in one epoch"
    assert "shape" in refusal


def test_an_unmasked_question_to_one_device() -> None:
    """Unit vectors as models, c of them in an epoch, read the Gram matrix row by row."""
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("secagg", 5, **{"schemes.secagg.inner": "sealed"}))
        form = hostile.scheme.inner.formats.gram

        def attack() -> np.ndarray:
            d, c = GIVEN.shape
            rows = []
            for epoch, first in enumerate(range(0, d, c), start=2):
                model = np.eye(d)[first : first + c].astype(form.ring.dtype)
                rows.append(form.ring.centred(hostile.ask(epoch, {0: {"model": model}})[0]["product"]))
            return np.concatenate(rows) * form.data_step

        error, refusal = attempt(attack, VICTIM.gram)
    assert error == np.inf, f"read the Gram matrix of the victim to {error:.0e}"
    assert "without masks" in refusal


def test_all_five_then_four() -> None:
    """Two sums in one epoch; their difference is the gradient of the fifth device."""
    model = np.random.default_rng(1).standard_normal(GIVEN.shape)
    last = GIVEN.shards[4]
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("secagg", 5))

        def attack() -> np.ndarray:
            server = hostile.scheme.server()
            everyone = hostile.sum_over(server, 2, model, range(5))
            return np.asarray(everyone - hostile.sum_over(server, 2, model, range(4)))

        error, refusal = attempt(attack, last.gram @ model - last.moments)
    assert error == np.inf, f"read the gradient of one device to {error:.0e}"
    assert "one sum per epoch" in refusal


def test_gram_matrices_are_summed_once() -> None:
    """`one-shot` in a later epoch with a device less."""
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("one-shot", 5))

        def attack() -> np.ndarray:
            found = []
            for epoch, members in ((1, range(5)), (2, range(4))):
                server = hostile.scheme.server()
                hostile.sum_over(server, epoch, np.zeros(GIVEN.shape), members)
                points = [shard.samples for shard in GIVEN.shards]
                found.append(server.totals()[0] * sum(points[device] for device in members) / sum(points))
            return np.asarray(found[0] - found[1])

        error, refusal = attempt(attack, GIVEN.shards[4].gram)
    assert error == np.inf, f"read the Gram matrix of one device to {error:.0e}"
    assert "one sum only" in refusal
