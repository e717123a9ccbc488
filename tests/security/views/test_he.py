"""Views of homomorphic encryption: ciphertexts withstand every attack, and the server reads what it decrypts."""

from functools import cache
from typing import Any

import pytest

from codedfl.cipher.ckks import keys as ckks
from codedfl.scenario import load
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem

needs_tenseal = pytest.mark.skipif(not ckks.installed(), reason="TenSEAL is not installed")


@cache
def attacked(backend: str) -> list[Any]:
    changes = {"features.dimension": 40, "training.learning_rate": 4.0, "training.decay_epochs": []}
    options = {"scheme": "he", "schemes.he": {"backend": backend, "delta": 0.02}}
    scenario = load("paper-quick").with_settings(changes | options)
    return attack_scenario(scenario, Problem.build(scenario), epochs=8)


@needs_tenseal
@pytest.mark.parametrize("backend", ["ckks", "costs"])
def test_every_attack_on_ciphertexts_fails(backend: str) -> None:
    """Where only costs are modelled, on ciphertexts that are made for the attack."""
    outcomes = [
        entry
        for entry in attacked(backend)
        if entry.adversary in ("eavesdropper", "device", "devices") and "from the models" not in entry.assumption
    ]
    expected = {
        "left-kernel",
        "subspace-matching",
        "metzner-kapturowski",
        "single-row",
        "basis-pursuit",
        "column-norms",
    }
    expected |= {"unexplained-norms", "shared-support", "leverage", "decomposition"}
    expected |= {"reused-pad", "forwarding", "null"} if backend == "ckks" else set()
    assert {entry.attack for entry in outcomes} == expected
    assert {entry.score.verdict for entry in outcomes} == {"holds"}


@needs_tenseal
@pytest.mark.parametrize("backend", ["ckks", "costs"])
def test_the_server_learns_a_device_that_replies_alone(backend: str) -> None:
    """Seven epochs of ten outputs are 70 equations for each of 40 rows."""
    (own,) = (entry for entry in attacked(backend) if entry.attack == "server-replies" and not entry.assumption)
    assert own.holder == "the server"
    assert own.score.verdict in ("leaks", "falls")
