"""How the paper's scheme draws its code, supports and errors: every choice trains the same model."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.mceliece.parameters import FAMILIES
from codedfl.cipher.randomness import Stream
from codedfl.codes.erasure.schedule import schedule
from codedfl.codes.mdpc import CONSTRUCTIONS, WEIGHTS
from codedfl.errors import ScenarioError
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes.sharing import code_based
from codedfl.schemes.sharing.code_based import CodeBased
from codedfl.task import Problem
from tiny import is_one_sentence, moved, scenario, trained

D, N, T_TOT, T, M = 40, 80, 16, 4, 4
FLEET = [{"count": 4, "mac_rate": 2e6}, {"count": 3, "mac_rate": 1e6}, {"count": 3, "mac_rate": 2e5}]
SIZES = {"n": N, "degree": 7, "t_tot": T_TOT, "t": T, "M": M, "beta": 2, "delta": 0.02}
CHOICES = [
    *({"weights": name} for name in WEIGHTS),
    *({"construction": name} for name in CONSTRUCTIONS),
    *({"family": name} for name in FAMILIES),
    *({"noise": size} for size in (0.1, 10)),
]


def wanted(**options: Any) -> Scenario:
    changes = {"scheme": "code-based", "features.dimension": D, "fleet.devices": FLEET, "training.epochs": 12}
    return scenario({**changes, "timing.draws": 2, "schemes.code-based": {**SIZES, **options}})


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.build(wanted())


def created(problem: Problem, **options: Any) -> CodeBased:
    scheme = schemes.create(wanted(**options), problem)
    assert isinstance(scheme, CodeBased)
    return scheme


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_every_choice_gives_the_plaintext_gradients(options: dict[str, Any], problem: Problem) -> None:
    state = trained(problem, wanted(**options))
    assert any(support is not None for _, _, support in moved(state))
    assert max(state.history.columns["gradient_error"]) <= 1e-4


def test_choices_reach_the_code_the_supports_and_the_errors(problem: Problem) -> None:
    private = created(problem, weights="ones").keys.private
    assert set(private.code.H.data) == {1.0}
    assert set(created(problem, weights="signs").keys.private.code.H.data) == {-1.0, 1.0}
    graphs = [created(problem, construction=name).keys.private.code.graph.checks for name in CONSTRUCTIONS]
    assert not np.array_equal(*graphs)
    blocks = created(problem, family="partition").keys.private
    assert not any(
        set(blocks.support(i).positions) & set(blocks.support(j).positions) for i, j in combinations(range(M), 2)
    )
    sizes = []
    for noise in (1, 100):
        scheme = created(problem, noise=noise)
        device, support = scheme.device(0, problem.shards[0]), scheme.keys.private.support(0)
        grant = {"index": np.array(0, np.int32), "positions": support.positions.astype(np.int32)}
        clean = device.held.words.copy()
        sizes.append(np.linalg.norm(device.export(grant, schemes.Work())["words"] - clean))
    assert sizes[1] == pytest.approx(100 * sizes[0], rel=1e-4)


@pytest.mark.parametrize(
    "options", [{"weights": "ones"}, {"weights": "signs"}, {"construction": "configuration"}], ids=str
)
def test_devices_encode_with_the_code_of_their_own_scheme(options: dict[str, Any], problem: Problem) -> None:
    """The products A G of one shard are kept between schemes; another code must not find those of the first."""
    for scheme in (created(problem), created(problem, **options), created(problem)):
        held = scheme.device(0, problem.shards[0]).held.words
        assert np.array_equal(held, problem.shards[0].gram @ scheme.keys.public.G)


def test_settings_that_share_a_code_share_the_product(problem: Problem) -> None:
    alike = [created(problem), created(problem, noise=2), created(problem, family="partition", t=2)]
    first, *others = [scheme.device(0, problem.shards[0]).held.words for scheme in alike]
    assert all(np.shares_memory(words, first) for words in others)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"family": "affine", "t_tot": 12}, "are no hyperplanes of AG"),
        ({"family": "partition", "M": 5}, "The partition family has 4 subsets, not 5"),
    ],
    ids=str,
)
def test_families_that_do_not_exist_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        runs.execute(wanted(**options), tmp_path / "run")
    assert words in str(error.value) and is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()


def test_decode_failures_are_the_sets_of_erasures_drawn_in_vain(problem: Problem, tmp_path: Path) -> None:
    """22 erasures stop peeling often: the sets before the key's must stall, and the key's must not."""
    options = {"t_tot": 22, "decoder": "peeling"}
    run = runs.execute(wanted(**options), tmp_path / "run", problem=lambda: problem)
    private = created(problem, **options).keys.private
    failures = run.summary["decode_failures"]
    assert failures >= 1
    for attempt in range(failures + 1):
        drawn = np.sort(Stream(code_based._seed(0, "keys"), f"erasures {attempt}").permutation(N)[:22])
        assert (schedule(private.code.H, drawn, inactivate=False).stuck.size == 0) == (attempt == failures)
    assert np.array_equal(drawn, np.sort(private.erasures))
