"""What people are told of a release: its table, and epsilon against more devices than were planned for."""

from math import inf, sqrt
from typing import Any

import pytest

from codedfl.privacy.accounting import epsilon_of
from codedfl.privacy.promise import KNOWN_SEED
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
