"""Sealed sharing at the paper's size: products, pads and the device's part, as ratios to what else would do the job.

    python -m benchmarks.sealing

Every ratio divides two times measured in this one run, in turns; the smallest time of each counts. The lattice-based
peer (CKKS of TenSEAL, one row of the matrix a ciphertext, which allows a product with a scalar) is measured on a few
rows and scaled to all of them; without the package it is not measured.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from threadpoolctl import threadpool_limits

from benchmarks.cipher import CLASSES, SEED, best_times, gram_matrix
from benchmarks.measure import show
from codedfl.cipher.mceliece.parameters import PAPER_92
from codedfl.cipher.mceliece.private_key import generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.cipher.seals import (
    FIELD_31,
    RINGS,
    Z_32,
    Domain,
    FixedPoint,
    Pad,
    PadLedger,
    Seed,
    packed_size,
    seal,
    unpack_upper,
)

ROUNDS = 200
LARGE_ROUNDS = 10
PEER_ROWS = 4
DIMENSION = PAPER_92.k
LIMITS = {"Z_2^32": 1.3, "Z_2^64": 2.5, "GF(2^31-1)": 3.0}


def products() -> dict[str, float]:
    """c x d by d x d in each ring, against the float32 product of BLAS on as many threads."""
    rng = np.random.default_rng(1)
    theta = rng.standard_normal((CLASSES, DIMENSION)).astype(np.float32)
    D = rng.standard_normal((DIMENSION, DIMENSION)).astype(np.float32)
    tasks: dict[str, Callable[[], object]] = {"float32": lambda: theta @ D}
    for ring in RINGS.values():
        left = rng.integers(0, ring.modulus - 1, theta.shape, dtype=ring.dtype)
        right = rng.integers(0, ring.modulus - 1, D.shape, dtype=ring.dtype)
        tasks[ring.name] = lambda ring=ring, left=left, right=right: ring.product(left, right, workers=2)
    with threadpool_limits(2):
        times = best_times(tasks, ROUNDS)
    # two spinning threads on a busy machine can be many times slower: ratios to a starved product mean nothing
    show("float32 product of BLAS, 2 threads", 1e3 * times["float32"], unit="ms")
    for name, limit in LIMITS.items():
        show(f"product in {name} / float32 product of BLAS, 2 threads", times[name] / times["float32"], limit)
    for name in RINGS:
        show(f"a multiply-add in {name}, 2 threads", 1e9 * times[name] / (CLASSES * DIMENSION**2), unit="ns")
    return {f"{name}_seconds": seconds for name, seconds in times.items()} | {
        f"{name}_over_blas": times[name] / times["float32"] for name in LIMITS
    }


def pad_generation() -> dict[str, float]:
    """Bytes of pads a second, against AES-256-CTR alone into memory that is there."""
    count = packed_size(DIMENSION)
    zeros, out = np.zeros(4 * count, np.uint8), np.empty(count, np.uint32)

    def raw() -> None:
        stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
        stream.update_into(zeros.data, out.view(np.uint8).data)

    pads = {ring.name: Pad(ring, Seed(SEED), Domain(0, 0)) for ring in (Z_32, FIELD_31)}
    tasks: dict[str, Callable[[], object]] = {"raw": raw}
    tasks |= {name: lambda pad=pad: pad.fill(out) for name, pad in pads.items()}
    tasks |= {"sum": lambda: pads[Z_32.name].add_to(out)}
    times = best_times(tasks, ROUNDS)
    for name in pads:
        show(f"pad in {name} / raw AES-CTR", times[name] / times["raw"], 1 / 0.6)
    show("raw AES-256-CTR", 4 * count / times["raw"] / 1e9, unit="GB/s")
    show("pad generated and added / raw AES-CTR", times["sum"] / times["raw"])
    return {f"{name}_seconds": seconds for name, seconds in times.items()}


def device() -> dict[str, Any]:
    """What one device does to hand over its matrix: sealed, under the paper's cipher, under CKKS."""
    A = gram_matrix(np.random.default_rng(3), "float32")
    keys = generate_keys(PAPER_92, dtype="float32", seed=SEED)
    support, seed, ledger = keys.private.support(0), Seed(), PadLedger()
    exports = iter(range(1 << 30))
    bound = float(np.abs(A).max())

    def sealed(ring: Any) -> Callable[[], object]:
        numbers = FixedPoint.choose(ring, entry_bound=bound, summands=25, dimension=DIMENSION, model_steps=16)
        return lambda: seal(numbers.encode_symmetric(A), Pad(ring, seed, Domain(0, next(exports))), ledger)

    tasks = {name: sealed(ring) for name, ring in RINGS.items()}
    tasks["paper"] = lambda: encrypt(keys.public, A, support)
    packed = seal(np.zeros(packed_size(DIMENSION), np.uint32), Pad(Z_32, seed, Domain(0, next(exports))), ledger)
    tasks["unpack"] = lambda: unpack_upper(packed)
    times = best_times(tasks, LARGE_ROUNDS)
    for name in RINGS:
        show(f"encode, pack and seal one matrix in {name} / the paper's encryption", times[name] / times["paper"])
    show("encode, pack and seal one matrix in Z_2^32", 1e3 * times["Z_2^32"], unit="ms")
    result: dict[str, Any] = {f"{name}_seconds": seconds for name, seconds in times.items()}
    peer = lattice_seconds(A)
    if peer is None:
        print("  CKKS of TenSEAL: not measured (the package is not installed)")
        return result | {"ckks_seconds": "not measured"}
    show(f"CKKS of TenSEAL ({PEER_ROWS} rows, scaled to {DIMENSION}) / sealing in Z_2^32", peer / times["Z_2^32"])
    return result | {"ckks_seconds": peer, "ckks_rows_measured": PEER_ROWS}


def lattice_seconds(A: np.ndarray) -> float | None:
    """Encryption of all rows by CKKS, from the time of a few.

    Degree 4096 has 2048 slots, enough for one row; 109 bits of modulus are the most at 128-bit security and leave room
    for one product.
    """
    try:
        tenseal: Any = importlib.import_module("tenseal")
    except ImportError:
        return None
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=4096, coeff_mod_bit_sizes=[40, 29, 40])
    context.global_scale = 2.0**29
    rows = [row.tolist() for row in A[:PEER_ROWS].astype(np.float64)]
    times = best_times({"rows": lambda: [tenseal.ckks_vector(context, row) for row in rows]}, LARGE_ROUNDS)
    return times["rows"] * DIMENSION / PEER_ROWS


def main() -> dict[str, Any]:
    """All measurements, as one dictionary."""
    return {"products": products(), "pads": pad_generation(), "device": device()}


if __name__ == "__main__":
    main()
