"""Parcels that are altered, lost or brought again: refused and sent again, or the run stops in words."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codedfl.cipher.seals import Ring
from codedfl.deploy.protocol.wire import decode
from codedfl.errors import LostDevicesError
from codedfl.schemes.coded.pairwise_masks import PairwiseMasks
from contracts.test_engines import given
from deploy.server.faults.trouble import arrange, chosen, model
from fleets import InProcessFleet, fleet
from tiny import is_one_sentence


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


def test_a_set_up_after_a_lost_one_has_fresh_masks_and_the_same_model(
    tmp_path: Path, undisturbed: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device dies when others have sent sealed pieces; the same sites then begin again, in another session."""
    expanded: list[tuple[int, bytes, int]] = []
    add = PairwiseMasks.add_one

    def noted(self: PairwiseMasks, other: int, pieces: np.ndarray, chunk: int, ring: Ring) -> None:
        expanded.append((self._index, self._seeds[other], chunk))
        add(self, other, pieces, chunk, ring)

    monkeypatch.setattr(PairwiseMasks, "add_one", noted)
    with fleet(given()) as sites:
        keys = len(sites.sites) * (len(sites.sites) - 1)

        def die(number: int, sender: str, recipient: str, payload: bytes) -> bytes | None:
            if number == keys + 5:
                sites.faults.unreachable.add("device-2")
            return payload

        parcels(sites, die)
        with pytest.raises(LostDevicesError, match="before the set-up was over"):
            sites.deploy(chosen("sealed-coded"), tmp_path / "run")
        before = list(expanded)
        sites.faults.unreachable.clear()
        parcels(sites, lambda number, sender, recipient, payload: payload)
        run = sites.deploy(chosen("sealed-coded"), tmp_path / "run")
    again = expanded[len(before) :]
    assert before
    assert len(again) == len(set(again)) >= keys
    assert not {seed for _, seed, _ in before} & {seed for _, seed, _ in again}
    assert np.array_equal(model(run), undisturbed["sealed-coded"])
