"""What people are told of a release: its table, and epsilon against more devices than were planned for."""

from math import inf, sqrt
from typing import Any

import pytest

from codedfl.privacy.accounting import epsilon_of
from codedfl.privacy.promise import KNOWN_SEED, rounded_up
from codedfl.privacy.release import Release


def release(**changes: Any) -> Release:
    given = {"epsilon": 1.0, "delta": 1e-5, "clip_features": 1.0, "clip_targets": 2.0, "features": 30, "outputs": 4}
    sizes = {"devices": 10, "largest_rows": 50, "records": 400, "colluding": 4, "losses": 0}
    return Release.plan(**{**given, **sizes, **changes})


def test_the_table_names_the_budget_and_whom_it_counts_on() -> None:
    made = release()
    table = made.to_table()
    assert (table["delta"], table["unit"], table["colluding"], table["losses"]) == (1e-5, "record", 4, 0)
    assert (table["devices"], table["honest"], table["releases"], table["known_seed"]) == (10, 6, 1, False)
    assert (table["clip_features"], table["clip_targets"]) == (1.0, 2.0)
    assert 0.999 < table["epsilon"] <= 1.0
    assert table["statement"] == made.statement


def test_the_table_has_the_noise_that_the_budget_needs() -> None:
    # mu^2 = (C^2 / (sqrt(2) s))^2 + (C T / t)^2 with the noise of 6 of 10 devices, but for the rounding to a grid
    table = release().to_table()
    s, t = (sqrt(6 / 10) * table[name] for name in ("gram_noise_std", "right_hand_side_noise_std"))
    assert sqrt((1 / (sqrt(2) * s)) ** 2 + (2 / t) ** 2) == pytest.approx(table["mu"], rel=1e-3)


def test_noise_from_a_known_seed_is_called_worthless() -> None:
    table = release(known_seed=True).to_table()
    assert table["known_seed"] is True
    assert table["statement"].startswith(KNOWN_SEED)


@pytest.mark.parametrize("colluding", [0, 4, 9])
def test_every_device_that_colludes_takes_its_noise_away(colluding: int) -> None:
    # 6 shares were counted on; 10 - colluding are left
    made = release()
    expected = epsilon_of(made.mu * sqrt(6 / (10 - colluding)), 1e-5)
    assert made.epsilon_against(colluding) == pytest.approx(expected, rel=1e-12)


def test_nothing_is_promised_where_all_noise_may_be_known() -> None:
    assert release().epsilon_against(10) == inf


def test_a_promise_names_its_unit() -> None:
    assert release().promise(4) == "(1.00, 1e-05)-differentially private for one record added or removed"
    owners = release(unit="device", most_rows=3, delta=1e-3)
    assert owners.promise(4) == "(1.00, 0.001)-differentially private for all records of one device added or removed"
    assert release().promise(10) == "no bound: all devices that add noise may be among them"


@pytest.mark.parametrize(
    ("colluding", "words"),
    [
        (7, "up to 7 devices that collude with it, if the other 3 devices follow the protocol; for this run alone"),
        (8, "up to 8 devices that collude with it, if the other 2 devices follow the protocol; for this run alone"),
        (9, "if the other device follows the protocol; for this run alone; a sum over one honest device is protected "),
        (1, "up to 1 device that colludes with it, if the other 9 devices follow the protocol; for this run alone"),
    ],
)
def test_a_statement_counts_devices(colluding: int, words: str) -> None:
    assert words in release(colluding=colluding).statement


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        *((1.0, "1.00"), (1.001, "1.01"), (0.5, "0.500"), (0.0101004, "0.0102"), (12.34, "12.4"), (99.96, "100")),
        *((100.0, "100"), (123.4, "124"), (124.0, "124"), (1234.0, "1.24e+03")),
    ],
)
def test_three_digits_are_rounded_up(epsilon: float, shown: str) -> None:
    assert rounded_up(epsilon) == shown
