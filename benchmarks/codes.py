"""The codes at the paper's size: ratios measured in one run, errors, frame error rates, other packages.

``python -m benchmarks.codes [--trials N] [--only PART] [--out FILE]``; a million trials by default.
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from codedfl.codes.bounds import johnson_bound, least_overlap
from codedfl.codes.constant_weight import affine_hyperplanes, affine_lines, family, partition_family
from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.diagnosis import decodable, draw_support
from codedfl.codes.erasure.inactivation import InactivationPlan
from codedfl.codes.frame_errors import frame_error_rate
from codedfl.codes.graph import TannerGraph, configuration_model, progressive_edge_growth
from codedfl.codes.mdpc import WEIGHTS, MdpcCode

N, K, DEGREE, ERASURES, WORDS = 4000, 2000, 45, 256, 10
TRIALS = 1_000_000
SEED = 1
LIMITS = {"peg / gemm": 2.0, "decode / gemm": 1.5, "error float32": 1e-5, "error float64": 1e-11}

Table = list[dict[str, Any]]


def alternate(*calls: Callable[[], Any], repeat: int) -> list[float]:
    """Least seconds of each call; they take turns, so that other load on the machine meets all of them."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(repeat):
        for call, record in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            record.append(time.perf_counter() - start)
    return [min(record) for record in times]


def graph_construction(n: int, m: int, degree: int) -> dict[str, Any]:
    """Both constructions against one dense n x n x n product in float32."""
    square = np.random.default_rng(SEED).random((n, n), dtype=np.float32)
    grow, shuffle, gemm = alternate(
        lambda: progressive_edge_growth(n, m, degree, seed=SEED),
        lambda: configuration_model(n, m, degree, seed=SEED),
        lambda: square @ square,
        repeat=3,
    )
    return {
        "peg_seconds": grow,
        "configuration_seconds": shuffle,
        "gemm_seconds": gemm,
        "peg / gemm": grow / gemm,
    }


def decoding(code: MdpcCode, erased: np.ndarray, words: int) -> Table:
    """Every decoder in both precisions: preparation, ratios to products of the same shape, errors."""
    rng = np.random.default_rng(SEED)
    messages = rng.standard_normal((words, code.k))
    exact = code.encode(messages)
    table = []
    for dtype in (np.float32, np.float64):
        damaged = exact.astype(dtype)
        damaged[:, erased] = 1e3
        factor = rng.standard_normal((code.n, erased.size)).astype(dtype)
        square = code.unscrambler(dtype)
        symbols = np.ascontiguousarray(damaged[:, : code.k])
        for name, decoder in DECODERS.items():
            start = time.perf_counter()
            plan = decoder.prepare(code, erased, dtype)
            prepare = time.perf_counter() - start
            seconds = alternate(
                partial(plan.decode, damaged),
                partial(np.matmul, damaged, factor),
                partial(plan.message, damaged),
                partial(np.matmul, symbols, square),
                repeat=50,
            )
            table.append(
                {
                    "decoder": name,
                    "dtype": np.dtype(dtype).name,
                    "prepare_seconds": prepare,
                    "decode_seconds": seconds[0],
                    "gemm_seconds": seconds[1],
                    "decode / gemm": seconds[0] / seconds[1],
                    "message / gemms": seconds[2] / (seconds[1] + seconds[3]),
                    "codeword error": relative(plan.decode(damaged), exact),
                    "message error": relative(plan.message(damaged), messages),
                    "amplification": plan.amplification,
                }
            )
    return table


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    """Relative error in the Frobenius norm."""
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def edge_weights(seeds: Sequence[int] = (1, 2, 3)) -> Table:
    """Each kind of edge weights, over several seeds: conditions, and errors of every decoder in both precisions."""
    table = []
    for weights in WEIGHTS:
        for seed in seeds:
            code = MdpcCode.build(N, K, DEGREE, seed=seed, weights=weights)
            erased = draw_support(code, ERASURES, np.random.default_rng(seed), DECODERS["peeling"])
            row = {
                "weights": weights,
                "seed": seed,
                "condition H": condition(code.H),
                "condition square part": condition(code.H[:, code.parity]),
                "condition erased": decodable(code, erased).condition,
            }
            messages = np.random.default_rng(seed).standard_normal((WORDS, K))
            for dtype in (np.float32, np.float64):
                words = code.encode(messages).astype(dtype)
                words[:, erased] = 1e3
                for name, decoder in DECODERS.items():
                    found = decoder.prepare(code, erased, dtype).message(words)
                    row[f"{name} {np.dtype(dtype).name}"] = relative(found, messages)
            table.append(row)
            print({key: shorten(value) for key, value in row.items()}, flush=True)
    return table


def condition(matrix: Any) -> float:
    """The 2-norm condition of independent rows; their Gram matrix squares it, which 16 digits bear here."""
    values = scipy.linalg.eigvalsh((matrix @ matrix.T).toarray())
    return float(np.sqrt(values[-1] / values[0]))


def larger_erasure_sets(sizes: Sequence[int] = (256, 384, 512)) -> Table:
    """Errors of the decoders on larger sets of erasures, which peeling does not restore."""
    code = MdpcCode.build(N, K, DEGREE, seed=SEED)
    messages = np.random.default_rng(SEED).standard_normal((WORDS, K))
    table = []
    for size in sizes:
        erased = draw_support(code, size, np.random.default_rng(SEED), DECODERS["least-squares"])
        row: dict[str, Any] = {"erasures": size, "condition erased": decodable(code, erased).condition}
        for dtype in (np.float32, np.float64):
            words = code.encode(messages).astype(dtype)
            words[:, erased] = 1e3
            for name in ("inactivation", "least-squares"):
                plan = DECODERS[name].prepare(code, erased, dtype)
                row[f"{name} {np.dtype(dtype).name}"] = relative(plan.message(words), messages)
                if isinstance(plan, InactivationPlan):
                    row["inactive"] = plan.inactive.size
        table.append(row)
    return table


def frame_errors(graphs: dict[str, TannerGraph], trials: int) -> Table:
    """Frame error rates at 256 and 254 erasures, with the cycles that set the graphs apart."""
    table = []
    for name, graph in graphs.items():
        for erasures in (ERASURES, ERASURES - 2):
            start = time.perf_counter()
            found = frame_error_rate(graph, erasures, trials=trials, seed=SEED)
            row = {"graph": name, **asdict(found), "seconds": time.perf_counter() - start}
            table.append(row | {"four_cycles": graph.four_cycles(), "girth": graph.girth()})
    return table


def supports() -> Table:
    """The families of supports for 256 positions, and what bounds them."""
    found = [
        partition_family(256, 64),
        affine_hyperplanes(4, 4),
        affine_hyperplanes(8, 2),
        affine_lines(16),
        family(256, 64, 16),
        family(256, 128, 4),
    ]
    return [
        {
            "kind": f.kind,
            "t": f.weight,
            "M": f.M,
            "overlap": f.overlap,
            "least possible": least_overlap(f.length, f.weight, f.M),
            "johnson bound": johnson_bound(f.length, f.weight, f.overlap),
        }
        for f in found
    ]


def peers(graph: TannerGraph, erased: np.ndarray, words: int) -> Table:
    """The same graph and erasures over the bits, the nearest problem that other packages solve."""
    columns = np.repeat(np.arange(graph.n), graph.degree)
    ones = np.ones(graph.edges, dtype=np.uint8)
    H = scipy.sparse.csr_matrix((ones, (graph.checks.ravel(), columns)), shape=(graph.m, graph.n))
    bits = np.random.default_rng(SEED).integers(0, 2, (words, erased.size), dtype=np.uint8)
    syndromes = (H[:, erased].toarray().astype(np.int64) @ bits.T % 2).astype(np.uint8)
    table: Table = []
    for package, solvers in {
        "ldpc": (ldpc_elimination, ldpc_belief),
        "galois": (galois_elimination,),
    }.items():
        try:
            importlib.import_module(package)
        except ImportError:
            table.append({"package": package, "way": "not installed"})
            continue
        for solver in solvers:
            found, prepare, apply = solver(H, erased, syndromes)
            row = {"package": package, "way": str(solver.__doc__).rstrip("."), "prepare_seconds": prepare}
            table.append(row | {"decode_seconds": apply, "restored": bool(np.array_equal(found, bits))})
    return table


def ldpc_elimination(H: Any, erased: np.ndarray, syndromes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """PluDecomposition of the erased columns, lu_solve a word."""
    from ldpc import mod2  # type: ignore[import-not-found, unused-ignore]

    start = time.perf_counter()
    plu = mod2.PluDecomposition(scipy.sparse.csr_matrix(H[:, erased]))
    plu.lu_solve(np.ascontiguousarray(syndromes[:, 0]))
    middle = time.perf_counter()
    found = [plu.lu_solve(np.ascontiguousarray(column)) for column in syndromes.T]
    return np.array(found), middle - start, time.perf_counter() - middle


def ldpc_belief(H: Any, erased: np.ndarray, syndromes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """BpDecoder, error probability 1/2 at the erased positions."""
    from ldpc import BpDecoder  # type: ignore[import-not-found, unused-ignore]

    chances = np.full(H.shape[1], 1e-12)
    chances[erased] = 0.5
    start = time.perf_counter()
    decoder = BpDecoder(H, error_channel=chances.tolist(), max_iter=50, bp_method="minimum_sum")
    middle = time.perf_counter()
    found = [decoder.decode(np.ascontiguousarray(column))[erased] for column in syndromes.T]
    return np.array(found), middle - start, time.perf_counter() - middle


def galois_elimination(H: Any, erased: np.ndarray, syndromes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """GF(2) row reduction of the erased columns beside all words."""
    import galois  # type: ignore[import-not-found, unused-ignore]

    system = galois.GF2(np.hstack([H[:, erased].toarray(), syndromes]))
    system[:8, :8].row_reduce()
    start = time.perf_counter()
    reduced = system.row_reduce(ncols=erased.size)
    return np.asarray(reduced[: erased.size, erased.size :]).T, 0.0, time.perf_counter() - start


def main(trials: int = TRIALS) -> dict[str, Any]:
    """Measure everything; prints tables and returns them."""
    construction = graph_construction(N, N - K, DEGREE)
    show("graph construction", [construction])
    start = time.perf_counter()
    code = MdpcCode.build(N, K, DEGREE, seed=SEED)
    build = time.perf_counter() - start
    report = asdict(code.report()) | {"build_seconds": build}
    show("code", [report])
    erased = draw_support(code, ERASURES, np.random.default_rng(SEED), DECODERS["peeling"])
    decoders = decoding(code, erased, WORDS)
    show("decoding", decoders)
    kinds, larger = edge_weights(), larger_erasure_sets()
    show("edge weights", kinds)
    show("larger sets of erasures", larger)
    others = peers(code.graph, erased, WORDS)
    show("other packages, over the bits", others)
    families = supports()
    show("supports", families)
    graphs = {"peg": code.graph, "configuration": configuration_model(N, N - K, DEGREE, seed=SEED)}
    rates = frame_errors(graphs, trials)
    show("frame errors", rates)
    squares = [row for row in decoders if row["decoder"] == "least-squares"]
    measured = {
        "peg / gemm": construction["peg / gemm"],
        "decode / gemm": max(row["decode / gemm"] for row in squares),
        **{f"error {row['dtype']}": row["message error"] for row in squares},
    }
    limits = [{"what": k, "measured": v, "limit": LIMITS[k], "kept": v <= LIMITS[k]} for k, v in measured.items()]
    show("limits", limits)
    return {
        "construction": construction,
        "code": report,
        "decoding": decoders,
        "edge_weights": kinds,
        "larger_erasure_sets": larger,
        "peers": others,
        "supports": families,
        "frame_errors": rates,
        "limits": limits,
    }


def show(title: str, rows: Table) -> None:
    """Print rows as aligned columns."""
    print(f"\n{title}")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [keys] + [[shorten(row.get(key, "")) for key in keys] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    for line in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(),
            flush=True,
        )


def shorten(value: Any) -> str:
    """Three digits of a number, anything else as it is."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="erasure patterns per frame error rate")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parts = {"edge-weights": edge_weights, "larger-erasure-sets": larger_erasure_sets}
    parser.add_argument("--only", choices=list(parts), help="measure this part alone")
    options = parser.parse_args()
    results: Any = parts[options.only]() if options.only else main(options.trials)
    if options.only:
        show(options.only, results)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")
