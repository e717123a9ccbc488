"""Mixing up keys, supports and messages is refused at run time with a sentence, and by mypy beforehand."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codedfl.cipher.mceliece.parameters import PAPER_92, PAPER_128, Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"

WRONG = """
import numpy as np
from numpy.typing import NDArray
from codedfl.cipher.mceliece.messages import Ciphertext, Encoded, EncryptedReply
from codedfl.cipher.mceliece.private_key import PrivateKey
from codedfl.cipher.mceliece.public_key import PublicKey, encrypt
from codedfl.cipher.mceliece.supports import Support

Array = NDArray[np.float32]

def mixed(public: PublicKey, private: PrivateKey, support: Support, A: Array,
          C: Ciphertext, B: Encoded, R: EncryptedReply) -> None:
    public.decrypt(C)
    private.encode(A)
    encrypt(private, A, support)
    encrypt(public, A, A)
    encrypt(public, C, support)
    private.decrypt(public)
    private.decrypt(A)
    public.add_error(R, support)
    C + R
    R + C
    C + A
    C = B
    R = C
    a: Ciphertext = A @ C

def fine(public: PublicKey, private: PrivateKey, support: Support, A: Array) -> Array:
    C: Ciphertext = encrypt(public, A, support) + public.encode(A)
    D: Ciphertext = public.encode(A) + C
    R: EncryptedReply = A @ C + A @ D + A @ public.encode(A)
    return private.decrypt(R)
"""


@pytest.fixture(scope="module")
def refusals() -> dict[str, list[str]]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    run = subprocess.run([sys.executable, HERE / "misuse.py"], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_every_mix_up_is_refused_with_one_sentence(refusals: dict[str, list[str]]) -> None:
    assert len(refusals) > 50
    wrong = {
        name: found
        for name, found in refusals.items()
        if found[0] != "CipherError" or not re.fullmatch(r"\S[^\n]+[.]", found[1]) or len(found[1]) > 400
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("encrypt with the private key", "Encryption takes a PublicKey, not a PrivateKey"),
        ("decrypt another key's ciphertext", "decrypt it with the private key of its own pair"),
        ("add under different keys", "encrypt both under one public key"),
        ("add a reply to a ciphertext", "A Ciphertext cannot be added to an EncryptedReply"),
        ("encrypt another precision", "The plaintext is float64 and the key float32"),
        ("multiply by the wrong shape", r"shape \(2, 4\) does not fit 3 rows of a Ciphertext"),
    ],
)
def test_sentences_name_what_was_wrong(refusals: dict[str, list[str]], case: str, sentence: str) -> None:
    assert re.search(sentence, refusals[case][1])


def test_mypy_refuses_the_same(tmp_path: Path) -> None:
    """Each line of ``mixed`` is a type error, no line of ``fine`` is."""
    api = pytest.importorskip("mypy.api")
    path = tmp_path / "mixed.py"
    path.write_text(WRONG)
    settings = ["--config-file", os.devnull, "--follow-imports=silent", "--ignore-missing-imports"]
    os.environ["MYPYPATH"] = str(SOURCE)
    try:
        report, _, _ = api.run([*settings, "--cache-dir", str(tmp_path / "cache"), str(path)])
    finally:
        del os.environ["MYPYPATH"]
    lines = {int(number) for number in re.findall(r"mixed\.py:(\d+): error", report)}
    text = WRONG.splitlines()
    first, last = text.index("    public.decrypt(C)") + 1, text.index("    a: Ciphertext = A @ C") + 1
    assert lines == set(range(first, last + 1)), report


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    return generate_keys(Parameters(n=24, k=12, degree=3, t_tot=4, t=2, M=2, beta=2), seed=b"a" * 32)


def test_nothing_secret_is_printed(keys: KeyPair) -> None:
    private, support = keys.private, keys.private.support(0)
    C = encrypt(keys.public, np.full((12, 12), 7, np.float32), support)
    texts = [
        f"{thing!r} {thing!s}" for thing in (keys, private, support, C, keys.public.encode(np.eye(12, dtype="f4")))
    ]
    for text in texts:
        assert "array" not in text
        assert "[" not in text
    shown = re.sub(r"key [0-9a-f]{12}", "", f"{support!r} {private!r}")
    assert set(re.findall(r"\d+", shown)) <= {"0", "2", "4", "12", "24"}  # the index and the public sizes


def test_messages_cannot_be_changed(keys: KeyPair) -> None:
    C = encrypt(keys.public, np.eye(12, dtype=np.float32), keys.private.support(0))
    for array in (C.words, keys.public.G, keys.private.support(0).positions):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_keys_follow_from_their_seed_and_differ_without(keys: KeyPair) -> None:
    p = keys.public.parameters
    assert generate_keys(p, seed=b"a" * 32).public.fingerprint == keys.public.fingerprint
    assert generate_keys(p).public.fingerprint != generate_keys(p).public.fingerprint


def test_the_fingerprint_covers_parameters_and_precision(keys: KeyPair) -> None:
    p = keys.public.parameters
    louder = Parameters(**{**dataclasses.asdict(p), "noise": 2.0})
    prints = {
        generate_keys(p, seed=b"a" * 32).public.fingerprint,
        generate_keys(p, dtype="float64", seed=b"a" * 32).public.fingerprint,
        generate_keys(louder, seed=b"a" * 32).public.fingerprint,
    }
    assert len(prints) == 3


def test_presets_are_those_of_the_paper() -> None:
    for preset, t, M in ((PAPER_92, 64, 16), (PAPER_128, 128, 4)):
        assert (preset.n, preset.k, preset.t_tot, preset.beta) == (4000, 2000, 256, 4)
        assert (preset.t, preset.M) == (t, M)
        assert preset.degree * preset.n / (preset.n - preset.k) == 90
