"""Files: round trips, and everything that must be refused."""

import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.cipher import (
    KeyPair,
    Parameters,
    encrypt,
    generate_keys,
    load_ciphertext,
    load_encoded,
    load_private_key,
    load_public_key,
    load_reply,
    load_support,
    save,
)
from codedfl.errors import KeyFileError

LOADERS: dict[str, Callable[[Path], Any]] = {
    "public": load_public_key,
    "private": load_private_key,
    "support": load_support,
    "encoded": load_encoded,
    "ciphertext": load_ciphertext,
    "reply": load_reply,
}
SECRET = {"private", "support", "encoded"}


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    return generate_keys(Parameters(n=24, k=12, degree=3, t_tot=4, t=2, M=2, beta=2), seed=b"a" * 32)


@pytest.fixture(scope="module")
def things(keys: KeyPair) -> dict[str, Any]:
    A = np.arange(36, dtype=np.float32).reshape(3, 12)
    C = encrypt(keys.public, A, keys.private.support(1), seed=b"b" * 32)
    return {
        "public": keys.public,
        "private": keys.private,
        "support": keys.private.support(1),
        "encoded": keys.public.encode(A),
        "ciphertext": C,
        "reply": np.ones((1, 3), np.float32) @ C,
    }


@pytest.fixture(scope="module")
def files(things: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    for name, thing in things.items():
        save(folder / name, thing)
    return {name: folder / name for name in things}


@pytest.fixture
def forged(tmp_path: Path) -> Callable[[Path, Callable[[dict[str, Any]], None]], Path]:
    """Change the header of a file and make its checksum right again, as a forger would."""

    def forge(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
        data = path.read_bytes()[:-32]
        end = 14 + int.from_bytes(data[10:14], "little")
        header = json.loads(data[14:end])
        change(header)
        text = json.dumps(header).encode()
        body = data[:10] + len(text).to_bytes(4, "little") + text + data[end:]
        target = tmp_path / "forged"
        target.write_bytes(body + hashlib.sha256(body).digest())
        return target

    return forge


@pytest.mark.parametrize("name", ["encoded", "ciphertext", "reply"])
def test_messages_come_back(name: str, things: dict[str, Any], files: dict[str, Path]) -> None:
    loaded = LOADERS[name](files[name])
    assert (type(loaded), loaded.key) == (type(things[name]), things[name].key)
    np.testing.assert_array_equal(loaded.words, things[name].words)
    assert loaded.words.dtype == things[name].words.dtype


def test_keys_come_back_and_fit_together(keys: KeyPair, files: dict[str, Path]) -> None:
    public, private, support = (LOADERS[name](files[name]) for name in ("public", "private", "support"))
    assert public.fingerprint == keys.public.fingerprint == private.key == support.key
    A = np.eye(12, dtype=np.float32)
    C = encrypt(public, A, support)
    for decoder in ("least-squares", "peeling"):
        np.testing.assert_array_equal(private.decrypt(C, decoder), keys.private.decrypt(C, decoder))
    np.testing.assert_allclose(private.decrypt(C), A, atol=1e-4)


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_secret_files_are_for_their_owner_only(name: str, files: dict[str, Path]) -> None:
    mode = stat.S_IMODE(files[name].stat().st_mode)
    assert (mode == 0o600) == (name in SECRET)


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_every_other_kind_of_file_is_refused(name: str, files: dict[str, Path]) -> None:
    for other in set(LOADERS) - {name}:
        with pytest.raises(KeyFileError, match=r"holds a .*, not a .*: give the file of the"):
            LOADERS[name](files[other])


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_a_flipped_bit_anywhere_is_refused(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    data, altered = files[name].read_bytes(), tmp_path / "altered"
    everywhere = {*range(0, 64), *range(64, len(data), 37), *range(len(data) - 33, len(data))}
    for at in sorted(everywhere):
        altered.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        with pytest.raises(KeyFileError):
            LOADERS[name](altered)


@pytest.mark.parametrize("name", sorted(LOADERS))
def test_a_cut_or_lengthened_file_is_refused(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    data, altered = files[name].read_bytes(), tmp_path / "cut"
    for length in [*range(64), *range(64, len(data), 61), len(data) - 1]:
        altered.write_bytes(data[:length])
        with pytest.raises(KeyFileError):
            LOADERS[name](altered)
    altered.write_bytes(data + b"\0")
    with pytest.raises(KeyFileError, match="does not match its checksum"):
        LOADERS[name](altered)


def test_each_fault_has_its_sentence(files: dict[str, Path], tmp_path: Path) -> None:
    data, path = files["public"].read_bytes(), tmp_path / "file"
    faults = {
        b"PK\x03\x04 something else": "does not start with the mark of a codedfl file",
        b"": "does not start with the mark",
        data[:30]: "is cut short after 30 bytes",
        data[:8] + b"\x02\x00" + data[10:]: "has format version 2 and this program reads version 1",
        data[:200]: "does not match its checksum, so it was cut short or altered",
    }
    for content, sentence in faults.items():
        path.write_bytes(content)
        with pytest.raises(KeyFileError, match=sentence) as caught:
            load_public_key(path)
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
    with pytest.raises(KeyFileError, match="No such file"):
        load_public_key(tmp_path / "missing")
    with pytest.raises(KeyFileError, match="Cannot write"):
        save(tmp_path / "no folder" / "key", load_public_key(files["public"]))


def other_sizes(header: dict[str, Any]) -> None:
    header["fields"]["parameters"]["n"] = 25


def unknown_parameter(header: dict[str, Any]) -> None:
    header["fields"]["parameters"]["colour"] = 1


def no_arrays(header: dict[str, Any]) -> None:
    header["arrays"] = []


def huge_array(header: dict[str, Any]) -> None:
    header["arrays"][0]["shape"] = [2**40, 2**40]


def negative_array(header: dict[str, Any]) -> None:
    header["arrays"][0]["shape"] = [-1, -len(header["arrays"])]


def other_type(header: dict[str, Any]) -> None:
    header["arrays"][0]["dtype"] = "object"


def other_key(header: dict[str, Any]) -> None:
    header["fields"]["key"] = "0" * 64


def no_key(header: dict[str, Any]) -> None:
    header["fields"]["key"] = 7


def other_names(header: dict[str, Any]) -> None:
    header["arrays"][0]["name"] = "Q"


FORGERIES = [
    ("public", other_sizes),
    ("public", unknown_parameter),
    ("public", no_arrays),
    ("public", huge_array),
    ("public", negative_array),
    ("public", other_type),
    ("private", other_sizes),
    ("private", other_key),
    ("private", other_names),
    ("support", no_key),
    ("support", other_names),
    ("ciphertext", no_key),
    ("ciphertext", huge_array),
]


@pytest.mark.parametrize(("name", "change"), FORGERIES)
def test_a_sound_checksum_over_nonsense_is_refused(
    name: str, change: Callable[[dict[str, Any]], None], files: dict[str, Path], forged: Callable[..., Path]
) -> None:
    with pytest.raises(KeyFileError, match="sound checksum"):
        LOADERS[name](forged(files[name], change))


def test_values_that_are_no_numbers_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(files["ciphertext"].read_bytes()[:-32])
    data[-4:] = np.float32(np.nan).tobytes()
    path = tmp_path / "nan"
    path.write_bytes(bytes(data) + hashlib.sha256(data).digest())
    with pytest.raises(KeyFileError, match="sound checksum"):
        load_ciphertext(path)


def test_a_failed_write_leaves_the_old_file(keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    save(path, keys.public)
    before = path.read_bytes()

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(KeyFileError, match="No space left"):
        save(path, keys.private)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


def test_files_hold_no_pickle(files: dict[str, Path]) -> None:
    for path in files.values():
        data = path.read_bytes()
        end = 14 + int.from_bytes(data[10:14], "little")
        assert set(json.loads(data[14:end])) == {"kind", "fields", "arrays"}


def test_a_ciphertext_file_does_not_name_its_support(
    keys: KeyPair, things: dict[str, Any], files: dict[str, Path]
) -> None:
    data = files["ciphertext"].read_bytes()
    end = 14 + int.from_bytes(data[10:14], "little")
    header = json.loads(data[14:end])
    assert header["fields"] == {"key": keys.public.fingerprint}
    assert [array["name"] for array in header["arrays"]] == ["words"]
    assert {*vars(things["ciphertext"])} == {"key", "words"}
