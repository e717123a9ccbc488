"""Homomorphic encryption at the paper's size: CKKS for real on one matrix, and the time it would take on the fleet.

    python -m benchmarks he

A 2000 x 2000 Gram matrix is encrypted as a whole, multiplied by ten classes and decrypted, all on one thread; times are
processor times, which other work on the machine hardly changes, and ratios to sealing (one-time pads) are of the same
run. Times of the fleet are predicted with ``backend = "costs"``; without TenSEAL only those are.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.cipher import CLASSES, gram_matrix
from benchmarks.measure import show
from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import SCALE, Lattice
from codedfl.cipher.mceliece.parameters import PAPER_92
from codedfl.cipher.seals import Z_32, Domain, FixedPoint, Pad, PadLedger, Seed, seal, unpack_upper
from codedfl.scenario import load
from codedfl.studies.epochs_to_target import ASSUMED
from codedfl.studies.plan import Shapes, predict, probe
from codedfl.training.timing import band

DIMENSION = PAPER_92.k
DEVICES = 25
DRAWS = 100
FEW = 40
"""Ciphertexts of which single operations are timed."""
DELTAS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
FLEET = {"minibatch": "paper", "code-based": "paper-92", "sealed": "paper", "he": "paper"}


def best_times(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Smallest processor time of each action over rounds in which all take turns; one round before warms up."""
    best = dict.fromkeys(actions, float("inf"))
    for number in range(rounds + 1):
        for name, action in actions.items():
            start = time.process_time()
            action()
            if number:
                best[name] = min(best[name], time.process_time() - start)
    return best


def real() -> dict[str, Any]:
    """One matrix under CKKS: what encryption, a reply and decryption take, and how exact the product is."""
    lattice = Lattice.holding(DIMENSION)
    secret = ckks.CkksSecretKey(lattice)
    public = ckks.CkksPublicKey(lattice, secret.public_words)
    A = gram_matrix(np.random.default_rng(3), "float32")
    bound = float(np.abs(A).max())
    form = FixedPoint.choose(Z_32, entry_bound=bound, summands=DEVICES, dimension=DIMENSION, model_steps=16)
    rows = Z_32.centred(unpack_upper(form.encode_symmetric(A)))
    theta = np.random.default_rng(4).standard_normal((DIMENSION, CLASSES))
    model = form.encode_model(theta, longest=lattice.longest(DEVICES))
    left = Z_32.centred(model.residues)
    exports, ledger, seed = iter(range(1 << 30)), PadLedger(), Seed()
    residues = Z_32.residues(left)
    held = Z_32.residues(rows)
    C: list[Any] = [None]

    def encrypt() -> None:
        C[0] = public.encrypt(rows)

    with threadpool_limits(1):
        times = best_times({"encrypt_matrix": encrypt}, 2)
        reply = public.multiply(left, C[0])
        tasks = {
            "encrypt_ciphertext": lambda: public.encrypt(rows[:2]),
            "reply": lambda: public.multiply(left, C[0]),
            "add_parcel": lambda: public.add(C[0], C[0]),
            "pack_parcel": lambda: lattice.to_bytes(C[0]),
            "decrypt_sum": lambda: secret.decrypt(reply),
            "seal_matrix": lambda: seal(form.encode_symmetric(A), Pad(Z_32, seed, Domain(0, next(exports))), ledger),
            "sealed_reply": lambda: Z_32.product(residues, held, workers=1),
        }
        times |= best_times(tasks, 5) | _by_seal(lattice, public, left)
    result: dict[str, Any] = {f"{name}_seconds": value for name, value in times.items()}
    result |= {"degree": lattice.degree, "ciphertext_bytes": lattice.ciphertext_bytes, "ciphertexts": len(C[0])}
    result |= {
        "parcel_bits": 8 * lattice.to_bytes(C[0]).nbytes,
        "macs_of_a_reply": lattice.product_macs(CLASSES, DIMENSION),
    }
    _show_times(times, lattice)
    return result | _exactness(secret, reply, left @ rows, form, A, model)


def _by_seal(lattice: Lattice, public: ckks.CkksPublicKey, left: Any) -> dict[str, float]:
    """A product with a plaintext and a sum as SEAL's own evaluator does them, for each of a few ciphertexts."""
    tools: Any = ckks._tools(lattice.degree)
    words = public.encrypt(np.ones((2, DIMENSION), np.int64))[0]
    with ckks._scratch() as path:
        one, total = (tools.ciphertexts.fill(tools.seal.Ciphertext(), tools.context, words, path) for _ in range(2))
    evaluator, product = tools.seal.Evaluator(tools.context), tools.seal.Ciphertext()
    plain = tools.encode(left[0, 0] - left[0, 1] * tools.iota, 1.0)

    def few() -> None:
        for _ in range(FEW):
            evaluator.multiply_plain(one, plain, product)
            evaluator.add_inplace(total, product)

    return {"seal_multiply_add": best_times({"few": few}, 5)["few"] / FEW}


def _show_times(times: dict[str, float], lattice: Lattice) -> None:
    count = lattice.count(DIMENSION)
    show("encrypt one ciphertext (two rows)", 1e3 * times["encrypt_ciphertext"], unit="ms")
    show("encrypt a matrix", times["encrypt_matrix"], unit="s")
    show("encrypt a matrix / encode, pack and seal it in Z_2^32", times["encrypt_matrix"] / times["seal_matrix"])
    show(f"bytes of a ciphertext, N = {lattice.degree}", lattice.ciphertext_bytes)
    show("a parcel", 8e-6 * count * lattice.ciphertext_bytes, unit="Mbit")
    show("a reply, ten classes", times["reply"], unit="s")
    show("a reply / the product in Z_2^32", times["reply"] / times["sealed_reply"])
    show("SEAL's evaluator: multiply and add, one ciphertext", 1e6 * times["seal_multiply_add"], unit="us")
    scaled = times["seal_multiply_add"] * count * CLASSES
    show(f"  the same scaled to a reply, {count} ciphertexts x {CLASSES} classes", scaled, unit="s")
    show("decrypt the sum of the replies", times["decrypt_sum"], unit="s")


def _exactness(
    secret: ckks.CkksSecretKey, reply: Any, expected: Any, form: FixedPoint, A: Any, model: Any
) -> dict[str, float]:
    """Numbers that are not exact, the noise beside half a step, and the error that rounding the data makes."""
    wrong = int(np.count_nonzero(secret.decrypt(reply)[:, 0, :DIMENSION] != expected))
    with ckks._scratch() as path:
        noise = max(
            np.abs(secret._slots(words, path).real[:DIMENSION] - row).max()
            for words, row in zip(reply, expected, strict=True)
        )
    plain = A.astype(np.float64) @ model.value
    found = np.ldexp(expected.astype(np.float64), -(model.bits + form.data_bits)[:, None]).T
    error = float(np.linalg.norm(found - plain) / np.linalg.norm(plain))
    show("numbers that are not exact, of 20000", wrong, 0)
    show("largest noise / half a step", 2 * noise)
    show("relative error of the product, from rounding the data", error)
    length = float(np.linalg.norm(np.ldexp(model.value, model.bits), axis=0).max())
    return {
        "wrong": wrong,
        "noise_over_half_step": 2 * float(noise),
        "relative_error": error,
        "model_length": length,
        "scale": SCALE,
    }


def fleet() -> dict[str, Any]:
    """Predicted virtual seconds to 95% on the paper's fleet, as many epochs as are assumed for gradient descent."""
    epochs = ASSUMED["gradient-descent"].count
    results: dict[str, Any] = {"epochs": epochs}
    variants = [(name, {}) for name in FLEET] + [("he", {"schemes.he.delta": delta}) for delta in DELTAS]
    for name, changes in variants:
        scenario = load(FLEET[name]).with_settings({"scheme": name, **changes})
        if name == "he":
            scenario = scenario.with_settings({"schemes.he.backend": "costs"})
        hollow = Shapes.told(scenario, samples=60_000, outputs=CLASSES).hollow(scenario)
        found = band(predict(probe(scenario, hollow), scenario, epochs=epochs, draws=DRAWS)[:, -1])
        label = name + "".join(f", Delta = {value:g}" for value in changes.values())
        results[label] = {"seconds": found.mean, "low": found.low, "high": found.high}
        show(f"{label}: predicted time of {epochs} epochs", found.mean, unit="s")
    for name in ("code-based", "sealed", "he"):
        results[name]["speedup"] = results["minibatch"]["seconds"] / results[name]["seconds"]
        show(f"{name}: speed-up over mini-batch FL", results[name]["speedup"])
    return results


def main() -> dict[str, Any]:
    """All measurements, as one dictionary."""
    if not ckks.installed():
        print("  CKKS of TenSEAL: not measured (the package is not installed)")
        return {"real": "not measured", "fleet": fleet()}
    return {"real": real(), "fleet": fleet()}


if __name__ == "__main__":
    main()
