"""What every scheme owes: run over all that are registered, through the one training loop."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.delays import DelayModel
from codedfl.engines import Answer, VirtualEngine
from codedfl.errors import ScenarioError, TrainingError
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, PlacingServer, Round, Scheme, SharingScheme, Work
from codedfl.task import Problem, Shard
from codedfl.training import State, train
from tiny import SEALED, is_one_sentence, placed, plain_gradient, problem, promised_gradient, scenario, spied, trained

SIZES = [10] * 15 + [11] * 8 + [2, 5]
"""The paper's fleet of 25; two shards are smaller than others, one too small for a Gram matrix of 12 features."""

EPOCHS = 10

pytestmark = pytest.mark.parametrize("name", SCHEMES)


SMALL = {
    "minibatch": {"parts": 2},
    "code-based": {"n": 24, "degree": 3, "t_tot": 8, "t": 4, "M": 4, "beta": 2, "delta": 1e-3, "supply": "reissued"},
}
"""Options that fit so small a problem, where the defaults do not."""


def wanted(name: str, changes: dict[str, Any] | None = None) -> Scenario:
    settings = {"scheme": name, "training.epochs": EPOCHS, "training.learning_rate": 0.1}
    return scenario({**settings, f"schemes.{name}": SMALL.get(name, {}), **(changes or {})})


def tiny(dtype: str = "float64") -> Problem:
    return problem(SIZES, features=12, outputs=3, dtype=dtype)


def created(name: str, given: Problem) -> Scheme[Any]:
    return schemes.create(wanted(name), given)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_messages_are_in_the_precision_of_the_scenario(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of that precision; where residues are computed with, 32-bit words and not a single other number."""
    chosen = wanted(name, {"task.precision": precision})
    seen = spied(monkeypatch, chosen)
    trained(tiny(precision), chosen)
    assert len(seen) == EPOCHS
    for epoch in seen:
        messages = [*epoch.round.requests.values(), *epoch.replies.values()]
        arrays = [array for message in messages for array in message.values()]
        if issubclass(SCHEMES[name], SEALED):
            assert {array.dtype for array in arrays} == {np.dtype(np.uint32)}
            continue
        numbers = [array for array in arrays if array.dtype.kind == "f"]
        assert numbers
        assert {array.dtype for array in numbers} == {np.dtype(precision)}


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_an_exact_scheme_gives_the_plaintext_gradient_in_every_epoch(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the worst rounding of devices that compute in clear; a code that is decoded must stay within, too.

    Sealed schemes may be off by the rounding of their fixed point beside that (``promised_gradient``).
    """
    given = tiny(precision)
    chosen = wanted(name, {"task.precision": precision})
    seen = spied(monkeypatch, chosen)
    columns = trained(given, chosen).history.columns
    assert len(columns["gradient_error"]) == EPOCHS
    if not SCHEMES[name].exact:
        assert np.all(np.isnan(columns["gradient_error"])), "nothing is promised, so nothing is measured"
        return
    first = np.linalg.norm(seen[0].gradient)
    scheme = created(name, given)
    for epoch, noted in zip(seen, columns["gradient_error"], strict=True):
        expected, bound = promised_gradient(scheme, given.shards, seen[: epoch.epoch])
        assert np.all(abs(epoch.gradient - expected) <= bound)
        assert noted <= np.linalg.norm(2 * bound) / first, "the run's own yardstick rounds too"


def test_the_model_follows_the_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theta <- Theta - mu (gradient + lambda Theta), to the last bit."""
    given, chosen = tiny(), wanted(name)
    seen = spied(monkeypatch, chosen)
    final = trained(given, chosen)
    model = np.zeros(given.shape)
    for epoch in seen:
        assert np.array_equal(epoch.model, model)
        assert epoch.gradient.dtype == np.float64
        model = model - 0.1 * (epoch.gradient + given.ridge * model)
    assert np.array_equal(final.model, model)


def test_a_training_lowers_the_loss(name: str) -> None:
    given = tiny()
    columns = trained(given, wanted(name)).history.columns
    assert columns["loss"][-1] < given.target_energy / (2 * given.samples)


def test_no_more_replies_are_awaited_than_are_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many fewer as losses are survived; where data are placed, from the end of the first epoch on."""
    given, chosen = tiny(), wanted(name)
    seen = spied(monkeypatch, chosen)
    history = trained(given, chosen).history
    scheme = created(name, given)
    assert 0 <= scheme.survives_losses < len(SIZES)
    for epoch, number in zip(seen, history.round_of_epoch, strict=True):
        asked = set(epoch.round.requests)
        assert asked <= set(range(len(SIZES)))
        assert set(epoch.replies) <= asked
        settled = epoch.epoch > 1 or not isinstance(scheme.server(), PlacingServer)
        losses = scheme.survives_losses if settled else 0
        assert 1 <= history.rounds[number].quorum == len(epoch.replies) <= len(asked) - losses
    assert 1 <= scheme.server().quorum <= len(SIZES)


def test_bits_are_those_of_the_arrays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size times width of every array, for each device that replied; the first epoch is offline but for its upload.

    Who has placed data beforehand need not be told anything in the first epoch: its question may be empty.
    """
    given, chosen = tiny("float32"), wanted(name)
    seen = spied(monkeypatch, chosen)
    history = trained(given, chosen).history
    for epoch, number in zip(seen, history.round_of_epoch, strict=True):
        costs = history.rounds[number]
        place = {int(device): index for index, device in enumerate(costs.asked)}
        assert set(place) == set(epoch.round.requests)
        for device, reply in epoch.replies.items():
            request = epoch.round.requests[device]
            down, up = (sum(a.size * a.itemsize * 8 for a in message.values()) for message in (request, reply))
            assert costs.up_bits[place[device]] == up > 0
            assert costs.down_bits[place[device]] == (0 if epoch.epoch == 1 else down)
            assert down > 0 or (epoch.epoch == 1 and history.stages)
        assert history.columns["up_bits"][epoch.epoch - 1] == costs.up_bits.sum()
        granted = sum(entry.grant_bits for _, stage in history.stages_after(epoch.epoch - 1) for entry in stage)
        granted += sum(cost.grant_bits for when, _, cost in history.transfers if when == epoch.epoch)
        assert history.columns["down_bits"][epoch.epoch - 1] == costs.down_bits.sum() + granted
        assert np.all(costs.macs == 0) if epoch.epoch == 1 else np.all(costs.macs > 0)


class Counted(np.ndarray):
    """An array that counts the multiplications of every matrix product it takes part in, in whatever way."""

    macs = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **others: Any) -> Any:
        plain = [value.view(np.ndarray) if isinstance(value, Counted) else value for value in inputs]
        if ufunc is np.matmul:
            left, right = plain
            Counted.macs += left.shape[0] * left.shape[1] * right.shape[1]
        return getattr(ufunc, method)(*plain, **others)

    def __array_function__(self, function: Callable[..., Any], kinds: Any, inputs: Any, others: Any) -> Any:
        assert function not in (np.dot, np.einsum, np.tensordot, np.inner, np.vdot, np.linalg.multi_dot), (
            "a product that no Work counts"
        )
        return super().__array_function__(function, kinds, inputs, others)


def test_every_multiplication_of_a_device_is_counted(name: str) -> None:
    """No product of the arrays of shard and question escapes; what is prepared once is not part of an epoch's work.

    Products of copies do not count themselves, so the count of the arrays is a bound from below; the tests of each
    scheme hold its count against a formula.
    """
    given = tiny()
    server, devices = placed(
        created(name, given), [Shard(shard.x.view(Counted), shard.y.view(Counted)) for shard in given.shards]
    )
    for device, request in server.broadcast(2, np.ones(given.shape)).requests.items():
        devices[device].reply(1, request, Work())
        Counted.macs, work = 0, Work()
        devices[device].reply(2, {key: array.view(Counted) for key, array in request.items()}, work)
        assert work.macs >= max(Counted.macs, 1)


def test_a_scheme_says_what_leaks(name: str) -> None:
    words = created(name, tiny()).leakage().to_table()
    assert set(words) == {"server", "devices", "eavesdropper"}
    assert all(sentence.strip() for sentence in words.values())


def lossy(engine: VirtualEngine, lost: set[int]) -> VirtualEngine:
    """Let devices vanish for good after the first epoch: they are asked but never reply."""
    ask = engine.ask

    def ask_the_living(
        question: Round, enough: Callable[[Sequence[int]], bool], *, offline: bool, least: int
    ) -> Answer:
        gone = lost if question.epoch > 1 else set()
        alive = {device: message for device, message in question.requests.items() if device not in gone}
        return ask(dataclasses.replace(question, requests=alive), enough, offline=offline, least=least)

    engine.ask = ask_the_living  # type: ignore[method-assign]
    return engine


@pytest.mark.parametrize("too_many", [0, 1])
def test_a_run_survives_as_many_losses_as_promised_and_says_so_when_it_cannot(name: str, too_many: int) -> None:
    given, chosen = tiny(), wanted(name)
    scheme = created(name, given)
    server = scheme.server()
    asked = sorted(server.broadcast(2, np.zeros(given.shape)).requests)
    lost = set(asked[: scheme.survives_losses + too_many])
    devices = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    delays = DelayModel.create(chosen.fleet, chosen.links)
    engine = lossy(VirtualEngine(devices, delays, seed=0, draw=0), lost)
    if not too_many:
        assert train(given, chosen, scheme, engine, State.fresh(given)).epoch == EPOCHS
        return
    with pytest.raises(TrainingError) as error:
        train(given, chosen, scheme, engine, State.fresh(given))
    quorum = server.quorum
    assert f"epoch 2 got {quorum - 1} of the {quorum} replies" in str(error.value)
    assert is_one_sentence(str(error.value))


def test_the_same_draw_gives_the_same_bits_and_another_draw_other_times(name: str) -> None:
    given = tiny("float32")
    one, same, other = (trained(given, wanted(name, {"timing.draw": draw})) for draw in (3, 3, 4))
    assert np.array_equal(one.model, same.model)
    assert one.history.columns["time"] == same.history.columns["time"]
    assert one.history.columns["time"] != other.history.columns["time"]


def test_a_model_depends_on_the_draw_only_where_the_scheme_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, unless data move: then two draws add the same numbers in another order.

    Each gradient is within its bound of the plaintext one, and a descent at a stable rate does not let differences
    grow, so that the models are apart by at most the sum of rate * 2 * bound over all epochs.
    """
    given, chosen = tiny("float32"), wanted(name)
    assert given.largest_stable_rate() > 0.1
    seen = spied(monkeypatch, chosen)
    one, other = (trained(given, chosen.with_settings({"timing.draw": draw})) for draw in (3, 4))
    if SCHEMES[name].follows_timing:
        assert not np.array_equal(one.model, other.model)
    elif issubclass(SCHEMES[name], SharingScheme):
        bounds = [np.linalg.norm(plain_gradient(given.shards, epoch.model)[1]) for epoch in seen[:EPOCHS]]
        assert np.linalg.norm(one.model - other.model) <= 0.1 * 2 * sum(bounds)
    else:
        assert np.array_equal(one.model, other.model)
        for column in ("accuracy", "loss", "gradient_norm", "up_bits", "device_macs"):
            assert one.history.columns[column] == other.history.columns[column]


def test_an_option_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ScenarioError) as error:
        wanted(name, {f"schemes.{name}.nonsense": 3})
    assert f"'schemes.{name}.nonsense' (value 3)" in str(error.value)
    assert is_one_sentence(str(error.value))


def test_defaults_are_options_of_the_scheme(name: str) -> None:
    scheme = SCHEMES[name]
    assert scheme.name == name
    assert isinstance(scenario().options(name), scheme.options_type)
    assert scheme.options_type.from_table(scenario().options(name).to_table()) == scenario().options(name)
