"""Comparison with vectors from exact fractions in plain Python (tests/golden/make_codes.py)."""

import importlib.util
import json
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from codedfl.codes.constant_weight import affine_lines
from codedfl.codes.erasure import DECODERS
from codedfl.codes.erasure.diagnosis import decodable
from codedfl.codes.erasure.schedule import schedule
from codedfl.codes.frame_errors import frame_error_rate
from codedfl.codes.graph import TannerGraph
from codedfl.codes.mdpc import MdpcCode

GOLDEN = Path(__file__).parent.parent / "golden"


def load(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def exact(rows):
    return np.array([[float(Fraction(x)) for x in row] for row in rows])


@pytest.fixture(scope="module")
def golden():
    return load("codes_erasures")


@pytest.fixture(scope="module")
def code(golden):
    H = scipy.sparse.csr_matrix(exact(golden["H"]))
    return MdpcCode.from_parity_check(H, rng=np.random.default_rng(0))


def test_files_are_what_the_script_makes():
    place = importlib.util.spec_from_file_location("make_codes", GOLDEN / "make_codes.py")
    script = importlib.util.module_from_spec(place)
    place.loader.exec_module(script)
    for name, content in script.contents().items():
        assert json.loads(json.dumps(content)) == load(name)


def test_every_erased_set_is_judged_as_exact_elimination_judges_it(golden, code):
    for case in golden["cases"]:
        erased = np.array(case["erased"])
        diagnosis = decodable(code, erased)
        assert diagnosis.rank == case["rank"]
        assert diagnosis.dependent.tolist() == case["dependent"]
        assert schedule(code.H, erased, inactivate=False).stuck.tolist() == case["stopping_set"]


def test_every_decodable_set_is_restored_to_the_exact_symbols(golden, code):
    words = exact(golden["words"])
    for case in golden["cases"][::9]:
        erased = np.array(case["erased"])
        if case["rank"] < erased.size:
            continue
        damaged = words.copy()
        damaged[:, erased] = np.nan
        for name, decoder in DECODERS.items():
            if name == "peeling" and case["stopping_set"]:
                continue
            plan = decoder.prepare(code, erased)
            # the stored words are exact codewords up to the rounding of the fractions, one eps each
            unit = np.finfo(float).eps * (plan.amplification + 1)
            bound = (plan.error_bound + unit) * np.abs(words).max()
            assert np.abs(plan.decode(damaged) - words).max() <= bound


def test_frame_error_rate_is_the_counted_one():
    golden = load("codes_peeling")
    graph = TannerGraph(golden["n"], golden["m"], np.array(golden["checks"]))
    assert graph.four_cycles() == golden["four_cycles"]
    for size, stopped in golden["stopped"].items():
        truth = stopped / comb(golden["n"], int(size))
        found = frame_error_rate(graph, int(size), trials=40_000, seed=11)
        # five standard deviations of a binomial: fifteen comparisons fail by chance once in 10^5 runs
        assert abs(found.rate - truth) <= 5 * np.sqrt(truth * (1 - truth) / 40_000)


@pytest.mark.parametrize("q", [3, 4])
def test_lines_are_those_of_another_arithmetic(q):
    assert sorted(affine_lines(q).sets.tolist()) == load("codes_families")[str(q)]
