"""What sites keep at rest: it opens with the key, for the site and the run that it was kept for, and not else."""

import os
import secrets
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.deploy.protocol.keeping import (
    KEEP,
    KEPT,
    KEY_BYTES,
    SECRET,
    STALE_DAYS,
    KeptParcels,
    SessionSecret,
    carry_out,
    remove_stale,
)
from codedfl.errors import EngineError
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Message, Work


class Holder(Device):
    """Holds numbers, or nothing."""

    def __init__(self, held: Message | None) -> None:
        self.held = held

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        return {}

    def keep(self) -> Message | None:
        return self.held

    def recall(self, kept: Message) -> None:
        self.held = kept


def block() -> Message:
    return {"coded": np.arange(12, dtype=np.uint32).reshape(3, 4)}


@pytest.fixture
def parcels(tmp_path: Path) -> KeptParcels:
    return KeptParcels(tmp_path / "run", "anna", "run")


def test_what_is_kept_opens_with_its_key_only(parcels: KeptParcels, tmp_path: Path) -> None:
    key = secrets.token_bytes(KEY_BYTES)
    assert parcels.store(key, block())
    file = tmp_path / "run" / KEPT
    assert file.stat().st_mode & 0o077 == 0
    assert block()["coded"].tobytes() not in file.read_bytes()
    found = parcels.load(key)
    assert found is not None
    assert np.array_equal(found["coded"], block()["coded"])
    assert parcels.load(secrets.token_bytes(KEY_BYTES)) is None
    for site, run in (("ben", "run"), ("anna", "another")):
        assert KeptParcels(tmp_path / "run", site, run).load(key) is None
    parcels.remove()
    assert parcels.load(key) is None


@given(place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_an_altered_file_does_not_open(place: int, flip: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, key = tmp_path_factory.mktemp("kept"), bytes(KEY_BYTES)
    parcels = KeptParcels(folder, "anna", "run")
    assert parcels.store(key, block())
    stored = bytearray((folder / KEPT).read_bytes())
    stored[place % len(stored)] ^= flip
    (folder / KEPT).write_bytes(stored)
    assert parcels.load(key) is None


def test_a_disk_that_cannot_be_written_keeps_nothing_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    assert not KeptParcels(tmp_path / "run", "anna", "run").store(bytes(KEY_BYTES), block())
    assert not KeptParcels(None, "anna", "run").store(bytes(KEY_BYTES), block())


def test_files_of_runs_that_never_ended_are_removed(parcels: KeptParcels, tmp_path: Path) -> None:
    parcels.store(bytes(KEY_BYTES), block())
    file = tmp_path / "run" / KEPT
    now = file.stat().st_mtime
    remove_stale(tmp_path, now + 86400 * STALE_DAYS - 60)
    assert file.exists()
    remove_stale(tmp_path, now + 86400 * STALE_DAYS + 60)
    assert not file.exists()


def test_the_server_stores_one_secret_and_derives_a_key_for_each_site(tmp_path: Path) -> None:
    made = SessionSecret(tmp_path)
    assert made.read() == {}
    made.draw({"pads": np.arange(3)})
    assert (tmp_path / SECRET).stat().st_mode & 0o077 == 0
    again = SessionSecret(tmp_path)
    assert again.read()["pads"].tolist() == [0, 1, 2]
    keys = [each.key_of(site)["key"].tobytes() for site in ("anna", "ben") for each in (made, again)]
    assert (keys[0], keys[2], len(set(keys))) == (keys[1], keys[3], 2)
    made.draw({"pads": np.arange(3)})
    assert made.key_of("anna")["key"].tobytes() != keys[0], "a repeated set-up has another secret"
    os.truncate(tmp_path / SECRET, 40)
    assert again.read() == {}


def test_a_site_keeps_under_the_key_it_is_sent_and_refuses_other_requests(parcels: KeptParcels) -> None:
    grant = {"key": np.zeros(KEY_BYTES, np.uint8)}
    assert not carry_out(KEEP, Holder(None), parcels, grant)
    assert not carry_out("holds", Holder(None), parcels, grant)
    assert carry_out(KEEP, Holder(block()), parcels, grant)
    fresh = Holder(None)
    assert carry_out("holds", fresh, parcels, grant)
    assert fresh.held is None
    assert carry_out("recall", fresh, parcels, grant)
    assert fresh.held is not None
    wrong = {"key": np.ones(KEY_BYTES, np.uint8)}
    assert not carry_out("recall", Holder(None), parcels, wrong)
    for verb, sent in (("show", grant), (KEEP, {}), (KEEP, {"key": np.zeros(16, np.uint8)})):
        with pytest.raises(EngineError, match="cannot be read"):
            carry_out(verb, Holder(block()), parcels, sent)
