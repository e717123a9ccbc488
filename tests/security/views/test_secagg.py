"""Views of secure aggregation: masked words say nothing of one device, sums say what sums tell."""

import pytest

from codedfl.scenario import load
from codedfl.security.audit import attack_scenario
from codedfl.task import Problem
from schemes.residues import fleet


@pytest.mark.parametrize("inner", ["conventional", "minibatch", "drop-slowest", "sealed"])
def test_masked_replies_tell_nothing_and_sums_what_sums_tell(inner: str) -> None:
    """In clear, the server reads a device's replies; under masks, its best attack is worse than a guess.

    Where the devices in the sum are others in every epoch, the attack makes nothing of the sums either.
    """
    changes = {
        "scheme": "secagg", "schemes.secagg.inner": inner, "schemes.minibatch.parts": 2, "features.dimension": 40,
        "schemes.sealed.delta": 1e9, "fleet.devices": fleet(*[1e6] * 5), "schemes.drop-slowest.wait_for": 4,
    }  # fmt: skip
    chosen = load("paper-quick").with_settings(changes)
    given_problem = Problem.build(chosen)
    masked, *others = attack_scenario(chosen, given_problem, names=["server-replies"], epochs=8)
    assert (masked.view, masked.score.verdict) == ("masked replies of one device", "holds")
    assert masked.score.relative_error > 1e3
    views = {entry.view: entry for entry in others}
    assert (views["sums over all devices"].score.relative_error < 1.0) == (inner != "drop-slowest")
    clear, *_ = attack_scenario(
        chosen.with_settings({"scheme": inner}), given_problem, names=["server-replies"], epochs=8
    )
    assert clear.score.relative_error < 0.9


def test_masked_matrices_tell_nothing() -> None:
    """Every attack on what devices send is worse than a guess; the sum, scaled, tells what shards have in common."""
    changes = {"scheme": "one-shot", "features.dimension": 30, "fleet.devices": fleet(*[1e6] * 5)}
    chosen = load("paper-quick").with_settings(changes)
    outcomes = attack_scenario(chosen, Problem.build(chosen), epochs=3)
    sent = [entry for entry in outcomes if entry.view in ("one parcel", "one row", "two sealed parcels")]
    sent = [entry for entry in sent if entry.attack != "null"]
    assert len(sent) >= 4
    assert {entry.adversary for entry in sent} == {"server"}
    assert {entry.score.verdict for entry in sent} == {"holds"}
    assert all(e.score.relative_error is None or e.score.relative_error > 10 for e in sent)
    alone = [entry for entry in outcomes if entry.attack == "server-replies" and not entry.assumption]
    assert [entry.asset for entry in alone] == ["membership in the union", "gram"]
    assert {entry.holder for entry in alone} == {"the server"}
    assert alone[0].score.relative_error < 1e-5 < 0.1 < alone[1].score.relative_error < 1
