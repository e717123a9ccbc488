"""What an earlier sender learns when it eavesdrops on a device that forwards: section IV-B judged at the paper's size.

Device j sent C_j = A_j G + E_j to device i, whose sum is D_i = (A_i + A_j) G + E_j. Device i forwards D_i, or D_i + E_i
with a fresh error; the paper says that device j then "learns only t error-free positions" of D_i + E_i.
"""

import time
from typing import Any

import numpy as np

from benchmarks.attacks import SEED, SETTINGS
from benchmarks.measure import show
from codedfl.cipher.mceliece.private_key import generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.codes.constant_weight import Family
from codedfl.scenario import load
from codedfl.security.attacks.forwarding import Forwarding
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.contract import Attack
from codedfl.security.estimates.known_supports import levels_after_overlap
from codedfl.security.estimates.parameters import DecodingProblem
from codedfl.security.scoring import Truth, score
from codedfl.security.views.kinds import ForwardView, ParcelView, View
from codedfl.task import Problem


def main() -> dict[str, Any]:
    """Attack both kinds of forwarding under both keys, and print what the paper's own argument leaves."""
    shards = Problem.build(load("paper-92")).shards
    A, other = shards[0].gram, shards[1].gram
    results: dict[str, Any] = {}
    for name, parameters in SETTINGS.items():
        print(f"  -- claimed {name} bits, t = {parameters.t}", flush=True)
        keys = generate_keys(parameters, dtype="float32", seed=SEED)
        G, p = keys.public.G, parameters
        known, fresh = keys.private.support(0), keys.private.support(1)
        sent = encrypt(keys.public, other, known, seed=SEED)
        plain = (keys.public.encode(A) + sent).words
        masked = (encrypt(keys.public, A, fresh, seed=SEED[::-1]) + sent).words
        truth = Truth(gram=A, support=fresh.positions, length=p.n)
        meant = {
            "no fresh error": (Forwarding(), ForwardView(G, (sent.words,), plain)),
            "fresh error": (LeftKernel(), ParcelView(G, masked - sent.words, p.t, p.beta)),
        }
        results[name] = {label: _attack(label, *tried, truth) for label, tried in meant.items()}
        meeting = int(np.isin(known.positions, fresh.positions).sum())
        results[name]["known positions without error"] = p.t - meeting
        show(f"of the {p.t} positions that it knows, without error", p.t - meeting)
        family = Family(p.t_tot, p.t, keys.private.family, "of the key")
        found = levels_after_overlap(DecodingProblem(p.n, p.k, p.t, p.beta, 32), family)
        results[name]["levels"] = [vars(entry) | {"level": entry.level} for entry in found]
        for entry in found:
            label = f"claimed level left to {entry.known}, who know {entry.errors} of {p.t} errors"
            show(f"{label} on {entry.positions} positions", entry.level)
    return results


def _attack(label: str, attack: Attack[Any], view: View, truth: Truth) -> dict[str, Any]:
    began = time.perf_counter()
    finding = attack.run(view, np.random.default_rng(0))
    seconds = time.perf_counter() - began
    result = score(finding, truth)
    named = 0 if finding.support is None else finding.support.size
    print(f"  {label}: {result.verdict}", flush=True)
    show("    relative error", result.relative_error or 0.0, 1e-5)
    show("    positions known to be without error", truth.length - named)
    if result.support_found is not None:
        show("    share of the support found", result.support_found)
    show("    seconds, key prepared on the way", seconds, unit="s")
    return vars(result) | {"seconds": seconds, "error_free": truth.length - named}
