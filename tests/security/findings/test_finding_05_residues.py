"""Finding 5, in part: residues outside the field are not refused."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.seals import FIELD_31, FIELD_61
from codedfl.errors import CipherError
from codedfl.schemes import Work
from schemes.residues import carry
from security.findings.hostile import wanted
from tiny import is_one_sentence, placed, problem

GIVEN = problem([9, 8, 7, 6], dtype="float32")


@pytest.mark.parametrize("ring", [FIELD_31, FIELD_61], ids=str)
def test_words_outside_the_field(ring: Any) -> None:
    """Every word of a residue plus p is one that no residue has."""
    inside = np.arange(3, dtype=ring.dtype)
    assert np.array_equal(ring.from_wire(inside), inside)
    with pytest.raises(CipherError, match=r"2 of 4 numbers that were sent are no residues") as error:
        ring.from_wire(np.array([0, ring.modulus, ring.modulus + 1, ring.modulus - 1], ring.dtype))
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("scheme", ["sealed-coded", "coded-padded"])
def test_a_reply_outside_the_field_names_its_device(scheme: str) -> None:
    """Worker 1 adds p to its product."""
    made: Any = schemes.create(wanted(scheme, 4, **{f"schemes.{scheme}.ring": "GF(2^31-1)"}), GIVEN)
    server, devices = placed(made, GIVEN.shards)
    server.combine(1, {k: devices[k].reply(1, {}, Work()) for k in range(4)}, Work())
    question = server.ask(2, np.zeros(GIVEN.shape))
    replies = {k: dict(devices[k].reply(2, request, Work())) for k, request in question.requests.items()}
    first = min(replies)
    replies[first]["product"] = replies[first]["product"] + np.uint32(FIELD_31.modulus)
    with pytest.raises(CipherError, match=f"The reply of device {first} cannot be used: .* no residues") as error:
        server.combine(2, replies, Work())
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("ring", ["GF(2^31-1)", "GF(2^48-59)"])
@pytest.mark.parametrize(("scheme", "option"), [("sealed-coded", "threshold"), ("coded-padded", "alpha")])
def test_a_reply_outside_the_field_is_found_however_few_check_it(scheme: str, option: str, ring: str) -> None:
    """Any K = 2 or 3 of 4 replies suffice; all words of one are the largest, which stand for no residue."""
    made: Any = schemes.create(wanted(scheme, 4, **{f"schemes.{scheme}": {option: 2, "ring": ring}}), GIVEN)
    server, devices = placed(made, GIVEN.shards)
    question = server.ask(2, np.ones(GIVEN.shape))
    replies = {k: dict(devices[k].reply(2, request, Work())) for k, request in question.requests.items()}
    assert server.check(question, replies) == ()
    for liar in replies:
        wrong = {"product": np.full_like(replies[liar]["product"], np.iinfo(replies[liar]["product"].dtype).max)}
        assert server.check(question, replies | {liar: wrong}) == (liar,)


@pytest.mark.parametrize("scheme", ["sealed-coded", "coded-padded"])
def test_a_model_or_parcel_outside_the_field_is_refused(scheme: str) -> None:
    made: Any = schemes.create(wanted(scheme, 4, **{f"schemes.{scheme}.ring": "GF(2^31-1)"}), GIVEN)
    server, devices = placed(made, GIVEN.shards)
    (device, request), *_ = server.ask(2, np.zeros(GIVEN.shape)).requests.items()
    with pytest.raises(CipherError, match=r"The model for device .* no residues"):
        devices[device].reply(2, {"model": request["model"] + np.uint32(FIELD_31.modulus)}, Work())
    new = [made.device(index, shard) for index, shard in enumerate(GIVEN.shards)]
    *keys, first = made.server().set_up()[: 2 if scheme == "sealed-coded" else 1]
    carry(new, [each for stage in keys for each in stage.transfers])
    transfer = next(each for each in first.transfers if each.recipient == 0)
    parcel = dict(new[transfer.sender].export(first.transfers[0].grant | transfer.grant, Work()))
    name = "piece" if "piece" in parcel else "words"
    parcel[name] = parcel[name] | np.uint32(1 << 31)
    with pytest.raises(CipherError, match=r"A parcel of device .* no residues"):
        new[0].absorb_from(transfer.sender, parcel, Work())
