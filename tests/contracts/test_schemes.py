"""What every scheme owes: run over all that are registered."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.ckks import keys as ckks
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.task import Problem
from codedfl.testing.schemes import SchemeContract
from tiny import PAPER_FLEET, problem, promised_gradient, scenario, spied, trained

COSTLY = ("secagg", "one-shot", "he")
"""Every pair of their devices agrees on keys (21 of seven devices, 300 of 25), or each encrypts its Gram matrix."""

SIZES = defaultdict(lambda: [10] * 15 + [11] * 8 + [2, 5], {name: [10, 10, 11, 11, 10, 2, 5] for name in COSTLY})
"""The paper's fleet of 25; two shards are smaller than others, one too small for a Gram matrix of 12 features."""

FEWER = [{"count": 3, "mac_rate": 25e6}, {"count": 2, "mac_rate": 5e6}, {"count": 2, "mac_rate": 1.25e6}]

EPOCHS = 10
PRECISIONS = ("float32", "float64")

UNLESS = pytest.mark.skipif(not ckks.installed(), reason="TenSEAL is not installed")
SMALL = {
    "minibatch": {"parts": 2},
    "parity": {"parts": 2},
    "he": {"backend": "ckks", "delta": 1e-3},
    "code-based": {"n": 24, "degree": 3, "t_tot": 8, "t": 4, "M": 4, "beta": 2, "delta": 1e-3, "supply": "reissued"},
}
"""Options that fit so small a problem, where the defaults do not."""

WORDS = {
    "sealed": (np.uint32, np.uint64),
    "sealed-coded": (np.uint32, np.uint64),
    "coded-padded": (np.uint16, np.uint64),
    "he": (np.uint32, np.uint8),
    "one-shot": (np.uint8, np.int32, np.uint32, np.uint64),
}
"""Residues travel as words of 32 or 64 bits, unless three words of 16 bits make one of 48; ciphertexts are bytes."""


def wanted(name: str, changes: dict[str, Any] | None = None) -> Scenario:
    settings = {"scheme": name, "training.epochs": EPOCHS, "training.learning_rate": 0.1}
    fleet = {"fleet.devices": FEWER} if name in COSTLY else {}
    return scenario({**settings, **fleet, f"schemes.{name}": SMALL.get(name, {}), **(changes or {})})


def tiny(name: str, dtype: str = "float64") -> Problem:
    return problem(SIZES[name], features=12, outputs=3, dtype=dtype)


class Promising(SchemeContract):
    """Gradients may be off by what residues round."""

    def promised_gradient(self, *given: Any) -> Any:
        return promised_gradient(*given)


for _name in SCHEMES:
    _own = {
        "scheme": SCHEMES[_name],
        "options": SMALL.get(_name, {}),
        "sizes": SIZES[_name],
        "fleet": FEWER if _name in COSTLY else PAPER_FLEET,
        "words": WORDS.get(_name),
    }
    _class = type(f"Test_{_name}", (Promising,), _own)
    globals()[_class.__name__] = UNLESS(_class) if _name == "he" else _class


@pytest.mark.parametrize("name", ["sealed", "sealed-coded", "coded-padded"])
def test_residues_are_as_narrow_as_float32_allows_and_as_wide_as_float64(name: str) -> None:
    narrow, wide = (schemes.create(wanted(name), tiny(name, dtype)).formats.ring.name for dtype in PRECISIONS)  # type: ignore[attr-defined]
    assert narrow == {"sealed": "Z_2^32", "sealed-coded": "GF(2^31-1)", "coded-padded": "GF(2^48-59)"}[name]
    assert wide == ("Z_2^64" if name == "sealed" else "GF(2^61-1)")


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_what_is_summed_once_are_words_as_wide_as_the_numbers(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks nobody sends nothing."""
    chosen = wanted("one-shot", {"task.precision": precision})
    seen = spied(monkeypatch, chosen)
    trained(tiny("one-shot", precision), chosen)
    assert len(seen) == EPOCHS
    for epoch in seen:
        messages = [m for asked, replies in epoch.questions for m in (*asked.requests.values(), *replies.values())]
        summed = [message for message in messages if "moments" in message]
        assert len(summed) == (len(SIZES["one-shot"]) if epoch.epoch == 1 else 0)
        assert {8 * a.itemsize for m in summed for a in m.values()} <= {int(precision.removeprefix("float"))}
