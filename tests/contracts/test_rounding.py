"""The promise of exact schemes: bounds on errors are stated before training, hold, are tight, and are enforced."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.seals import RINGS
from codedfl.engines import VirtualEngine
from codedfl.errors import ScenarioError, TrainingError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, Public, Rounding, Scheme, Server, Work
from codedfl.schemes.plain.conventional import Conventional
from codedfl.schemes.rounding import relative_error
from codedfl.schemes.sealing import choose_formats
from codedfl.task import Problem, Shard
from codedfl.training import State, train
from tiny import conversed, is_one_sentence, known, placed, problem, scenario, trained

EXACT = [name for name in SCHEMES if known(name).exact]
FEATURES, OUTPUTS, SIZES = 6, 2, [5, 9, 1, 12]
FLEET = [{"count": len(SIZES), "mac_rate": 1e6}]
OPTIONS = {
    "he": {"backend": "costs"},
    "code-based": {"n": 24, "degree": 3, "t_tot": 4, "t": 2, "M": 2, "beta": 1},
}


def wanted(name: str, changes: dict[str, Any] | None = None) -> Scenario:
    own = {"scheme": name, "fleet.devices": FLEET, "features.kind": "none", "task.accuracy": 0.5}
    return scenario({**own, f"schemes.{name}": OPTIONS.get(name, {}), **(changes or {})})


def changed(given: Problem, change: Callable[[Shard], tuple[Any, Any]]) -> Problem:
    shards = tuple(Shard(*(np.asarray(part, given.dtype) for part in change(shard))) for shard in given.shards)
    return Problem(shards, given.x_test, given.y_test, given.kind, given.ridge)


def outlier(shard: Shard) -> tuple[Any, Any]:
    x = shard.x.copy()
    x[0, 0] *= 300
    return x, shard.y


AWKWARD: dict[str, Callable[[Shard], tuple[Any, Any]]] = {
    "as drawn": lambda shard: (shard.x, shard.y),
    "unscaled": lambda shard: (shard.x * [1e4, 300, 1, 1, 0.1, 1e-3], shard.y * 1e3),
    "constant column": lambda shard: (np.where(np.arange(FEATURES) == 2, 0.1, shard.x), shard.y),
    "collinear": lambda shard: (shard.x[:, [0, 0, 0, 1, 1, 1]] + 1e-7 * shard.x, shard.y),
    "one outlier": outlier,
    "far from zero": lambda shard: (1e3 + 1e-2 * shard.x, shard.y + 7),
}


def exact_gradient(shards: Any, point: np.ndarray) -> np.ndarray:
    """1/m sum X^T (X Theta - Y) in the long format of the machine, whose rounding is 2000 times finer than float64."""
    theta = point.astype(np.longdouble)
    parts = [(shard.x.astype(np.longdouble), shard.y.astype(np.longdouble)) for shard in shards]
    return sum(x.T @ (x @ theta - y) for x, y in parts) / sum(len(x) for x, _ in parts)


def measured(scheme: Scheme[Any], given: Problem, model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The error of the second epoch's gradient against exact arithmetic, and the point of that gradient."""
    server, devices = placed(scheme, given.shards)
    assert conversed(server, devices, 1, np.zeros(given.shape)) is not None
    points: list[np.ndarray | None] = []
    ask = server.ask
    server.ask = lambda *asked: (points.append((found := ask(*asked)).point), found)[1]  # type: ignore[method-assign,func-returns-value]
    gradient = conversed(server, devices, 2, model)
    assert gradient is not None
    point = model.astype(given.dtype) if points[0] is None else points[0]
    return np.asarray(gradient - exact_gradient(given.shards, point), np.float64), point


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("data", AWKWARD)
@pytest.mark.parametrize("name", EXACT)
def test_errors_are_within_the_stated_bound(name: str, data: str, dtype: str) -> None:
    """Against exact arithmetic, at random models; servers also round sums in float64 a few times."""
    given = changed(problem(SIZES, features=FEATURES, outputs=OUTPUTS, dtype=dtype), AWKWARD[data])
    scheme = schemes.create(wanted(name), given)
    assert scheme.rounding is not None
    server_side = scheme.rounding.plus(scheme.public, 20, np.float64)
    for seed in range(3):
        model = np.random.default_rng(seed).standard_normal(given.shape)
        error, point = measured(scheme, given, model)
        bound = server_side.entries(np.abs(point).sum(axis=0)[None], given.samples)[0]
        assert np.all(np.abs(error) <= bound)


@pytest.mark.parametrize("solver", ["gradient-descent", "conjugate-gradients"])
@pytest.mark.parametrize("data", AWKWARD)
@pytest.mark.parametrize("name", EXACT)
def test_trainings_are_within_the_bounds_that_they_record(name: str, data: str, solver: str) -> None:
    given = changed(problem(SIZES, features=FEATURES, outputs=OUTPUTS), AWKWARD[data])
    rate = 0.1 * given.largest_stable_rate()
    solver = "closed-form" if name == "one-shot" else solver
    changes = {"training.solver": solver, "training.learning_rate": rate, "training.epochs": 12}
    if (name, data, solver) == ("he", "unscaled", "conjugate-gradients"):
        with pytest.raises(TrainingError, match="training diverged"):  # 32 bits do not hold columns of 1e-3 to 1e4
            trained(given, wanted(name, changes))
        return
    columns = trained(given, wanted(name, changes)).history.columns
    assert np.all(np.array(columns["gradient_error"]) <= columns["gradient_bound"])
    assert np.isfinite(columns["gradient_bound"]).all()


RESIDUES = [
    (name, ring)
    for name, letter in (("sealed", "Z"), ("one-shot", "Z"), ("sealed-coded", "GF"), ("coded-padded", "GF"))
    for ring in RINGS
    if ring.startswith(letter)
]


@pytest.mark.parametrize(("name", "ring"), [*RESIDUES, ("he", "Z_2^32")])
def test_data_half_a_step_off_reach_the_bound(name: str, ring: str) -> None:
    """Every device's entries are an odd number of steps and a half, which all round up: N/2 steps in the sum.

    Of the bound, a thousandth at most is for rounding in float64, in rings below 60 bits.
    """
    option = {} if name == "he" else {f"schemes.{name}.ring": ring}
    given = problem([8] * 4, features=FEATURES, outputs=OUTPUTS)
    scheme: Any = schemes.create(wanted(name, option), given)
    formats, shape = scheme.formats, given.shape
    for shard in given.shards:
        gram, moments = (np.full(size, 1.5) for size in ((shape[0], shape[0]), shape))
        vars(shard).update(gram=gram * formats.gram.data_step, moments=moments * formats.moments.data_step)
    model = np.zeros(shape)
    model[0] = 1.0
    server, devices = placed(scheme, given.shards)
    for epoch in (1, 2):
        gradient = conversed(server, devices, epoch, model if epoch == 2 else 0 * model)
    exact = 4 * (1.5 * formats.gram.data_step - 1.5 * formats.moments.data_step) / given.samples
    error = np.abs(np.asarray(gradient) - exact).max()
    # right-hand sides are encoded with the other sign, except in one-shot, and round to even as well
    steps = 2 * formats.gram.data_step + np.array([-2, 2]) * formats.moments.data_step
    assert np.isclose(error, np.abs(steps) / given.samples, rtol=1e-9).any()
    bound = scheme.rounding.entries(np.ones((1, OUTPUTS)), given.samples).max()
    largest = 2 * (formats.gram.data_step + formats.moments.data_step) / given.samples
    assert largest <= bound
    if RINGS[ring].bits < 60:
        assert bound <= largest * 1.001


def test_bounds_on_floating_point_are_within_a_factor_of_ten_of_what_happens() -> None:
    """One row of two features on one device: the worst of many draws."""
    worst = 0.0
    for seed in range(300):
        given = problem([1], features=2, outputs=1, dtype="float32", kind="regression", seed=seed)
        given = changed(given, lambda shard: (np.sign(shard.x) * (1 + np.abs(shard.x) % 1) / 2, shard.y % 1))
        scheme = schemes.create(wanted("conventional", {"fleet.devices": [{"count": 1, "mac_rate": 1e6}]}), given)
        error, point = measured(scheme, given, np.random.default_rng(seed).standard_normal(given.shape))
        assert scheme.rounding is not None
        worst = max(worst, np.abs(error).max() / scheme.rounding.entries(np.abs(point).sum(axis=0)[None], 1).max())
    assert 0.1 <= worst <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_short_chain_of_roundings_exceeds_its_bound(dtype: str) -> None:
    """Of k roundings that each err by the unit u, up or down; the bound is larger in second order only."""
    unit = Fraction(float(np.finfo(dtype).eps)) / 2
    for count in (1, 2, 10, 50):
        worst = (1 + unit) ** count - 1
        assert worst <= Fraction(relative_error(count, dtype)) <= worst * (1 + 2 * count * unit)


@pytest.mark.parametrize("count", [1, 10, 1000, 60_000])
def test_errors_of_a_chain_of_roundings(count: int) -> None:
    """A sum of equal numbers one by one, whose errors are not random, and a random walk."""
    for values in (np.full(count, 0.1, np.float32), np.random.default_rng(0).standard_normal(count).astype(np.float32)):
        total = np.float32(0)
        for value in values:
            total = np.float32(total + value)
        size = np.abs(values.astype(np.float64)).sum()
        bound = min(count, 10 * np.sqrt(count)) * 2.0**-24 * 1.01
        assert relative_error(count, np.float32) <= bound
        if values[0] != np.float32(0.1) or count <= 1000:  # blocks of matrix products are no longer than that
            assert abs(total - values.astype(np.float64).sum()) <= relative_error(count, np.float32) * size


class _Lying(Server):
    """A server whose gradients are off by a little from some epoch on."""

    def __init__(self, server: Any, since: int, by: float) -> None:
        self._server, self._since, self._by = server, since, by

    def ask(self, epoch: int, model: np.ndarray) -> Any:
        return self._server.ask(epoch, model)

    def combine(self, epoch: int, replies: Any, work: Work) -> np.ndarray:
        gradient = self._server.combine(epoch, replies, work).copy()
        gradient[1, 1] += self._by if epoch >= self._since else 0.0
        return np.asarray(gradient)


@pytest.mark.parametrize("since", [1, 4, 12])
def test_a_scheme_that_breaks_its_promise_is_stopped(since: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a hundred times its bound, in one entry; a hundredth of it is not seen, and nothing is held without bounds."""
    given = problem(SIZES, features=FEATURES, outputs=OUTPUTS)
    chosen = wanted("conventional", {"training.epochs": 14, "training.learning_rate": 0.01})
    bound = trained(given, chosen).history.columns["gradient_bound"][-1] * np.linalg.norm(given.zero_gradient)
    make = Conventional.server
    for by, stopped in ((0.01 * bound, False), (100 * bound, True)):
        monkeypatch.setattr(Conventional, "server", lambda self, by=by: _Lying(make(self), since, by))
        if not stopped:
            assert trained(given, chosen).epoch == 14
            continue
        with pytest.raises(TrainingError, match=f"'conventional' breaks its promise in epoch {since}:") as error:
            trained(given, chosen)
        assert is_one_sentence(str(error.value))
    monkeypatch.setattr(Conventional, "rounding", None)
    columns = trained(given, chosen).history.columns
    assert max(columns["gradient_error"]) > 0
    assert np.isnan(columns["gradient_bound"]).all()


def test_wrong_bounds_on_the_data_are_found() -> None:
    """Facts that state features 2^30 times too small; devices that compute in clear do not look at them."""
    given, chosen = problem(SIZES, features=FEATURES, outputs=OUTPUTS, dtype="float32"), wanted("conventional")
    scheme = schemes.create(chosen, given)
    scheme = scheme.with_public(replace(scheme.public, largest_feature=scheme.public.largest_feature / 2**30))
    devices = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    engine = VirtualEngine(devices, DelayModel.create(chosen.fleet, chosen.links), seed=0, draw=0)
    with pytest.raises(TrainingError, match="correct the scheme, or the bounds on the data"):
        train(given, chosen, scheme, engine, State.fresh(given))


REFUSED = {
    "float32": ("conventional", {}, "float32", 'set task.precision = "float64" or raise task.accuracy'),
    "the ring that is wanted": ("sealed", {"schemes.sealed.ring": "Z_2^32"}, "float64", "few steps in Z_2^32; choose"),
    "the field that is wanted": (
        "sealed-coded",
        {"schemes.sealed-coded.ring": "GF(2^31-1)"},
        "float64",
        "4 devices and 6 features, which leave too few steps in GF(2^31-1); choose another scheme or raise",
    ),
    "the only ring": ("he", {}, "float64", "few steps in Z_2^32; choose another scheme or raise task.accuracy"),
    "float32 in residues": (
        "sealed",
        {},
        "float32",
        'float32 arithmetic on up to 12 rows; set task.precision = "float',
    ),
    "a decoder": (
        "code-based",
        {},
        "float32",
        "the decoder least-squares, which multiplies rounding errors of float32",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_as_accurate_as_wanted_is_refused_in_one_sentence(case: str) -> None:
    name, changes, dtype, words = REFUSED[case]
    given = problem(SIZES, features=FEATURES, outputs=OUTPUTS, dtype=dtype)
    with pytest.raises(ScenarioError, match=r"could be off by .* of their size") as error:
        schemes.create(wanted(name, {"task.accuracy": 1e-7, **changes}), given)
    assert words in str(error.value)
    assert f"scheme = '{name}'" in str(error.value)
    assert is_one_sentence(str(error.value))


def test_outliers_are_blamed_where_a_sum_must_hold_them() -> None:
    """Secure aggregation has room for m F^2; a single entry of 2^20 makes that 2^38 times the energy."""
    given = changed(problem(SIZES, features=FEATURES, outputs=OUTPUTS), AWKWARD["as drawn"])
    chosen = wanted("secagg", {"task.accuracy": 1e-6})
    public = schemes.create(chosen, given).public
    schemes.build(chosen, public)
    with pytest.raises(ScenarioError, match=r"features up to 1.04858e\+06 .* far above what is typical") as error:
        schemes.build(chosen, replace(public, largest_feature=2.0**20, feature_energy=27.0, target_energy=27.0))
    assert is_one_sentence(str(error.value))


def test_nothing_is_refused_on_nominal_facts() -> None:
    """Before data are loaded nobody knows sizes."""
    assert schemes.nominal(wanted("conventional", {"task.accuracy": 1e-12})).exact


@pytest.mark.parametrize(
    ("accuracy", "dtype", "field"),
    [(0.05, "float32", "GF(2^31-1)"), (1e-3, "float32", "GF(2^48-59)"), (0.05, "float64", "GF(2^61-1)")],
)
def test_the_narrowest_field_that_is_accurate_enough_is_taken(accuracy: float, dtype: str, field: str) -> None:
    """The paper's sizes: 12.5 steps of 2^-9 in 60 are 2e-4, times sqrt(2000) 9e-3, and float32 a thousandth more."""
    bound = float(np.sqrt(2 / 2000))
    public = Public((240,) * 25, 2000, 10, np.dtype(dtype), bound, accuracy=accuracy)
    fields = [ring for name, ring in RINGS.items() if name.startswith("GF")]
    found = choose_formats(public, "auto", fields)
    assert found.ring.name == field
    assert (found.rounding(public).relative(public) <= accuracy) or accuracy < 1e-3
    assert choose_formats(public, "GF(2^48-59)", fields).ring.name == "GF(2^48-59)"


def test_rounding_is_part_of_the_contract_and_only_exact_schemes_state_it() -> None:
    given = problem(SIZES, features=FEATURES, outputs=OUTPUTS)
    for name in SCHEMES:
        if name == "he" and not ckks.installed():
            continue
        options = {"parity": {"parts": 1}, "minibatch": {"parts": 1}}.get(name, OPTIONS.get(name, {}))
        scheme = schemes.create(wanted(name, {f"schemes.{name}": options}), given)
        assert isinstance(scheme.rounding, Rounding) is scheme.exact
