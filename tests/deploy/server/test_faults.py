"""Whatever sites and relays do wrong: schemes that survive it go on exactly, others stop in words."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.errors import CodedflError, LostDevicesError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from contracts.test_engines import DEVICES, RIDGE, given
from contracts.test_schemes import wanted
from fleets import InProcessFleet, fleet
from tiny import is_one_sentence, promised_gradient, spied

EPOCHS = 7
AT = 3
"""The epoch in which things go wrong."""
CODED = {"schemes.sealed-coded.workers": 5, "schemes.sealed-coded.threshold": 3}
"""Five workers of six devices, any three of which make a gradient; the sixth takes the place of one that is lost."""


def chosen(name: str, **changes: Any) -> Scenario:
    settings = {"fleet.devices": DEVICES, "training.epochs": EPOCHS, "task.precision": "float64", "task.ridge": RIDGE}
    return wanted(name).with_settings(settings | (CODED if name == "sealed-coded" else {}) | changes)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The models of virtual time."""
    found = {}
    for name in ("conventional", "sealed", "sealed-coded"):
        run = runs.execute(chosen(name), tmp_path_factory.mktemp(name) / "run", problem=given)
        found[name] = model(run)
    return found


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


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


class Trouble:
    """Lets something happen to the answers (or questions) of some sites in one epoch, and remembers older answers."""

    def __init__(self, sites: InProcessFleet, who: set[str], when: int = AT) -> None:
        self._sites = sites
        self._who = who
        self._when = when
        self._epochs: dict[int, int] = {}
        self._old: dict[str, bytes] = {}
        self._noted = threading.Condition()
        sites.faults.question = self._note
        self.ask: Callable[[str, bytes], bytes | None] = lambda site, payload: payload
        self.answer: Callable[[str, bytes], list[bytes]] = lambda site, payload: [payload]
        self.others: Callable[[], None] = lambda: None
        sites.faults.reply = self._alter

    def _note(self, site: str, tag: int, payload: bytes) -> bytes | None:
        frame = decode(payload)
        if frame.kind == "reply":
            self._epochs[tag] = int(frame.fields["epoch"])
        return self.ask(site, payload) if self._hits(site, tag) else payload

    def _alter(self, site: str, tag: int, payload: bytes) -> list[bytes]:
        if self._epochs.get(tag) == self._when - 1:
            with self._noted:
                self._old[site] = payload
                self._noted.notify_all()
        if site not in self._who and self._epochs.get(tag) == self._when:
            self.others()
        return self.answer(site, payload) if self._hits(site, tag) else [payload]

    def old(self, site: str) -> bytes:
        """The answer to the epoch before, which a server that has heard enough does not wait for, but this does."""
        with self._noted:
            if not self._noted.wait_for(lambda: site in self._old, timeout=60):
                raise TimeoutError(f"{site} has not answered epoch {self._when - 1}")
            return self._old[site]

    def _hits(self, site: str, tag: int) -> bool:
        return site in self._who and self._epochs.get(tag) == self._when


def altered(change: Callable[[dict[str, np.ndarray]], dict[str, Any]]) -> Callable[[bytes], list[bytes]]:
    def alter(payload: bytes) -> list[bytes]:
        frame = decode(payload)
        return [encode(Frame(frame.kind, frame.fields, change(dict(frame.arrays))))]

    return alter


def arrange(kind: str, sites: InProcessFleet, who: set[str], when: int = AT) -> Trouble:
    """Make the trouble of that name happen."""
    trouble = Trouble(sites, who, when)

    def vanish(site: str, payload: bytes) -> None:
        sites.faults.silent.add(site)

    def die(site: str, payload: bytes) -> list[bytes]:
        vanish(site, payload)
        return []

    def part(site: str, payload: bytes) -> bytes:
        sites.faults.unreachable.add(site)
        return payload

    answers: dict[str, Callable[[bytes], list[bytes]]] = {
        "garbage": lambda payload: [b"\x93garbage" * 9],
        "cut": lambda payload: [payload[: len(payload) // 2]],
        "wrong shape": altered(lambda arrays: {name: array[:1] for name, array in arrays.items()}),
        "turned": altered(lambda arrays: {name: array.T.copy() for name, array in arrays.items()}),
        "wrong format": altered(lambda arrays: {name: array.astype(np.float32) for name, array in arrays.items()}),
        "not a number": altered(lambda arrays: {name: array * np.nan for name, array in arrays.items()}),
        "nothing": altered(lambda arrays: {}),
    }
    if kind == "silent before":
        trouble.ask = vanish
    elif kind == "silent during":
        trouble.answer = die
    elif kind == "unreachable":
        trouble.ask = part
        trouble.answer = lambda site, payload: []
    elif kind == "twice":
        trouble.answer = lambda site, payload: [payload, payload]
    elif kind == "older answer first":
        trouble.answer = lambda site, payload: [trouble.old(site), payload]
    elif kind == "older answer only":
        trouble.answer = lambda site, payload: [trouble.old(site)]
    else:
        trouble.answer = lambda site, payload: answers[kind](payload)
    return trouble


IMPROPER = ["garbage", "cut", "wrong shape", "turned", "wrong format", "not a number", "nothing"]
LOSING = ["silent before", "silent during", "unreachable", *IMPROPER, "older answer only"]
HARMLESS = ["twice", "older answer first"]


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


# parcels between devices


def parcels(sites: InProcessFleet, alter: Callable[[int, str, str, bytes], bytes | None]) -> list[int]:
    """Let ``alter`` see every parcel with its number, one after the other; return the list that counts them."""
    counted: list[int] = []
    one_at_a_time = threading.Lock()  # sites send from threads of their own

    def hook(sender: str, recipient: str, payload: bytes) -> bytes | None:
        with one_at_a_time:
            counted.append(len(counted))
            return alter(counted[-1], sender, recipient, payload)

    sites.faults.parcel = hook
    return counted


def flipped(payload: bytes) -> bytes:
    return payload[:60] + bytes([payload[60] ^ 1]) + payload[61:]


@pytest.mark.parametrize("name", ["sealed", "sealed-coded"])
@pytest.mark.parametrize("kind", ["altered", "replayed", "swapped", "lost"])
def test_a_parcel_that_goes_wrong_once_is_refused_and_sent_again(
    name: str, kind: str, tmp_path: Path, undisturbed: dict[str, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    with fleet(given()) as sites:
        before: dict[tuple[str, str], bytes] = {}
        done: set[str] = set()

        def alter(number: int, sender: str, recipient: str, payload: bytes) -> bytes | None:
            known = before.setdefault((sender, recipient), payload)
            others = [text for pair, text in before.items() if pair[0] == sender and pair[1] != recipient]
            changed = {
                "altered": flipped(payload),
                "replayed": known if known is not payload else payload,
                "swapped": others[0] if others else payload,
                "lost": None,
            }[kind]
            if kind in done or changed == payload:
                return payload
            done.add(kind)
            return changed

        parcels(sites, alter)
        scenario = chosen(name, **({"schemes.sealed.delta": 1e9} if name == "sealed" else {}))
        with caplog.at_level(logging.WARNING):
            run = sites.deploy(scenario, tmp_path / "run")
    happens = not (name == "sealed" and kind in ("replayed", "swapped"))  # every device sends one parcel only
    assert bool(done) == happens
    assert np.array_equal(model(run), undisturbed[name])
    assert ("refused a parcel" in caplog.text) == (happens and kind != "lost")


@pytest.mark.parametrize("kind", ["altered", "lost"])
def test_a_link_that_never_works_stops_the_set_up_in_words(kind: str, tmp_path: Path) -> None:
    with fleet(given()) as sites:
        parcels(
            sites,
            lambda number, sender, recipient, payload: (
                (flipped(payload) if kind == "altered" else None) if recipient == "device-3" else payload
            ),
        )
        with pytest.raises(LostDevicesError, match="before the set-up was over") as error:
            sites.deploy(chosen("sealed-coded"), tmp_path / "run")
    assert is_one_sentence(str(error.value))
    assert "could not send to device-3" in str(error.value)


def test_a_device_that_dies_in_the_set_up_stops_it_in_words(tmp_path: Path) -> None:
    with fleet(given()) as sites:

        def die(number: int, sender: str, recipient: str, payload: bytes) -> bytes | None:
            if number == 10:
                sites.faults.unreachable.add("device-2")
            return payload

        parcels(sites, die)
        with pytest.raises(LostDevicesError, match="before the set-up was over") as error:
            sites.deploy(chosen("sealed-coded"), tmp_path / "run")
    assert "device-2 (it cannot be reached)" in str(error.value)


def test_parcels_that_are_brought_again_later_are_refused(
    tmp_path: Path, undisturbed: dict[str, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    """The relay has kept all parcels; in epoch 3 it brings each again, to its recipient, to another, from another."""
    with fleet(given()) as sites:
        refused: list[str] = []

        def again(site: str, payload: bytes) -> bytes:
            hosts = {name: sites.carrier.host(name) for name in sites.sites}
            for sender, recipient, text in list(sites.recording.relayed):
                (other,) = [name for name in sites.sites if name not in (sender, recipient)][:1]
                answers = [hosts[recipient].handle_peer(sender, text), hosts[other].handle_peer(sender, text)]
                answers.append(hosts[recipient].handle_peer(other, text))
                refused.extend(decode(answer).kind for answer in answers)
            return payload

        arrange("twice", sites, {"device-1"}).ask = again
        with caplog.at_level(logging.ERROR):
            run = sites.deploy(chosen("sealed-coded"), tmp_path / "run")
    assert set(refused) == {"refused"}
    assert len(refused) > 3 * 30
    assert np.array_equal(model(run), undisturbed["sealed-coded"])
