"""Views of the sealed schemes: seals withstand every attack, and the server learns what the scheme says it learns."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.scenario import Scenario, load
from codedfl.security.audit import attack_scenario, exposures
from codedfl.security.views.kinds import RepliesView
from codedfl.task import Problem
from schemes.residues import wanted
from tiny import problem

SEALED = ("sealed", "sealed-coded", "coded-padded")
DEVICES = EPOCHS = 6


@cache
def shared() -> Problem:
    return problem([4, 7, 1, 5, 9, 3], features=8, outputs=2)


def padded(alpha: int) -> Scenario:
    return wanted("coded-padded", {"schemes.coded-padded": {"alpha": alpha}, "training.epochs": EPOCHS})


@cache
def digits(features: int, epochs: int) -> tuple[Scenario, Problem]:
    """The quick preset with fewer features, and a rate that is stable for them."""
    training = {"training.epochs": epochs, "training.learning_rate": 4.0, "training.decay_epochs": []}
    chosen = load("paper-quick").with_settings({"features.dimension": features, **training})
    return chosen, Problem.build(chosen)


@cache
def attacked(name: str) -> list[Any]:
    chosen, given = digits(60, 30)
    changes = {"scheme": name, "schemes.sealed": {"delta": 0.02}}
    return [
        outcome
        for outcome in attack_scenario(chosen.with_settings(changes), given, epochs=30)
        if outcome.assumption != "with the true matrix"  # who is in, told by the truth: a yardstick, no attack
    ]


@pytest.mark.parametrize("name", SEALED)
def test_every_attack_on_what_devices_and_eavesdroppers_see_fails(name: str) -> None:
    seen = [outcome for outcome in attacked(name) if outcome.adversary in ("eavesdropper", "device", "devices")]
    outcomes = [outcome for outcome in seen if "from the models" not in outcome.assumption]
    expected = {
        "left-kernel",
        "subspace-matching",
        "metzner-kapturowski",
        "single-row",
        "basis-pursuit",
        "column-norms",
    }
    expected |= {"unexplained-norms", "shared-support", "reused-pad", "leverage", "decomposition", "null"}
    assert {outcome.attack for outcome in outcomes} == expected | ({"forwarding"} if name == "sealed" else set())
    assert {(outcome.attack, outcome.score.verdict) for outcome in outcomes} == {
        (outcome.attack, "holds") for outcome in outcomes
    }


def test_the_server_of_sealed_sharing_learns_a_device_that_replies_alone() -> None:
    """As its leakage says: a device that never received replies with products of its own data.

    Thirty epochs of ten outputs are 300 equations for each of 60 rows, so that nothing is left to guess.
    """
    (outcome,) = (entry for entry in attacked("sealed") if entry.attack == "server-replies" and not entry.assumption)
    assert outcome.holder == "the server"
    assert outcome.score.verdict == "falls"
    assert "its own data until it receives" in schemes.create(wanted("sealed"), problem([5] * 6)).leakage().server


@pytest.mark.parametrize("name", SEALED)
def test_models_tell_all_others_together_what_replies_tell_the_server(name: str) -> None:
    """No seal helps against that, and the words of the scheme say so."""
    found = [entry for entry in attacked(name) if "from the models" in entry.assumption]
    (outcome,) = (entry for entry in found if entry.asset == "gradient")
    assert outcome.score.verdict in ("leaks", "falls")
    assert {entry.adversary for entry in found} == {"devices"}
    assert "if all others collude" in schemes.create(wanted(name), problem([5] * 6)).leakage().devices


def test_a_server_that_reads_what_it_relays_has_the_data() -> None:
    """It made the pads: parcels of coded-padded must be encrypted from device to device, as the words say."""
    found = {outcome.assumption: outcome for outcome in attacked("coded-padded") if outcome.attack == "left-kernel"}
    assert found[""].score.verdict == "holds"
    assert found["a server that reads the parcel it relays, and knows its pad"].score.verdict == "falls"
    words = schemes.create(wanted("coded-padded"), problem([5] * 6)).leakage().server
    assert "unless the parcels that it relays are encrypted end to end" in words


def test_the_server_of_sealed_coded_learns_the_sum_and_no_more() -> None:
    """Its attack ends at the share of the sum that is public, which is no better a guess of one device's data.

    The sum is what 200 epochs of any exact scheme tell in principle. The attack fits it from residues, so it may miss
    it by the rounding of the data: N/2 steps an entry.
    """
    chosen, given = digits(60, 30)
    found = [outcome for outcome in attacked("sealed-coded") if outcome.attack == "server-replies"]
    whole, outcome = (entry for entry in found if not entry.assumption)
    assert (whole.asset, outcome.asset) == ("membership in the union", "gram")
    scheme: Any = schemes.create(chosen.with_settings({"scheme": "sealed-coded"}), given)
    truth = given.shards[outcome.device].gram.astype(float)
    share = given.shards[outcome.device].samples / given.samples
    total = share * sum(shard.gram.astype(float) for shard in given.shards)
    rounding = share * len(given.shards) / 2 * scheme.formats.gram.data_step * len(truth)  # Frobenius: d entries a row
    assert whole.score.relative_error <= 2 * rounding / np.linalg.norm(total)
    best = np.linalg.norm(total - truth) / np.linalg.norm(truth)
    assert best > 0.1, "the data of one device are far from the share of the sum"
    assert outcome.score.relative_error >= best - 2 * rounding / np.linalg.norm(truth)
    assert outcome.score.verdict != "falls"


@pytest.mark.parametrize("alpha", [1, 2, 4, 6])
def test_the_best_guess_of_the_server_is_what_the_code_lets_it_see(alpha: int) -> None:
    """Weights by the pseudo-inverse of the signed coefficients: all on one device, or evenly on all at the ends.

    The weights are right to 1e-12 for so few and small coefficients; sums of 6 * 8 products round to 2^-52 of them.
    """
    seen = [entry for entry in exposures(padded(alpha), shared(), EPOCHS) if type(entry.view) is RepliesView]
    (guess,) = (
        entry for entry in seen if entry.assumption in (("",), ("all coded replies together, at best",))[alpha > 1]
    )
    scheme: Any = schemes.create(padded(alpha), shared())
    signed = np.array(
        [[b - (b > scheme.code.prime // 2) * scheme.code.prime for b in row] for row in scheme.code.matrix]
    )
    weights = (np.linalg.pinv(signed.astype(float)) @ signed)[guess.subject]
    if alpha in (1, DEVICES):
        np.testing.assert_allclose(weights, np.eye(DEVICES)[guess.subject] if alpha == 1 else 1 / DEVICES, atol=1e-12)
    step = scheme.formats.gram.data_step
    rounded = [np.rint(shard.gram / step) * step for shard in shared().shards]
    expected = sum(weight * matrix for weight, matrix in zip(weights, rounded, strict=True)) @ guess.view.models
    size = sum(abs(matrix) for matrix in rounded) @ abs(guess.view.models)
    assert np.all(abs(guess.view.replies - expected) <= (1e-12 + 48 * 2**-52) * size)
