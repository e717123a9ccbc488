"""The key agreement of simulations: laws, secrets that do not follow from what is sent, and where it is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.cipher.masks.pairwise import KEY_BYTES, AgreementKey
from codedfl.cipher.masks.simulated import SimulatedAgreement
from codedfl.errors import CipherError
from codedfl.schemes import Public
from tiny import is_one_sentence

secrets = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)


@given(secrets, secrets, st.text(max_size=20), st.text(max_size=20))
def test_both_ends_agree_for_each_purpose(first: bytes, second: bytes, purpose: str, other: str) -> None:
    keys = SimulatedAgreement()
    a, b = keys(first), keys(second)
    agreed = a.agree(b.public, purpose)
    assert agreed == b.agree(a.public, purpose)
    assert len(agreed) == len(a.public) == KEY_BYTES
    assert (agreed == a.agree(b.public, other)) == (purpose == other)
    assert (a.public == b.public) == (first == second)
    assert keys(a.secret).public == a.public


def test_secrets_do_not_follow_from_what_is_sent() -> None:
    """The same keys in another simulation give other secrets: what is sent does not determine them."""
    one, two = SimulatedAgreement(), SimulatedAgreement()
    public = one().public
    assert one(bytes(32)).agree(public, "mask") != two(bytes(32)).agree(public, "mask")
    assert one(bytes(32)).public != two(bytes(32)).public


def test_keys_are_fresh_and_never_shown() -> None:
    keys = SimulatedAgreement()
    drawn = [keys() for _ in range(4)]
    assert len({key.public for key in drawn}) == len({key.secret for key in drawn}) == 4
    assert repr(drawn[0]) == "SimulatedKey(secret)"
    assert repr(keys) == "SimulatedAgreement()"


@pytest.mark.parametrize("make", [AgreementKey, SimulatedAgreement()], ids=["X25519", "simulated"])
def test_keys_of_other_lengths_are_refused(make: type[AgreementKey] | SimulatedAgreement) -> None:
    for refused in (lambda: make(bytes(31)), lambda: make().agree(bytes(31), "mask")):
        with pytest.raises(CipherError) as error:
            refused()
        assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("real", [{"signed": True}, {"nonces": (b"1", b"2")}, {"announced": {}}])
def test_facts_of_real_sites_refuse_it(real: dict[str, object]) -> None:
    """Sites make their facts with X25519, and nothing can put the simulated agreement in its place."""
    facts = {"samples": (3, 4), "features": 2, "outputs": 1, "dtype": np.dtype("float32"), **real}
    assert Public(**facts).agreement is AgreementKey  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="real sites"):
        Public(**facts, agreement=SimulatedAgreement())  # type: ignore[arg-type]
