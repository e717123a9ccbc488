"""CodedPaddedFL: exact whoever is lost, its costs by formula, its format, and what its server could work out."""

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.cipher.seals import FIELD_48, RINGS
from codedfl.errors import CipherError, LostDevicesError, ScenarioError
from codedfl.network import DelayModel, Draws, TransferCosts
from codedfl.runs import directory as runs
from codedfl.scenario import Fleet, Scenario, load
from codedfl.schemes import Public, Work
from codedfl.schemes.sealing import Formats
from codedfl.task import Problem
from codedfl.training import State
from rundirs import results, small, small_run
from schemes.residues import decoded, is_exact, set_up, wanted
from tiny import gamma, is_one_sentence, problem, promised_gradient, spied, trained

DEVICES = 6
EPOCHS = 6
FIELDS = [name for name in RINGS if name.startswith("GF")]


@cache
def shared() -> Problem:
    return problem([4, 7, 1, 5, 9, 3], features=8, outputs=2)


def padded(alpha: int | None, changes: dict[str, Any] | None = None, **options: Any) -> Scenario:
    """In the published field, whatever the precision."""
    table = {"ring": FIELD_48.name, **({"alpha": alpha} if alpha else {}), **options}
    return wanted("coded-padded", {"schemes.coded-padded": table, "training.epochs": EPOCHS, **(changes or {})})


@cache
def undisturbed(alpha: int) -> State:
    return trained(shared(), padded(alpha))


@given(st.integers(1, DEVICES), st.data())
@settings(max_examples=10)
def test_every_tolerated_loss_leaves_the_gradient_exact_and_the_model_alone(alpha: int, data: st.DataObject) -> None:
    """Any devices, up to alpha - 1, leave after any epochs; the gradient is the plaintext one within its format."""
    count = data.draw(st.integers(0, alpha - 1))
    gone = data.draw(st.permutations(range(DEVICES)))[:count]
    leaving = {device: data.draw(st.integers(1, EPOCHS - 1)) for device in gone}
    chosen = padded(alpha)
    with pytest.MonkeyPatch.context() as patch:
        seen, products = spied(patch, chosen), decoded(patch)
        state = trained(shared(), chosen, last_epochs=leaving)
    scheme: Any = schemes.create(chosen, shared())
    assert len(products) == EPOCHS - 1
    assert all(is_exact(*entry, scheme, shared().shards) for entry in products)
    for epoch in seen:
        expected, bound = promised_gradient(scheme, shared().shards, seen[: epoch.epoch])
        assert np.all(abs(epoch.gradient - expected) <= bound)
        assert len(epoch.replies) == DEVICES - alpha + 1
        # a device that leaves after an epoch is noticed when it is asked in the next one
        assert set(epoch.round.requests) == {d for d in range(DEVICES) if leaving.get(d, EPOCHS) >= epoch.epoch - 1}
    assert state.model.tobytes() == undisturbed(alpha).model.tobytes()


@pytest.mark.parametrize("ring", FIELDS)
@pytest.mark.parametrize("alpha", range(1, DEVICES + 1))
def test_any_set_of_replies_decodes_to_the_same_exact_product(alpha: int, ring: str) -> None:
    scheme: Any = schemes.create(padded(alpha, ring=ring), shared())
    assert scheme.formats.ring.name == ring
    server, devices, _, _ = set_up(scheme, shared().shards)
    model = np.random.default_rng(0).standard_normal((8, 2))
    with pytest.MonkeyPatch.context() as patch:
        products = decoded(patch)
        first, second = (server.ask(epoch, model).requests for epoch in (1, 2))
        moments, replies = (
            {device: devices[device].reply(epoch, asked[device], Work()) for device in asked}
            for epoch, asked in ((1, first), (2, second))
        )
        sets = list(combinations(range(DEVICES), DEVICES - alpha + 1))
        gradients = {server.combine(1, {i: moments[i] for i in which}, Work()).tobytes() for which in sets}
        for which in sets:
            server.ask(2, model)
            server.combine(2, {i: replies[i] for i in which}, Work())
            server.restore(scheme.server().state())  # back to the point before
    assert len(gradients) == 1
    assert len({product.tobytes() for _, product in products}) == 1
    assert is_exact(*products[0], scheme, shared().shards)


class TestCosts:
    D, C = 8, 2
    PART = 48 * (D * (D + 1) // 2 + C * D)
    OWNER = 32
    SEED, EXPORT = 256, 64

    @pytest.mark.parametrize("alpha", [1, 2, 4, 6])
    def test_an_epoch(self, alpha: int) -> None:
        """c d numbers of 48 bits down and up, c d d multiplications; the server: one a number of each reply, pads."""
        costs = undisturbed(alpha).history.rounds[-1]
        quorum = DEVICES - alpha + 1
        assert costs.quorum == quorum
        assert set(costs.down_bits) == set(costs.up_bits) == {48 * self.C * self.D}
        assert set(costs.macs) == {self.C * self.D**2}
        pads = self.C * self.D**2 if alpha > 1 else 0
        assert costs.server_macs == quorum * self.C * self.D + pads

    @pytest.mark.parametrize("sharing", ["relay", "direct"])
    @pytest.mark.parametrize("alpha", [2, 4, 6])
    def test_the_set_up(self, alpha: int, sharing: str) -> None:
        """One padded triangle and the moments to each of alpha - 1 others; a relayed parcel goes up and then down."""
        history = trained(shared(), padded(alpha, sharing=sharing)).history
        ((_, stage),) = history.stages_after(0)
        assert {(cost.sender, cost.recipient) for cost in stage} == {
            (j, (j - turn) % DEVICES) for j in range(DEVICES) for turn in range(1, alpha)
        }
        assert len(stage) == DEVICES * (alpha - 1)
        assert {cost.parcel_bits for cost in stage} == {self.PART + self.OWNER}
        assert {cost.relayed for cost in stage} == {sharing == "relay"}
        assert sum(cost.grant_bits for cost in stage) == DEVICES * (self.SEED + self.EXPORT)
        numbers = self.PART // 48
        assert {cost.absorb_macs for cost in stage} == {numbers}
        assert sum(cost.export_macs for cost in stage) == DEVICES * 2 * numbers, "the pad, and the own multiple"
        sent = len(stage) * (self.PART + self.OWNER)
        epoch = DEVICES * 48 * self.C * self.D
        grants = DEVICES * (self.SEED + self.EXPORT)
        relayed = sent if sharing == "relay" else 0
        first = {link: history.columns[f"{link}_bits"][0] for link in ("up", "down", "d2d")}
        assert first == {"up": epoch + relayed, "down": grants + relayed, "d2d": sent - relayed}

    @pytest.mark.parametrize("sharing", ["relay", "direct"])
    def test_the_time_of_the_set_up(self, sharing: str) -> None:
        """No chance, equal devices: grants, padding, alpha - 1 sendings, one way down for the last one, adding up."""
        links = {"links.loss": 0.0, "links.overhead": 0.5, "links.up_rate": 2e3, "links.down_rate": 8e3}
        fleet = [{"count": DEVICES, "mac_rate": 1e3, "setup_ratio": 0.0, "setup_seconds": 0.0}]
        chosen = padded(4, links | {"links.d2d_rate": 4e3, "fleet.devices": fleet}, sharing=sharing)
        ((_, stage),) = trained(shared(), chosen).history.stages_after(0)
        delays = DelayModel.create(chosen.fleet, chosen.links)
        found = float(Draws(delays, seed=0).stage(0, stage).seconds[0])
        bits, numbers = 1.5 * (self.PART + self.OWNER), self.PART // 48
        sending = 3 * bits / 2e3 + bits / 8e3 if sharing == "relay" else 3 * bits / 4e3
        padding, adding = 2 * numbers / 1e3, 3 * numbers / 1e3
        assert found == pytest.approx(1.5 * (self.SEED + self.EXPORT) / 8e3 + padding + sending + adding, rel=1e-12)


class TestSharedChannel:
    """The paper's remark on CodedPaddedFL at its own size: N = 25, d = 2000, c = 10, alpha = 16, 48 bits."""

    N, D, C, ALPHA = 25, 2000, 10, 16
    PARCELS = 375
    ONE_TRY = (C * D + D * (D + 1) / 2) * 48 * 1.1 / 5e6

    def seconds(self, *, loss: float, channel: str, draws: int) -> np.ndarray:
        """Time of the real set-up's transfers with parcels of the paper's size; no work, no grants."""
        links = {"links.loss": loss, "links.d2d_channel": channel}
        paper = load("paper").with_settings({"scheme": "coded-padded", **links})
        chosen = paper.with_settings({"schemes.coded-padded": {"alpha": self.ALPHA, "sharing": "direct"}})
        server = schemes.build(chosen, Public((480,) * self.N, 2, 1, np.dtype("float32"))).server()
        (stage,) = server.set_up()
        bits = 48 * (self.C * self.D + self.D * (self.D + 1) // 2)
        costs = [TransferCosts(each.sender, each.recipient, 0, 0, bits, 0, each.relayed) for each in stage.transfers]
        assert len(costs) == self.PARCELS
        delays = DelayModel.create(chosen.fleet, chosen.links)
        return np.asarray(Draws(delays, seed=0, count=draws).stage(0, costs).seconds)

    def test_without_losses_it_is_the_sum_of_all_parcels(self) -> None:
        expected = self.PARCELS * self.ONE_TRY
        (found,) = self.seconds(loss=0.0, channel="shared", draws=1)
        assert abs(found - expected) <= 2 * gamma(self.PARCELS + 6, float) * expected

    def test_its_mean_is_two_and_a_half_hours(self) -> None:
        """Tries are geometric: mean 1/(1-p), variance p/(1-p)^2; the mean of 2000 draws within four deviations."""
        expected, draws = self.PARCELS * self.ONE_TRY / 0.9, 2000
        assert round(expected / 3600, 2) == 2.47
        deviation = self.ONE_TRY * np.sqrt(self.PARCELS * 0.1) / 0.9
        found = self.seconds(loss=0.1, channel="shared", draws=draws)
        assert abs(found.mean() - expected) <= 4 * deviation / np.sqrt(draws)

    def test_on_parallel_links_it_takes_minutes(self) -> None:
        """No chance: the parcels of a turn go side by side, 15 turns one after the other."""
        (found,) = self.seconds(loss=0.0, channel="parallel", draws=1)
        assert found == pytest.approx(15 * self.ONE_TRY, rel=1e-12)


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    """After any epoch, also when devices are gone by then; pads are drawn anew and leave no trace."""
    leaving, kept = {1: 2, 4: 3}, []

    def keep(state: State) -> None:
        kept.append({name: np.array(value) for name, value in state.to_arrays().items()})

    whole = trained(shared(), padded(3), after_epoch=keep, last_epochs=leaving)
    for arrays in kept[:-1]:
        again = trained(shared(), padded(3), State.from_arrays(arrays), last_epochs=leaving).to_arrays()
        for name, array in whole.to_arrays().items():
            assert array.tobytes() == again[name].tobytes(), name
    changes = {"scheme": "coded-padded", "schemes.coded-padded.alpha": 2, "training.epochs": 8}
    assert results(small_run(tmp_path / "one", changes).path) == results(small_run(tmp_path / "two", changes).path)


@pytest.mark.parametrize("alpha", [1, 3])
def test_one_loss_too_many_is_said_and_the_run_goes_on_when_it_is_back(
    alpha: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [{"count": 5 - alpha, "mac_rate": 25e6}, {"count": alpha, "mac_rate": 25e6, "last_epoch": 4}]
    settings = {"scheme": "coded-padded", "fleet.devices": groups, "training.epochs": 9, "training.targets": [0.5]}
    chosen, path = small(settings | {"schemes.coded-padded.alpha": alpha}), tmp_path / "run"
    with pytest.raises(LostDevicesError, match=f"epoch 5 got {5 - alpha} of the {6 - alpha} replies") as error:
        runs.execute(chosen, path)
    assert is_one_sentence(str(error.value))
    monkeypatch.setattr(Fleet, "last_epochs", property(lambda self: {}))
    back, whole = runs.execute(chosen, path), runs.execute(chosen, tmp_path / "whole")
    with np.load(back.path / "model.npz") as one, np.load(whole.path / "model.npz") as other:
        assert one["theta"].tobytes() == other["theta"].tobytes()


def test_one_pad_a_device_and_the_same_words_for_all_its_recipients() -> None:
    scheme: Any = schemes.create(padded(4), shared())
    _, devices, transfers, parcels = set_up(scheme, shared().shards)
    seeds = [transfer.grant["seed"].tobytes() for transfer in transfers if "seed" in transfer.grant]
    assert len(set(seeds)) == len(seeds) == DEVICES
    words: dict[int, set[bytes]] = {}
    for transfer, parcel in zip(transfers, parcels, strict=True):
        assert set(parcel) == {"owner", "words"}
        assert int(parcel["owner"]) == transfer.sender
        words.setdefault(transfer.sender, set()).add(parcel["words"].tobytes())
    assert [len(sent) for sent in words.values()] == [1] * DEVICES
    first = transfers[0]
    with pytest.raises(CipherError, match="padded its data before"):
        devices[first.sender].export(first.grant, Work())
    with pytest.raises(CipherError, match="sent its data to all"):
        devices[first.sender].export({}, Work())
    with pytest.raises(CipherError, match="data of device 0 are none that device 1 combines"):
        devices[1].absorb_from(0, parcels[0], Work())


def test_the_published_format() -> None:
    """24 bits behind the point at the paper's size, where 26 would fit; fewer where data are large, more if small."""

    def bits(samples: int, largest: float) -> tuple[int, int]:
        public = Public((samples,) * 25, 2000, 10, np.dtype("float32"), largest_feature=largest)
        free, cut = (Formats.choose(FIELD_48, public, data_bits=most).gram.data_bits for most in (None, 24))
        return free, cut

    assert bits(2400, np.sqrt(2 / 2000)) == (26, 24)
    assert bits(2400, 100.0) == (2, 2)
    free, cut = bits(2400, 1e-6)
    assert free == cut > 24
    scheme: Any = schemes.create(padded(3), shared())
    assert scheme.formats.gram.data_bits == scheme.formats.moments.data_bits == 24


@pytest.mark.parametrize(
    ("alpha", "rates", "words"),
    [(7, (1e6,) * 6, "alpha = 7 must be at most 6"), (None, (1e6,), "at least 2 devices")],
)
def test_options_that_do_not_fit_are_refused(alpha: int | None, rates: tuple[float, ...], words: str) -> None:
    changes = {"schemes.coded-padded": {} if alpha is None else {"alpha": alpha}}
    with pytest.raises(ScenarioError, match=words) as error:
        schemes.create(wanted("coded-padded", changes, rates=rates), problem([4] * len(rates)))
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("alpha", [1, 2])
def test_two_devices_are_enough(alpha: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With alpha = 2 each of them holds the data of both, and one reply is enough."""
    given_problem = problem([4, 3], features=5, outputs=2)
    chosen = wanted("coded-padded", {"schemes.coded-padded": {"alpha": alpha}}, rates=(1e6,) * 2)
    products = decoded(monkeypatch)
    assert trained(given_problem, chosen).epoch == len(products) + 1
    scheme = schemes.create(chosen, given_problem)
    assert all(is_exact(*entry, scheme, given_problem.shards) for entry in products)


def test_what_the_server_is_said_to_see() -> None:
    """Relayed parcels are the server's to read unless they are encrypted; without a code it sees every device."""
    words = {
        key: schemes.create(padded(alpha, sharing=sharing), shared()).leakage()
        for key, alpha, sharing in (("relay", 3, "relay"), ("direct", 3, "direct"), ("alone", 1, "relay"))
    }
    assert "unless the parcels that it relays are encrypted end to end" in words["relay"].server
    assert "relays" not in words["direct"].server
    assert "of every device" in words["alone"].server


def test_data_that_the_server_cannot_tell_apart() -> None:
    """With N = 6 and alpha = 4, moving four devices' numbers by (1, -3, 3, -1) steps changes no reply at all."""
    code: Any = schemes.create(padded(4), shared()).code  # type: ignore[attr-defined]
    for row in code.matrix:
        assert sum(row[j] * change for j, change in zip((0, 1, 2, 3), (1, -3, 3, -1), strict=True)) % code.prime == 0


@pytest.mark.parametrize("alpha", [1, 2, 4, DEVICES])
@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("options", [{}, {"sharing": "direct"}, {"ring": "GF(2^61-1)"}])
def test_costs_counted_from_sizes_are_those_of_a_run(alpha: int, offline: bool, options: dict[str, str]) -> None:
    chosen = padded(alpha, {"training.first_epoch_offline": offline}, **options)
    history = trained(shared(), chosen).history
    counted: Any = schemes.create(chosen, shared()).counted(shared().shards, EPOCHS)
    assert [(stage.costs, stage.after) for stage in history.stages] == [(costs, None) for costs in counted.stages]
    rounds = [[history.rounds[number] for number in numbers] for numbers in history.questions()]
    for epoch, (ran, told) in enumerate(zip(rounds, counted.epochs, strict=True), start=1):
        expected = [costs.uploads if offline and epoch == 1 else costs for costs in told]
        assert [costs.key() for costs in ran] == [costs.key() for costs in expected]
