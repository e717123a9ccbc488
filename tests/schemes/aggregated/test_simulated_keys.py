"""Runs in virtual time agree on keys inside the process: the same results to the last bit, and no X25519."""

from pathlib import Path
from typing import Any

import pytest

from codedfl.cipher.masks.pairwise import AgreementKey
from rundirs import results, small_run

CASES: dict[str, dict[str, Any]] = {
    "secagg": {},
    "secagg round sealed": {"schemes.secagg.inner": "sealed", "schemes.sealed.delta": 1e-3},
    "secagg with drop-outs": {"schemes.secagg.inner": "drop-slowest", "schemes.drop-slowest.wait_for": 3},
    "one-shot": {"training.solver": "closed-form"},
    "sealed-coded": {},
}


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_x25519(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that both ends agree on cancel in sums, whichever they are; costs are those of X25519."""
    changes = {"scheme": case.partition(" ")[0], "training.epochs": 5, **CASES[case]}
    small_run(tmp_path / "real", changes, summed=False)

    def refused(*_: object) -> None:
        raise AssertionError("a simulation has computed an X25519")

    monkeypatch.setattr(AgreementKey, "__init__", refused)
    small_run(tmp_path / "simulated", changes)
    assert results(tmp_path / "simulated") == results(tmp_path / "real")
    with pytest.raises(AssertionError):
        small_run(tmp_path / "again", changes, summed=False)
