"""Attacks on the paper's cipher at full size: Gram matrices of MNIST features, float32, both settings of the paper.

Seconds are wall time of one run with the key's geometry prepared (that is timed apart, and shared by all attacks on one
key); processor seconds add up over threads and grow little when the machine is shared. Memory is the peak that
tracemalloc sees in that run beyond what was there before: arrays, not BLAS's own buffers.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import show
from codedfl.cipher.mceliece.error_matrix import draw_error_matrix
from codedfl.cipher.mceliece.parameters import PAPER_92, PAPER_128, Parameters
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.scenario import load
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.attacks.supports.column_norms import ColumnNorms, UnexplainedNorms
from codedfl.security.attacks.supports.geometry import geometry_of
from codedfl.security.attacks.supports.metzner_kapturowski import MetznerKapturowski
from codedfl.security.attacks.supports.single_row import SingleRow
from codedfl.security.attacks.supports.subspace_matching import SubspaceMatching
from codedfl.security.contract import Attack
from codedfl.security.scoring import Truth, score
from codedfl.security.views.kinds import ParcelView, RowView, View
from codedfl.task import Problem

SETTINGS = {"92": PAPER_92, "128": PAPER_128}
SEED = b"benchmark of the attacks, fixed."
DEVICE = 3
ROWS = (0, 777, 1999)
MANY_ERRORS = 500
SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)
LARGEST_ERROR = 1e-5
LONGEST = 15.0
MEGABYTE = 2.0**20


@dataclass(frozen=True, eq=False)
class Trial:
    """One attack on one view, and the truth that it is held against."""

    label: str
    attack: Attack[Any]
    view: View
    truth: Truth


def main() -> dict[str, Any]:
    """Run every attack under both keys."""
    A = Problem.build(load("paper-92")).shards[DEVICE].gram
    results: dict[str, Any] = {}
    for name, parameters in SETTINGS.items():
        print(f"  -- claimed {name} bits, t = {parameters.t}, beta = {parameters.beta}", flush=True)
        keys = generate_keys(parameters, dtype="float32", seed=SEED)
        print("  preparation of the key", flush=True)
        _, prepared = _measured(lambda keys=keys: geometry_of(keys.public.G))  # type: ignore[misc]
        results[name] = {"preparation": prepared}
        for trial in trials(keys, A):
            results[name][trial.label] = run(trial)
        total = prepared["seconds"] + results[name]["left-kernel"]["seconds"]
        show("left-kernel with preparation: seconds", total, LONGEST, "s")
        results[name]["noise"] = noise_curve(keys, A)
    return results


def trials(keys: KeyPair, A: np.ndarray) -> Iterator[Trial]:
    """Every attack with a view of its own kind; add further ones here."""
    public, support = keys.public, keys.private.support(1)
    p = public.parameters
    truth = Truth(gram=A, support=support.positions, length=p.n)
    words = encrypt(public, A, support, seed=SEED).words
    parcel = ParcelView(public.G, words, p.t, p.beta)
    for attack in (LeftKernel(), SubspaceMatching(), ColumnNorms(), UnexplainedNorms()):
        yield Trial(attack.name, attack, parcel, truth)
    for index in ROWS:
        row = Truth(gram=A[index : index + 1], support=support.positions, length=p.n)
        yield Trial(f"single-row {index}", SingleRow(), RowView(public.G, words[index], p.t), row)
    yield many_errors(keys, A, MANY_ERRORS, SingleRow())
    for rank in (p.beta, p.t):
        disturbed = with_errors(keys, A, rank, 1.0)
        for attack in (MetznerKapturowski(), LeftKernel()) if rank == p.t else (MetznerKapturowski(),):
            yield Trial(f"{attack.name}, errors of rank {rank}", attack, disturbed, truth)


def with_errors(keys: KeyPair, A: np.ndarray, rank: int, noise: float) -> ParcelView:
    """A parcel as the cipher makes it, but for the rank and the scale of its errors."""
    p, positions = keys.public.parameters, keys.private.support(1).positions
    words = keys.public.encode(A).words.copy()
    columns = words[:, positions]
    scale = noise * np.sqrt(np.mean(columns.astype(np.float64) ** 2, axis=0))
    words[:, positions] += draw_error_matrix(len(A), rank, scale, SEED).dense().astype(words.dtype)
    return ParcelView(keys.public.G, words, p.t, rank)


def many_errors(keys: KeyPair, A: np.ndarray, count: int, attack: Attack[RowView]) -> Trial:
    """One row with far more errors than the paper allows, each as large as a symbol."""
    rng = np.random.default_rng(0)
    word = keys.public.encode(A[:1]).words[0].copy()
    positions = np.sort(rng.permutation(word.size)[:count])
    word[positions] += (np.std(word) * rng.standard_normal(count)).astype(word.dtype)
    truth = Truth(gram=A[:1], support=positions, length=word.size)
    return Trial(f"{attack.name}, {count} errors", attack, RowView(keys.public.G, word, count), truth)


def run(trial: Trial) -> dict[str, Any]:
    """Run one attack and print how it fared."""
    print(f"  {trial.label}", flush=True)
    finding, cost = _measured(lambda: trial.attack.run(trial.view, np.random.default_rng(0)))
    result = score(finding, trial.truth)
    print(f"      {result.verdict}{f' ({result.remark})' if result.remark else ''}", flush=True)
    if result.relative_error is not None:
        show("    relative error", result.relative_error, LARGEST_ERROR)
    if result.support_found is not None:
        show("    share of the support found", result.support_found)
    return vars(result) | cost


def noise_curve(keys: KeyPair, A: np.ndarray) -> dict[str, list[float]]:
    """Share of the support that the lengths of columns give away, against the scale of the errors."""
    parameters: Parameters = keys.public.parameters
    positions = keys.private.support(1).positions
    curves: dict[str, list[float]] = {"scales": list(SCALES)}
    for attack in (ColumnNorms(), UnexplainedNorms()):
        shares = []
        for scale in SCALES:
            named = attack.run(with_errors(keys, A, parameters.beta, scale), np.random.default_rng(0)).support
            shares.append(float(np.isin(positions, named).mean()))
            show(f"{attack.name}: share of the support at noise {scale:g}", shares[-1])
        curves[attack.name] = shares
    return curves


def _measured(task: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what a task returns, and print and return what it cost."""
    tracemalloc.start()
    began, worked = time.perf_counter(), time.process_time()
    result = task()
    cost = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - worked}
    cost["megabytes"] = tracemalloc.get_traced_memory()[1] / MEGABYTE
    tracemalloc.stop()
    show("    seconds", cost["seconds"], unit="s")
    show("    processor seconds", cost["processor_seconds"], unit="s")
    show("    memory", cost["megabytes"], unit="MB")
    return result, cost


if __name__ == "__main__":
    main()
