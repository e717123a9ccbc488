"""What every scheme's site owes its owner: what it holds does not depend on how long a training has gone on."""

import gc
from collections.abc import Iterable
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.site import locks
from contracts.test_engines import NAMES, chosen, everyone_replies, given
from deploy.site.test_host import Asker, host
from fleets import fleet

__all__ = ["everyone_replies"]

EPOCHS, NUMBERS = 60, 12
"""Epochs of a training, and how many numbers of requests a site remembers in it."""


def held(roots: Iterable[Any]) -> tuple[int, int]:
    """Return how many references are held by these objects and all that they lead to, and how many bytes."""
    references, size, seen, left = 0, 0, set[int](), list(roots)
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType, BuiltinFunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, (bytes, bytearray, str)):
            size += len(one)
        elif isinstance(one, np.ndarray):
            size += one.nbytes
        found = gc.get_referents(one)
        references += len(found)
        left += found
    return references, size


@pytest.mark.usefixtures("everyone_replies")  # nothing else reaches the site while it is looked at
@pytest.mark.parametrize("name", NAMES)
def test_what_a_site_holds_does_not_grow_with_the_epochs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_MOST_NUMBERS", NUMBERS)
    seen: dict[int, tuple[int, int]] = {}
    with fleet(given(), folder=tmp_path / "sites") as sites:

        def noted(site: str, tag: int, payload: bytes) -> list[bytes]:
            epoch = decode(payload).fields.get("epoch")
            if site == "device-1" and epoch is not None:
                host = sites.carrier.host(site)
                seen[epoch] = held([vars(host)["_run"], vars(host)["_record"]])
            return [payload]

        sites.faults.reply = noted
        sites.deploy(chosen(name, **{"training.epochs": EPOCHS}), tmp_path / "run", check=False)
    early, late = (seen[sorted(seen)[place]] for place in (len(seen) // 2, -1))
    if name != "secagg":
        assert late == early
        return
    # who was in the sum of an epoch is remembered as long as the run lasts, because two sums of an epoch show a device
    epochs, names = EPOCHS - sorted(seen)[len(seen) // 2], len("training/60 0,1,2,3,4,5")
    assert late[0] - early[0] <= 2 * epochs
    assert late[1] - early[1] <= names * epochs


def test_what_a_site_holds_does_not_grow_with_rounds_that_nobody_awaits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a slow device most rounds are cancelled; its owner's record does not call that an error."""
    monkeypatch.setattr(locks, "_MOST_NUMBERS", NUMBERS)
    asker = Asker(host(folder=tmp_path))
    asker.begin()
    parts = [vars(asker.host)["_run"], vars(asker.host)["_record"]]
    parts[0].queue.cancel_below(1 << 40)
    before, seen = {row["kind"] for row in parts[1]._table["left"]}, []
    for epoch in range(1, EPOCHS):
        assert decode(asker.host.handle(asker.round(epoch))).kind == "superseded"
        seen.append(held(parts))
    assert seen[EPOCHS // 2] == seen[-1]
    assert {row["kind"] for row in parts[1]._table["left"]} == before
