"""Finding 2: the server dictates the threshold of secure aggregation: t is computed from the number it says it asked.

Mask keys are not authenticated, devices can be told different survivors, and a refused request spoils the sum.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.masks.pairwise import AgreementKey, open_envelope
from codedfl.cipher.masks.shamir import SecretSharing
from codedfl.cipher.seals import Z_64
from codedfl.errors import CipherError
from codedfl.schemes import Message, Work
from codedfl.schemes.aggregated.device import form_message, number_form
from codedfl.schemes.aggregated.server import MaskedSum, Threshold, add_masks, number_of
from codedfl.schemes.sealing import summed
from fleets import fleet
from security.findings.hostile import HostileServer, attempt, wanted
from tiny import problem

GIVEN = problem([9, 8, 7, 6, 5, 4])
MODEL = np.random.default_rng(1).standard_normal(GIVEN.shape)
BITS = 40


def gradient(devices: Sequence[int]) -> np.ndarray:
    return np.asarray(sum(GIVEN.shards[k].gram @ MODEL - GIVEN.shards[k].moments for k in devices))


def begun(devices: Sequence[int], threshold: Threshold) -> MaskedSum:
    """A sum over devices that the server chooses, at the model of an epoch."""
    request = {"model": MODEL, **form_message(BITS)}
    return MaskedSum(2, dict.fromkeys(devices, request), threshold, Z_64, awaited=len(devices), needed=0)


def masked(hostile: HostileServer, server: MaskedSum, rounds: int = 3) -> dict[int, Message]:
    """The replies to the first rounds of a sum, as the protocol has them; by default up to the masked replies."""
    question, replies = server.begin(), {}
    for number in range(rounds):
        replies = hostile.ask(2, question.requests)
        question = server.follow_up(replies) if number + 1 < rounds else question  # type: ignore[assignment]
    return replies


def test_the_server_says_that_it_asked_two() -> None:
    """Of six devices t is 4; the sum over two that the server names alone is opened by two."""
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("secagg", 6))

        def attack() -> np.ndarray:
            server = begun((0, 1), Threshold())
            server._signed = hostile.session.public.signed
            server.follow_up(masked(hostile, server))
            message = {"survivors": np.array([0, 1], np.int32), "dropped": np.array([], np.int32)}
            shares = hostile.ask(2, dict.fromkeys((0, 1), message))
            return number_form(BITS, 2).decode_sum(server.opened(shares, Work())["gradient"])

        error, refusal = attempt(attack, gradient((0, 1)))
    assert error == np.inf, f"read the sum of two gradients to {error:.0e} where four devices are agreed"
    assert "told of 2 keys, fewer than the threshold of 4" in refusal


def test_keys_of_the_server_in_the_place_of_a_device() -> None:
    """The server swaps the keys of device 1 for its own, and opens the envelope that device 0 closes for it."""
    own = AgreementKey(), AgreementKey()
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("secagg", 6))

        def attack() -> np.ndarray:
            server = begun(range(6), Threshold())
            server._signed = hostile.session.public.signed
            question = server.follow_up(hostile.ask(2, server.begin().requests))
            assert question is not None
            request = dict(question.requests[0])
            request["keys"] = request["keys"].copy()
            victim = request["keys"][0, 0].tobytes()
            request["keys"][1] = [np.frombuffer(key.public, np.uint8) for key in own]
            envelope = hostile.ask(2, {0: request})[0]["envelopes"][0].tobytes()
            address = b"".join(number.to_bytes(8, "big") for number in (2, 0, 1))
            opened = open_envelope(own[0].agree(victim, "envelope"), envelope, address)
            return np.array([len(opened)], float)

        error, refusal = attempt(attack, np.array([72.0]))
    assert error == np.inf, "read shares of the secrets of device 0, 72 bytes that are for device 1"
    assert "keys of device 1 are not signed by its pinned key" in refusal


def test_devices_are_told_different_survivors() -> None:
    """Six devices, t = 4: every device is told of four survivors, and the sum over three of them is opened.

    Each of devices 3, 4 and 5 is named as dropped to four devices, so that its mask key can be joined, and devices 0, 1
    and 2 are survivors in all lists.
    """
    few, away = (0, 1, 2), (3, 4, 5)
    told = {0: (3, 4), 3: (3, 4), 1: (3, 5), 4: (3, 5), 2: (4, 5), 5: (4, 5)}
    with fleet(GIVEN) as sites:
        hostile = HostileServer(sites, wanted("secagg", 6))

        def attack() -> np.ndarray:
            server = begun(range(6), Threshold())
            server._signed = hostile.session.public.signed
            replies = masked(hostile, server)
            shares = hostile.ask(2, {device: lists(gone) for device, gone in told.items()})
            server._masked = {device: replies[device] for device in few}
            totals = {"gradient": summed(Z_64, [replies[device]["gradient"] for device in few])}
            for device in range(6):
                helpers = [each for each in sorted(told) if device in few or device in told[each]][:4]
                rows = np.stack([shares[each]["shares"][device : device + 1] for each in helpers])
                (secret,) = SecretSharing(4).join([number_of(each) for each in helpers], rows)
                if device in few:
                    add_masks(Z_64, 2, totals, secret, Work(), minus=True)
                else:
                    server._remove_pairs(totals, device, secret, Work())
            return number_form(BITS, 3).decode_sum(totals["gradient"])

        def lists(gone: Sequence[int]) -> Mapping[str, np.ndarray]:
            stay = [device for device in range(6) if device not in gone]
            return {"survivors": np.array(stay, np.int32), "dropped": np.array(gone, np.int32)}

        error, refusal = attempt(attack, gradient(few))
    assert away == tuple(sorted({device for gone in told.values() for device in gone}))
    assert error == np.inf, f"read the sum of three gradients to {error:.0e} where four devices are agreed"
    assert "refused" in refusal or "signed this list" in refusal


def test_a_refused_request_changes_nothing() -> None:
    """After keys of too few devices, the proper keys are accepted."""
    scheme = schemes.create(wanted("secagg", 6), GIVEN)
    devices = [scheme.device(index, shard) for index, shard in enumerate(GIVEN.shards)]
    server = begun(range(6), Threshold())
    keys = {k: devices[k].reply(2, request, Work()) for k, request in server.begin().requests.items()}
    question = server.follow_up(keys)
    assert question is not None
    request = question.requests[0]
    few = {"members": request["members"][:2], "keys": request["keys"][:2]}
    with pytest.raises(CipherError, match="told of 2 keys"):
        devices[0].reply(2, few, Work())
    assert devices[0].reply(2, request, Work())["envelopes"].shape[0] == 5
