"""The contract tests of a scheme, for its author: subclass :class:`SchemeContract` in a test file of your own.

from codedfl.testing.schemes import SchemeContract

class TestMine(SchemeContract):
    scheme = Mine
    options = {"share": 0.5}
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest
from jaxtyping import Float

from codedfl import schemes
from codedfl.engines import Answer, VirtualEngine
from codedfl.errors import ScenarioError, TrainingError
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, SERVER, Message, Round, Scheme, Work, register
from codedfl.task import Problem, Shard
from codedfl.testing.small import (
    PAPER_FLEET,
    Seen,
    conversed,
    is_one_sentence,
    placed,
    plain_gradient,
    problem,
    scenario,
    spied,
    trained,
)
from codedfl.training import State, train


@contextmanager
def registered(scheme: type[Scheme[Any]]) -> Iterator[None]:
    """Make a scheme known until the end of the block."""
    register(scheme)
    try:
        yield
    finally:
        SCHEMES.remove(scheme.name)


def open_questions(seen: Sequence[Seen]) -> list[dict[int, int]]:
    """In which epoch each device was asked what it may reply to, epoch by epoch; standing rounds leave questions open.

    A device is never asked while it has an open question.
    """
    noted, still = [], dict[int, int]()
    for epoch in seen:
        if not epoch.round.standing:
            still = {}
        assert not still.keys() & epoch.round.requests.keys()
        still |= dict.fromkeys(epoch.round.requests, epoch.epoch)
        noted.append(dict(still))
        for device in epoch.replies:
            del still[device]
    return noted


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


def lossy(engine: VirtualEngine, lost: set[int], since: int) -> VirtualEngine:
    """Let devices vanish for good before an epoch: they are asked but never reply."""
    ask = engine.ask

    def ask_the_living(question: Round, *, offline: bool) -> Answer:
        gone = lost if question.epoch >= since else set()
        alive = {device: message for device, message in question.requests.items() if device not in gone}
        return ask(dataclasses.replace(question, requests=alive), offline=offline)

    engine.ask = ask_the_living  # type: ignore[method-assign]
    return engine


def wide(array: np.ndarray) -> "np.dtype[Any]":
    """Return the format in which sums of an array are exact enough."""
    return np.dtype(np.float64) if array.dtype.kind == "f" else array.dtype


def keyed(replies: Mapping[int, Message]) -> list[tuple[str, Message]]:
    """Return each array name of the first reply beside that reply."""
    one = next(iter(replies.values()))
    return [(key, one) for key in one]


class SchemeContract:
    """What every scheme owes, through the one training loop; pytest runs its subclasses."""

    scheme: ClassVar[type[Scheme[Any]]]
    options: ClassVar[Mapping[str, Any]] = {}
    """Options that fit the small problem, where the defaults do not."""
    sizes: ClassVar[Sequence[int]] = [10] * 15 + [11] * 8 + [2, 5]
    """The paper's fleet of 25; two shards are smaller than others, one too small for a Gram matrix of 12 features."""
    fleet: ClassVar[Sequence[Mapping[str, float]]] = PAPER_FLEET
    epochs: ClassVar[int] = 10
    words: ClassVar[tuple[type[np.generic], ...] | None] = None
    """The formats of all that is sent, where it is no numbers in the precision of the scenario."""

    def setup_method(self, method: object) -> None:
        self._added = self.scheme.name not in SCHEMES
        if self._added:
            register(self.scheme)

    def teardown_method(self, method: object) -> None:
        if self._added:
            SCHEMES.remove(self.scheme.name)

    def scenario(self, changes: Mapping[str, Any] | None = None) -> Scenario:
        """Return a short training of the scheme; ``changes`` are dotted keys."""
        settings = {"scheme": self.scheme.name, "training.epochs": self.epochs, "training.learning_rate": 0.1}
        own = {"fleet.devices": list(self.fleet), f"schemes.{self.scheme.name}": dict(self.options)}
        return scenario({**settings, **own, **(changes or {})})

    def problem(self, dtype: str = "float64") -> Problem:
        """Return small data."""
        return problem(self.sizes, features=12, outputs=3, dtype=dtype)

    def created(self, given: Problem) -> Scheme[Any]:
        """Make the scheme for small data."""
        return schemes.create(self.scenario(), given)

    def promised_gradient(
        self, scheme: Scheme[Any], shards: Sequence[Shard], seen: Sequence[Seen]
    ) -> tuple[Float[np.ndarray, "d c"], Float[np.ndarray, "d c"]]:
        """Return the gradient that an exact scheme owes in the last of these epochs, and how far it may be from it."""
        return plain_gradient(shards, seen[-1].model)

    @pytest.mark.parametrize("precision", ["float32", "float64"])
    def test_messages_are_in_the_precision_of_the_scenario(
        self, precision: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Numbers of that precision; where residues are computed with, their words and not a single other number."""
        chosen = self.scenario({"task.precision": precision})
        seen = spied(monkeypatch, chosen)
        trained(self.problem(precision), chosen)
        assert len(seen) == self.epochs
        for epoch in seen:
            messages = [m for asked, replies in epoch.questions for m in (*asked.requests.values(), *replies.values())]
            arrays = [array for message in messages for array in message.values()]
            if self.words is not None:
                assert {array.dtype for array in arrays} <= {np.dtype(word) for word in self.words}
                continue
            numbers = [array for array in arrays if array.dtype.kind == "f"]
            assert numbers
            assert {array.dtype for array in numbers} == {np.dtype(precision)}

    @pytest.mark.parametrize("precision", ["float32", "float64"])
    def test_an_exact_scheme_gives_the_plaintext_gradient_in_every_epoch(
        self, precision: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Within the worst rounding of devices that compute in clear; a code that is decoded must stay within, too.

        Sealed schemes may be off by the rounding of their fixed point beside that (``promised_gradient``).
        """
        given = self.problem(precision)
        chosen = self.scenario({"task.precision": precision})
        seen = spied(monkeypatch, chosen)
        columns = trained(given, chosen).history.columns
        assert len(columns["gradient_error"]) == self.epochs
        if not self.created(given).exact:
            assert np.all(np.isnan(columns["gradient_error"])), "nothing is promised, so nothing is measured"
            return
        first = np.linalg.norm(seen[0].gradient)
        scheme = self.created(given)
        for epoch, noted in zip(seen, columns["gradient_error"], strict=True):
            expected, bound = self.promised_gradient(scheme, given.shards, seen[: epoch.epoch])
            assert np.all(abs(epoch.gradient - expected) <= bound)
            assert noted <= np.linalg.norm(2 * bound) / first, "the run's own yardstick rounds too"

    def test_the_model_follows_the_gradients(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Theta <- Theta - mu (gradient + lambda Theta), to the last bit."""
        given, chosen = self.problem(), self.scenario()
        seen = spied(monkeypatch, chosen)
        final = trained(given, chosen)
        model = np.zeros(given.shape)
        for epoch in seen:
            assert np.array_equal(epoch.model, model)
            assert epoch.gradient.dtype == np.float64
            model = model - 0.1 * (epoch.gradient + given.ridge * model)
        assert np.array_equal(final.model, model)

    def test_a_training_lowers_the_loss(self) -> None:
        given = self.problem()
        columns = trained(given, self.scenario()).history.columns
        assert columns["loss"][-1] < given.target_energy / (2 * given.samples)

    def test_no_more_replies_are_awaited_than_are_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As many fewer will do as losses are survived; where data are placed, from the end of the first epoch on.

        With a deadline, everybody may reply; without a reply, nobody goes on.
        """
        given, chosen = self.problem(), self.scenario()
        seen = spied(monkeypatch, chosen)
        history = trained(given, chosen).history
        scheme = self.created(given)
        assert 0 <= scheme.survives_losses < len(self.sizes)
        for epoch, still, numbers in zip(seen, open_questions(seen), history.questions(), strict=True):
            for (question, replies), number in zip(epoch.questions, numbers, strict=True):
                asked, costs = set(still if question.standing else question.requests), history.rounds[number]
                assert asked <= set(range(len(self.sizes)))
                assert set(replies) <= asked
                if not asked:
                    assert self.created(given).sums, "who knows the sums may ask nobody"
                    assert epoch.epoch > 1
                    continue
                settled = epoch.epoch > 1 or not (scheme.server().set_up() or scheme.server().state())
                losses = scheme.survives_losses if settled else 0
                assert 1 <= costs.least <= len(replies) <= costs.quorum <= len(asked)
                assert costs.least <= len(asked) - losses
                if question.deadline is None:
                    assert len(replies) == costs.quorum, "nobody is lost"
                assert costs.deadline == (np.inf if question.deadline is None else question.deadline)
        first = scheme.server().ask(1, np.zeros(given.shape))
        assert 1 <= first.least <= first.quorum <= len(self.sizes)

    def test_bits_are_those_of_the_arrays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Size times width of every array, for each device that replied; the first epoch is offline but for its upload.

        Who has placed data beforehand need not be told anything in the first epoch: its request may be empty. A reply
        may come in a later epoch than its question; both are charged where it was asked.
        """
        given, chosen = self.problem("float32"), self.scenario()
        seen = spied(monkeypatch, chosen)
        history = trained(given, chosen).history
        for epoch, still, numbers in zip(seen, open_questions(seen), history.questions(), strict=True):
            sent, macs = {"up": 0, "down": 0}, np.zeros(len(self.sizes), np.int64)
            for (question, replies), number in zip(epoch.questions, numbers, strict=True):
                costs = history.rounds[number]
                assert set(costs.asked.tolist()) == set(question.requests)
                for device, reply in replies.items():
                    asked_in = still[device] if question.standing else epoch.epoch
                    earlier = seen[asked_in - 1].round if question.standing else question
                    when = history.rounds[history.round_of_epoch[asked_in - 1]] if question.standing else costs
                    place = when.asked.tolist().index(device)
                    messages = (earlier.requests[device], reply)
                    down, up = (sum(a.size * a.itemsize * 8 for a in message.values()) for message in messages)
                    assert when.up_bits[place] == up > 0
                    assert when.down_bits[place] == (0 if asked_in == 1 else down)
                    assert down > 0 or (epoch.epoch == 1 and history.stages)
                sent["up"] += costs.up_bits.sum()
                sent["down"] += costs.down_bits.sum()
                macs[costs.asked] += costs.macs
            staged = [entry for _, stage in history.stages_after(epoch.epoch - 1) for entry in stage]
            relayed = sum(entry.parcel_bits for entry in staged if entry.relayed)
            uploaded = sum(entry.parcel_bits for entry in staged if entry.recipient == SERVER)
            assert history.columns["up_bits"][epoch.epoch - 1] == sent["up"] + relayed + uploaded
            granted = sum(entry.grant_bits for entry in staged)
            granted += sum(cost.grant_bits for cost in history.handovers_after(epoch.epoch))
            assert history.columns["down_bits"][epoch.epoch - 1] == sent["down"] + granted + relayed
            assert history.columns["device_macs"][epoch.epoch - 1] >= macs.sum()
            asked = list(epoch.round.requests)
            assert np.all(macs[asked] == 0) if epoch.epoch == 1 else np.all(macs[asked] > 0)

    def test_every_multiplication_of_a_device_is_counted(self) -> None:
        """No product of the arrays of shard and question escapes; what is prepared once is not part of an epoch's work.

        Products of copies do not count themselves, so the count of the arrays is a bound from below; the tests of each
        scheme hold its count against a formula.
        """
        given = self.problem()
        server, devices = placed(
            self.created(given), [Shard(shard.x.view(Counted), shard.y.view(Counted)) for shard in given.shards]
        )
        conversed(server, devices, 1, np.zeros(given.shape))
        question: Round | None = server.ask(2, np.ones(given.shape))
        assert question is not None
        totals = dict.fromkeys(question.requests, 0)
        while question is not None:
            replies = {}
            for device, request in question.requests.items():
                Counted.macs, work = 0, Work()
                viewed = {key: array.view(Counted) for key, array in request.items()}
                replies[device] = devices[device].reply(2, viewed, work)
                assert work.macs >= Counted.macs
                totals[device] += work.macs
            question = server.follow_up(2, replies, Work())
        assert all(macs > 0 for macs in totals.values())
        assert totals or self.created(given).sums, "who knows the sums may ask nobody"

    def test_a_scheme_says_what_leaks(self) -> None:
        words = self.created(self.problem()).leakage().to_table()
        assert set(words) == {"server", "devices", "eavesdropper"}
        assert all(sentence.strip() for sentence in words.values())

    @pytest.mark.parametrize("too_many", [0, 1])
    def test_a_run_survives_as_many_losses_as_promised_and_says_so_when_it_cannot(self, too_many: int) -> None:
        """After the first epoch, or in it where nobody is asked after that."""
        given, chosen = self.problem(), self.scenario()
        scheme = self.created(given)
        server = scheme.server()
        since = 1 if scheme.sums else 2
        question = server.ask(2, np.zeros(given.shape))
        asked = sorted(question.requests)
        lost = set(asked[: scheme.survives_losses + too_many])
        devices = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
        delays = DelayModel.create(chosen.fleet, chosen.links)
        engine = lossy(VirtualEngine(devices, delays, seed=0, draw=0), lost, since)
        if not too_many:
            assert train(given, chosen, scheme, engine, State.fresh(given)).epoch == self.epochs
            return
        with pytest.raises(TrainingError) as error:
            train(given, chosen, scheme, engine, State.fresh(given))
        least = question.least
        assert f"epoch {since} got {least - 1} of the {least} replies" in str(error.value)
        assert is_one_sentence(str(error.value))

    def test_the_same_draw_gives_the_same_bits_and_another_draw_other_times(self) -> None:
        given = self.problem("float32")
        one, same, other = (trained(given, self.scenario({"timing.draw": draw})) for draw in (3, 3, 4))
        assert np.array_equal(one.model, same.model)
        assert one.history.columns["time"] == same.history.columns["time"]
        # epochs that end at a deadline last equally long; how many reply by then is chance
        columns = ("time", "replies")
        assert [one.history.columns[name] for name in columns] != [other.history.columns[name] for name in columns]

    def test_a_model_depends_on_the_draw_only_where_the_scheme_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """To the last bit, unless data move: then two draws add the same numbers in another order.

        Each gradient is within its bound of the plaintext one, and a descent at a stable rate does not let differences
        grow, so that the models are apart by at most the sum of rate * 2 * bound over all epochs.
        """
        given, chosen = self.problem("float32"), self.scenario()
        assert given.largest_stable_rate() > 0.1
        seen = spied(monkeypatch, chosen)
        one, other = (trained(given, chosen.with_settings({"timing.draw": draw})) for draw in (3, 4))
        if self.created(given).follows_timing:
            assert not np.array_equal(one.model, other.model)
        elif self.created(given).sharing is not None:
            bounds = [np.linalg.norm(plain_gradient(given.shards, epoch.model)[1]) for epoch in seen[: self.epochs]]
            assert np.linalg.norm(one.model - other.model) <= 0.1 * 2 * sum(bounds)
        else:
            assert np.array_equal(one.model, other.model)
            for column in ("accuracy", "loss", "gradient_norm", "up_bits", "device_macs"):
                assert one.history.columns[column] == other.history.columns[column]

    def test_an_option_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(ScenarioError) as error:
            self.scenario({f"schemes.{self.scheme.name}.nonsense": 3})
        assert f"'schemes.{self.scheme.name}.nonsense' (value 3)" in str(error.value)
        assert is_one_sentence(str(error.value))

    def test_defaults_are_options_of_the_scheme(self) -> None:
        scheme, name = self.scheme, self.scheme.name
        assert SCHEMES[name] is scheme
        options = scenario().options(name)
        assert isinstance(options, scheme.options_type)
        assert type(options).from_table(options.to_table()) == options

    def test_a_scheme_that_adds_up_needs_the_sum_of_the_replies_only(self) -> None:
        """The first device's reply replaced by the sum of all, every other by zeros, gives the same to the last bit.

        Sums of numbers are taken in float64, in the order of the devices; residues wrap as their words do.
        """
        scheme = self.created(self.problem("float32"))
        if not scheme.adds_up:
            return
        server, devices = placed(scheme, self.problem("float32").shards)
        rng = np.random.default_rng(0)
        for epoch in (1, 2, 3):
            question = server.ask(epoch, np.zeros((12, 3)) if epoch == 1 else rng.standard_normal((12, 3)))
            replies = {d: devices[d].reply(epoch, request, Work()) for d, request in question.requests.items()}
            kept = dict(list(replies.items())[: question.quorum])
            first, *others = kept
            total = {key: np.sum([r[key] for r in kept.values()], axis=0, dtype=wide(r[key])) for key, r in keyed(kept)}
            nothing = {key: np.zeros_like(part) for key, part in total.items()}
            added = copy.deepcopy(server).combine(epoch, {first: total, **dict.fromkeys(others, nothing)}, Work())
            assert np.array_equal(added, server.combine(epoch, kept, Work()))
            assert len(kept) > 1 or server.set_up()
