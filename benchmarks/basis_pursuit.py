"""The l1 relaxation of section V-D on single rows at full size: both settings, and up to how many errors it works.

Matching pursuit (``single-row``) stands beside it. Rows of real ciphertexts of one device; more errors than the paper's
are added to an encoded row at random positions, each as large as a symbol.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.attacks import DEVICE, ROWS, SEED, SETTINGS, Trial, many_errors, run
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.scenario import load
from codedfl.security.attacks.supports.basis_pursuit import BasisPursuit
from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.attacks.supports.single_row import SingleRow
from codedfl.security.scoring import Truth
from codedfl.security.views.kinds import RowView
from codedfl.task import Problem

COUNTS = (250, 500, 600, 700, 750, 800)
"""Errors in one row; random matrices of these sizes have the threshold 770."""


def main() -> dict[str, Any]:
    """Attack three rows under both keys, then one row with more and more errors."""
    A = Problem.build(load("paper-92")).shards[DEVICE].gram
    results: dict[str, Any] = {}
    for name, parameters in SETTINGS.items():
        print(f"  -- claimed {name} bits, t = {parameters.t}", flush=True)
        keys = generate_keys(parameters, dtype="float32", seed=SEED)
        geometry_of(keys.public.G)
        results[name] = {trial.label: run(trial) for trial in _rows(keys, A)}
    print("  -- more errors than the paper has", flush=True)
    trials = [many_errors(keys, A, count, attack) for count in COUNTS for attack in (BasisPursuit(), SingleRow())]
    results["more errors"] = {trial.label: run(trial) for trial in trials}
    return results


def _rows(keys: KeyPair, A: np.ndarray) -> Iterator[Trial]:
    public, support = keys.public, keys.private.support(1)
    words = encrypt(public, A, support, seed=SEED).words
    for attack in (BasisPursuit(), SingleRow()):
        for index in ROWS:
            truth = Truth(gram=A[index : index + 1], support=support.positions, length=public.parameters.n)
            view = RowView(public.G, words[index], public.parameters.t)
            yield Trial(f"{attack.name} {index}", attack, view, truth)
