"""Whatever sites do wrong: schemes that survive it go on exactly, others stop in words."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import decode
from codedfl.errors import CodedflError, LostDevicesError
from codedfl.runs import directory as runs
from contracts.test_engines import given
from deploy.server.faults.trouble import AT, EPOCHS, HARMLESS, IMPROPER, LOSING, arrange, chosen, model
from fleets import fleet
from tiny import is_one_sentence, promised_gradient, spied


class Losses(logging.Handler):
    """Lets others wait until the server has given up so many sites.

    Who comes too late to be awaited is not judged; so where a loss is to be seen, the others come after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._count, self._changed = 0, threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        if "is lost" in record.getMessage():
            with self._changed:
                self._count += 1
                self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= count, timeout=60):
                raise TimeoutError(f"{self._count} sites were lost, not {count}")


@pytest.fixture
def losses() -> Iterator[Losses]:
    handler = Losses()
    logger = logging.getLogger("codedfl.deploy.server.channel")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.parametrize("kind", [*LOSING, *HARMLESS])
def test_sealed_coded_goes_on_exactly_through_as_many_losses_as_promised(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, np.ndarray], losses: Losses
) -> None:
    """Two of five workers at once: every gradient is the plaintext one, and the model is that of virtual time."""
    made, scenario = given(), chosen("sealed-coded")
    seen = spied(monkeypatch, scenario)
    with fleet(made) as sites:
        trouble = arrange(kind, sites, {"device-1", "device-3"})
        if kind in IMPROPER:
            trouble.others = lambda: losses.wait(2)
        run = sites.deploy(scenario, tmp_path / "run", longest=60.0)
    assert run.summary["epochs"] == EPOCHS
    assert np.array_equal(model(run), undisturbed["sealed-coded"])
    scheme = runs.schemes.create(scenario, made)
    for epoch in seen:
        expected, bound = promised_gradient(scheme, made.shards, seen[: epoch.epoch])
        assert np.all(abs(epoch.gradient - expected) <= bound)
        if epoch.epoch == AT and kind in LOSING:
            assert not {0, 2} & set(epoch.replies), "what was lost or improper did not count"
    if kind in IMPROPER:
        assert set(run.summary["deployment"]["lost"]) == {"device-1", "device-3"}
        assert run.summary["deployment"]["refused"] == 2


def test_a_lost_worker_is_replaced(tmp_path: Path, undisturbed: dict[str, np.ndarray], losses: Losses) -> None:
    """After one loss the sixth device works; so two more may go, one after the other."""
    with fleet(given()) as sites:
        gone = {3: "device-1", 5: "device-2", 7: "device-3"}

        def one_by_one(who: str, tag: int, payload: bytes) -> list[bytes]:
            epoch = decode(payload).fields.get("epoch")
            if gone.get(epoch) == who:
                return [b"garbage"]
            losses.wait(sorted(gone).index(epoch) + 1 if epoch in gone else 0)
            return [payload]

        sites.faults.reply = one_by_one
        run = sites.deploy(chosen("sealed-coded"), tmp_path / "run")
        asked = {name for name, payload in sites.recording.sent if decode(payload).fields.get("epoch") == EPOCHS}
    assert set(run.summary["deployment"]["lost"]) == {"device-1", "device-2", "device-3"}
    assert asked == {"device-3", "device-4", "device-5", "device-6"}
    assert run.epochs["d2d_bits"][3] > 0, "the repair after epoch 3 counts to the next"
    assert np.array_equal(model(run), undisturbed["sealed-coded"])


def stopped(kind: str, name: str, who: set[str], path: Path, **changes: Any) -> str:
    with fleet(given()) as sites:
        arrange(kind, sites, who)
        with pytest.raises(LostDevicesError) as error:
            sites.deploy(chosen(name, **changes), path, longest=60.0)
    assert is_one_sentence(str(error.value))
    assert not (path / "summary.json").exists()
    return str(error.value)


def saved(path: Path) -> tuple[int, np.ndarray]:
    with np.load(path / "checkpoint.npz") as arrays:
        return len(arrays["round_of_epoch"]), arrays["model"]


@pytest.mark.parametrize("kind", ["silent during", "unreachable", *IMPROPER, "older answer only"])
def test_other_schemes_stop_in_words_and_their_state_is_saved(kind: str, tmp_path: Path) -> None:
    sentence = stopped(kind, "conventional", {"device-2"}, tmp_path / "run")
    assert f"epoch {AT} got 5 of the 6 replies" in sentence
    assert "lost: device-2 (" in sentence
    epochs, reached = saved(tmp_path / "run")
    short = runs.execute(chosen("conventional", **{"training.epochs": AT - 1}), tmp_path / "short", problem=given)
    assert epochs == AT - 1
    assert np.array_equal(reached, model(short)), "nothing of the epoch with the fault has been used"


@pytest.mark.parametrize("name", ["conventional", "sealed"])
@pytest.mark.parametrize("kind", HARMLESS)
def test_what_is_refused_without_need_of_it_does_no_harm(
    name: str, kind: str, tmp_path: Path, undisturbed: dict[str, np.ndarray]
) -> None:
    changes = {} if name == "conventional" else {"schemes.sealed.delta": 1e9}
    with fleet(given()) as sites:
        arrange(kind, sites, {"device-2"})
        run = sites.deploy(chosen(name, **changes), tmp_path / "run")
    assert np.array_equal(model(run), undisturbed[name])
    assert run.summary["deployment"]["lost"] == {}


def test_too_many_losses_stop_sealed_coded_too(tmp_path: Path) -> None:
    sentence = stopped("garbage", "sealed-coded", {"device-1", "device-2", "device-3"}, tmp_path / "run")
    assert f"epoch {AT} got 2 of the 3 replies" in sentence
    assert saved(tmp_path / "run")[0] == AT - 1


def test_a_slow_site_is_left_behind_and_not_lost(tmp_path: Path) -> None:
    """Of six devices five are awaited; the sixth answers every question when the next has been sent."""
    with fleet(given()) as sites:
        newest, epoch = threading.Condition(), 0

        def note(site: str, tag: int, payload: bytes) -> bytes:
            nonlocal epoch
            frame = decode(payload)
            with newest:
                epoch = max(epoch, EPOCHS + 1 if frame.kind == "forget" else int(frame.fields.get("epoch", 0)))
                newest.notify_all()
            return payload

        def hold(site: str, tag: int, payload: bytes) -> list[bytes]:
            frame = decode(payload)
            if site == "device-4" and "epoch" in frame.fields:
                with sites.carrier.at_rest(), newest:
                    newest.wait_for(lambda: epoch > frame.fields["epoch"])
            return [payload]

        sites.faults.question, sites.faults.reply = note, hold
        run = sites.deploy(chosen("drop-slowest", **{"schemes.drop-slowest.wait_for": 5}), tmp_path / "run")
    assert (run.summary["deployment"]["lost"], run.summary["deployment"]["refused"]) == ({}, 0)
    assert (run.epochs["replies"] == 5).all()


def test_sites_that_are_missing_from_the_beginning_are_named(tmp_path: Path) -> None:
    with fleet(given()) as sites:
        sites.faults.silent |= {"device-2", "device-5"}
        with pytest.raises(CodedflError, match="device-2, device-5 did not answer") as error:
            sites.deploy(chosen("conventional"), tmp_path / "run")
    assert is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()
