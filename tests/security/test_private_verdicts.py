"""Verdict tables and statements where devices add noise."""

from typing import Any

import pytest

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.privacy.promise import KNOWN_SEED
from codedfl.runs.sums import leakage_table
from codedfl.scenario import Scenario, load
from codedfl.schemes.private import with_release
from codedfl.security.audit import statement
from codedfl.security.verdicts import secrecy_rank

OWN, UNION = "membership of a device", "membership in the union"


def noisy(scheme: str, **privacy: Any) -> Scenario:
    chosen = {f"privacy.{key}": value for key, value in {"epsilon": 1.0, **privacy}.items()}
    return load("paper").with_settings({"scheme": scheme, **chosen})


def cells(wanted: Scenario) -> dict[tuple[str, str], Any]:
    return {(cell.adversary, cell.asset): cell for cell in statement(wanted).secrecy}


@pytest.mark.parametrize("scheme", ["one-shot", "sealed-coded", "secagg"])
def test_noise_bounds_membership_for_those_who_see_sums_only(scheme: str) -> None:
    found = cells(noisy(scheme))
    for adversary in ("server", "deviating server", "model reader"):
        for asset in (OWN, UNION):
            assert found[adversary, asset].verdict == "bounded"
            assert "(1.00, 1e-05)-differentially private for one record" in found[adversary, asset].reason
            assert "no noise is added" not in found[adversary, asset].reason


def test_what_is_proven_stays_proven_and_a_gram_matrix_is_not_bounded_by_noise_for_records() -> None:
    plain = {(c.adversary, c.asset): c.verdict for c in schemes.nominal(noisy("secagg")).secrecy()}
    found = cells(noisy("secagg", colluding=24))
    proven = [key for key, verdict in plain.items() if verdict == "proven"]
    assert ("server", "gram") in proven
    assert {found[key].verdict for key in proven} == {"proven"}
    assert found["devices", OWN].verdict == "bounded"
    assert found["devices", "gram"].verdict == "leaks"
    assert "hides single records" in found["devices", "gram"].reason


def test_noise_for_devices_bounds_their_gram_matrices_and_gradients_too() -> None:
    found = cells(noisy("secagg", colluding=24, unit="device", most_rows=100, delta=1e-3))
    assert {found["devices", asset].verdict for asset in ("gram", "gradient", OWN, UNION)} == {"bounded"}
    assert "all records of one device" in found["devices", "gram"].reason


def test_who_knows_more_noise_than_was_planned_for_has_a_larger_epsilon() -> None:
    # 25 devices: a device knows 1/25 of the noise, 24 devices know all but 1/25 of it
    found = cells(noisy("one-shot"))
    assert found["device", UNION].verdict == "bounded"
    assert "(1.03, " in found["device", UNION].reason
    assert found["devices", UNION].verdict == "leaks"
    assert "(6.1" in found["devices", UNION].reason
    assert "privacy.colluding = 0" in found["devices", UNION].reason
    assert found["server and devices", UNION].verdict == "leaks"
    assert "noise is not planned for it" in found["server and devices", UNION].reason
    planned = cells(noisy("one-shot", colluding=24))
    assert planned["devices", UNION].verdict == planned["server and devices", UNION].verdict == "bounded"
    assert "(1.00, " in planned["server and devices", UNION].reason


def test_known_noise_bounds_nothing() -> None:
    entry = statement(noisy("one-shot", colluding=24, seed=3))
    assert "bounded" not in {cell.verdict for cell in entry.secrecy}
    told = [cell.reason for cell in entry.secrecy if cell.asset == UNION and cell.verdict != "proven"]
    assert told
    assert all(KNOWN_SEED in reason for reason in told)
    assert KNOWN_SEED in entry.allowed_if


def test_a_scheme_that_takes_no_noise_says_so() -> None:
    entry = statement(noisy("minibatch"))
    assert entry.privacy is None
    assert entry.refused is not None
    assert "its server sees more than sums" in entry.refused
    assert entry.secrecy == statement(load("paper").with_settings({"scheme": "minibatch"})).secrecy


def test_no_noise_no_change() -> None:
    entry = statement(load("paper").with_settings({"scheme": "one-shot"}))
    assert (entry.privacy, entry.refused) == (None, None)
    assert "bounded" not in {cell.verdict for cell in entry.secrecy}


def test_noise_never_makes_a_rank_worse() -> None:
    wanted = noisy("one-shot", colluding=24)
    plain = schemes.nominal(wanted)
    assert secrecy_rank(with_release(wanted, plain)) < secrecy_rank(plain)


def test_collusion_is_refused_where_it_opens_single_devices() -> None:
    # the server and a device open parts of single matrices, which carry one share of the noise only
    wanted = noisy("secagg", colluding=1).with_settings({"schemes.secagg.inner": "sealed"})
    with pytest.raises(ScenarioError, match=r"privacy\.colluding = 1 cannot be kept"):
        schemes.check(wanted)
    schemes.check(wanted.with_settings({"privacy.colluding": 0}))


def test_every_party_is_told_of_the_noise() -> None:
    wanted = noisy("one-shot")
    scheme = with_release(wanted, schemes.nominal(wanted))
    told = leakage_table(wanted, scheme)
    assert "(1.00, 1e-05)" in told["server"]
    assert "(1.03, 1e-05)" in told["devices"]
    seeded = noisy("one-shot", seed=1)
    told = leakage_table(seeded, with_release(seeded, schemes.nominal(seeded)))
    assert KNOWN_SEED in told["server"]
    assert KNOWN_SEED in told["devices"]
