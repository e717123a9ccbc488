"""Predictions against trainings: costs, bits and times of data that is not there equal those of data that is."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codedfl
from codedfl import schemes
from codedfl.errors import RunDirectoryError, UsageError
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.schemes.secrecy import ENCRYPTED
from codedfl.solvers import SOLVERS
from codedfl.studies.epochs_to_target import ASSUMED, EpochsToTarget, Finished, finished
from codedfl.studies.plan import Costs, Plan, Shapes, plan, predict, probe, spent_by_device
from codedfl.task import Problem
from codedfl.training.costs import LINKS, mean_and_largest, measure
from codedfl.training.timing import reply_costs
from rundirs import small, small_problem, small_run
from tiny import is_one_sentence, known, problem, shares, trained

OPTIONS = {
    "code-based": {"n": 60, "degree": 3, "t_tot": 12, "t": 6, "M": 4, "beta": 2, "delta": 1e-3},
    "sealed": {"delta": 1e-3},
    "he": {"backend": "costs"},
}
"""What fits a small problem; Delta so short that devices do hand over. Costs of ciphertexts are those of real ones
(tests/schemes/test_he.py), which take long to make."""
FLOAT32 = float(np.finfo(np.float32).eps)
"""Timings are stored in this format."""


def of_scheme(name: str, changes: dict[str, Any] | None = None) -> Scenario:
    descent = {"training.solver": "gradient-descent"}  # for many epochs of every scheme
    return small({"scheme": name, f"schemes.{name}": OPTIONS.get(name, {}), **descent, **(changes or {})})


@cache
def shapes() -> Shapes:
    return Shapes.of_data(small())


def probed(wanted: Scenario, given: Shapes | None = None) -> Costs:
    return probe(wanted, (given or shapes()).hollow(wanted))


class TestAgainstRuns:
    @pytest.mark.parametrize("name", SCHEMES)
    @pytest.mark.parametrize("offline", [True, False])
    def test_times_and_bits_are_those_of_a_run(self, name: str, offline: bool, tmp_path: Path) -> None:
        """In every draw and epoch; where the model follows the timing, the run has one draw."""
        wanted = of_scheme(name, {"timing.repeats": 1, "training.first_epoch_offline": offline})
        run = runs.execute(wanted, tmp_path / "run", problem=small_problem)
        costs = probed(wanted)
        seconds = predict(costs, wanted, epochs=24, draws=50)
        assert seconds.shape == (50, 24)
        np.testing.assert_allclose(seconds[: len(run.timings)], run.timings, rtol=FLOAT32)
        spent = spent_by_device(costs, wanted, 24)
        assert {link: int(spent[link].sum()) for link in LINKS} == run.summary["bits_sent"]
        assert {link: mean_and_largest(spent[link]) for link in LINKS} == run.summary["bits_per_device"]
        assert mean_and_largest(spent["macs"]) == run.summary["macs_per_device"]
        assert int(spent["macs"].sum()) == run.summary["device_macs"]
        if shares(name):
            assert run.summary["handovers"] > 0, "the bits of hand-overs were not put to the test"

    @pytest.mark.parametrize("inner", ["minibatch", "sealed"])
    def test_a_wrapper_costs_what_its_run_costs(self, inner: str, tmp_path: Path) -> None:
        """Where devices leave, the questions of an epoch cost less and less; they do leave in these twelve epochs."""
        changes = {"schemes.secagg.inner": inner, "schemes.sealed": OPTIONS["sealed"], "training.epochs": 12}
        wanted = of_scheme("secagg", changes)
        run = runs.execute(wanted, tmp_path / "run", problem=small_problem)
        costs = probed(wanted)
        np.testing.assert_allclose(predict(costs, wanted, epochs=12, draws=50), run.timings, rtol=FLOAT32)
        spent = spent_by_device(costs, wanted, 12)
        assert {link: int(spent[link].sum()) for link in LINKS} == run.summary["bits_sent"]
        assert (run.summary["handovers"] > 0) == (inner == "sealed")

    @pytest.mark.parametrize("name", ["code-based", "sealed", "he", "sealed-coded", "coded-padded", "secagg"])
    def test_a_shared_channel_takes_a_run_as_long_as_predicted(self, name: str, tmp_path: Path) -> None:
        """Every scheme with parcels between devices; recipients could take several at once, the channel does not."""
        direct = {"schemes.coded-padded.sharing": "direct", "schemes.coded-padded.alpha": 3}
        sealed = {**OPTIONS["sealed"], "parallel_reception": True}
        inner = {"schemes.secagg.inner": "sealed", "schemes.sealed": sealed, "training.epochs": 12}
        own = {f"schemes.{name}.parallel_reception": True} if shares(name) else {}
        changes = {"coded-padded": direct, "secagg": inner}.get(name, own)
        apart = of_scheme(name, changes | {"links.d2d_loss": 0.3})
        shared = apart.with_settings({"links.d2d_channel": "shared"})
        run = runs.execute(shared, tmp_path / "run", problem=small_problem)
        costs, epochs = probed(shared), shared.training.epochs
        seconds = predict(costs, shared, epochs=epochs, draws=50)
        np.testing.assert_allclose(seconds, run.timings, rtol=FLOAT32)
        parallel = predict(costs, apart, epochs=epochs, draws=50)
        assert seconds[:, -1].mean() > parallel[:, -1].mean()

    @pytest.mark.parametrize("name", [name for name in SCHEMES if known(name).exact])
    def test_another_solver_costs_the_same(self, name: str, tmp_path: Path) -> None:
        wanted = of_scheme(name, {"training.solver": "conjugate-gradients", "training.epochs": 6})
        run = runs.execute(wanted, tmp_path / "run", problem=small_problem)
        seconds = predict(probed(wanted), wanted, epochs=6, draws=50)
        np.testing.assert_allclose(seconds, run.timings, rtol=FLOAT32)


class TestProbe:
    SIZES = (11, 12, 13, 14, 60)
    UNEVEN = Shapes(SIZES, features=30, outputs=3)

    def given(self, precision: str) -> Problem:
        return problem(self.SIZES, features=30, outputs=3, dtype=precision)

    def wanted(self, name: str, changes: dict[str, Any] | None = None) -> Scenario:
        calm = {"training.epochs": 40, "training.learning_rate": 1e-3, "schemes.drop-slowest.wait_for": 4}
        return of_scheme(name, {**calm, **(changes or {})})

    @pytest.mark.parametrize("precision", ["float32", "float64"])
    @pytest.mark.parametrize("name", [name for name in SCHEMES if not shares(name)])
    def test_every_round_and_stage_of_uneven_shards(self, name: str, precision: str) -> None:
        epochs = 6 if name == "secagg" else 40  # each has its own key agreements
        wanted = self.wanted(name, {"task.precision": precision, "training.epochs": epochs})
        real = trained(self.given(precision), wanted).history
        found = probed(wanted, self.UNEVEN).history(epochs)
        if any(costs.standing for costs in real.rounds):  # who is asked when is chance; what a reply costs is not
            assert reply_costs(found, 5).key() == reply_costs(real, 5).key()
            waits = [{(costs.quorum, costs.server_macs) for costs in history.rounds[1:]} for history in (found, real)]
            assert waits[0] == waits[1]
            return
        assert found.round_of_epoch == real.round_of_epoch
        assert [costs.key() for costs in found.rounds] == [costs.key() for costs in real.rounds]
        assert found.stages == real.stages

    @pytest.mark.parametrize("parts", [1, 2, 3, 4, 5])
    def test_batches_that_come_again(self, parts: int) -> None:
        wanted = self.wanted("minibatch", {"schemes.minibatch.parts": parts})
        real = trained(self.given("float32"), wanted).history
        found = probed(wanted, self.UNEVEN).history(40)
        assert found.round_of_epoch == real.round_of_epoch
        assert [costs.key() for costs in found.rounds] == [costs.key() for costs in real.rounds]

    def test_more_parts_than_are_probed_are_off_by_a_row_at_most(self) -> None:
        wanted = self.wanted("minibatch", {"schemes.minibatch.parts": 7})
        real = trained(self.given("float32"), wanted).history
        found = probed(wanted, self.UNEVEN).history(40)
        row = 2 * 30 * 3
        for own, other in zip(found.round_of_epoch, real.round_of_epoch, strict=True):
            assert np.all(abs(found.rounds[own].macs - real.rounds[other].macs) <= row)

    @pytest.mark.parametrize("name", [name for name in SCHEMES if shares(name)])
    def test_what_sharing_costs(self, name: str) -> None:
        wanted = self.wanted(name)
        given = self.given("float32")
        real = measure(schemes.create(wanted, given), given, first_offline=True)
        found = probed(wanted, self.UNEVEN)
        assert found.shared is not None
        costs = found.shared.costs
        assert (costs.granted, costs.forwarded) == (real.granted, real.forwarded)
        assert costs.first.key() == real.first.key()
        assert costs.other.key() == real.other.key()
        assert found.shared.set_up == trained(given, wanted).history.overlapping_after(0)

    def test_fewer_epochs_than_are_probed(self) -> None:
        costs = probed(of_scheme("minibatch"))
        assert len(costs.history(1)) == 1
        longer, shorter = (predict(costs, small(), epochs=epochs, draws=3) for epochs in (30, 5))
        assert np.array_equal(longer[:, :5], shorter)


class TestShapes:
    def test_of_data(self) -> None:
        given, real = shapes(), small_problem()
        assert given.samples == tuple(shard.samples for shard in real.shards)
        assert (given.features, given.outputs) == real.shape
        largest = max(float(np.max(np.abs(shard.x))) for shard in real.shards)
        assert largest <= given.largest_feature * (1 + FLOAT32)

    @pytest.mark.parametrize("kind", ["iid", "shards", "dirichlet", "sizes"])
    def test_told(self, kind: str) -> None:
        changes = {"partition.kind": kind, "partition.sizes": [1, 2, 3, 4, 5] if kind == "sizes" else []}
        given = Shapes.told(small(changes), samples=150, outputs=10)
        assert sum(given.samples) == 150
        assert (len(given.samples), given.features, given.outputs) == (5, 30, 10)
        if kind == "sizes":
            assert given.samples == (10, 20, 30, 40, 50)

    def test_told_is_as_good_as_the_data(self) -> None:
        real = small_problem()
        assert Shapes.told(small(), samples=real.samples, outputs=10) == shapes()

    def test_own_features_say_how_many_there_are(self) -> None:
        with pytest.raises(UsageError, match=r"features\.dimension") as raised:
            Shapes.told(small({"features.kind": "none"}), samples=100, outputs=2)
        assert is_one_sentence(str(raised.value))

    def test_own_features(self) -> None:
        given = Shapes.of_data(small({"features.kind": "none"}))
        assert (given.features, given.largest_feature) == (64, 1.0), "digits have 8 x 8 pixels from 0 to 1"

    def test_hollow_data_takes_the_memory_of_one_device(self) -> None:
        shards = Shapes((100, 200, 200, 50), 20, 3).hollow(small()).shards
        assert [shard.samples for shard in shards] == [100, 200, 200, 50]
        assert {shard.x.base is None or shard.x.base.size for shard in shards} == {200 * 20}


def reached(scheme: str, solver: str, epochs: int) -> Finished:
    return Finished(Path("somewhere"), scheme, solver, epochs, known(scheme).exact)


class TestEpochs:
    @pytest.mark.parametrize(
        ("scheme", "solver", "count"),
        [
            ("minibatch", "gradient-descent", 70),
            ("conventional", "gradient-descent", 41),
            ("sealed", "gradient-descent", 41),
            ("drop-slowest", "gradient-descent", 41),
            ("sealed", "conjugate-gradients", ASSUMED["conjugate-gradients"].count),
        ],
    )
    def test_runs_say_more_than_assumptions(self, scheme: str, solver: str, count: int) -> None:
        """A run of the scheme itself, else the mean of those with all gradients, rounded up."""
        done = [reached("minibatch", "gradient-descent", 70)]
        done += [reached("conventional", "gradient-descent", epochs) for epochs in (40, 41)]
        found = EpochsToTarget(runs=done).of(known(scheme), solver)
        assert found.count == count
        assert found.source.startswith("assumed" if solver == "conjugate-gradients" else "finished runs")

    def test_what_is_told_counts_most(self) -> None:
        counts = EpochsToTarget({"gradient-descent": 5}, [reached("conventional", "gradient-descent", 40)])
        assert counts.of(known("conventional"), "gradient-descent").count == 5

    @pytest.mark.parametrize("count", [1, 1_000_000])
    def test_the_least_and_the_most_epochs_may_be_told(self, count: int) -> None:
        found = EpochsToTarget({"gradient-descent": count}).of(known("conventional"), "gradient-descent")
        assert (found.count, found.source) == (count, "told by --epochs")

    def test_every_assumption_is_of_a_solver(self) -> None:
        assert ASSUMED.keys() <= SOLVERS.keys()

    @pytest.mark.parametrize(
        ("solver", "count"), [("newton", 5), ("gradient-descent", 0), ("gradient-descent", 1_000_001)]
    )
    def test_nonsense_is_refused(self, solver: str, count: int) -> None:
        with pytest.raises(UsageError, match=f"{solver}={count}"):
            EpochsToTarget({solver: count})

    def test_read_off_a_run(self, tmp_path: Path) -> None:
        run = small_run(tmp_path / "run")
        target = float(run.epochs["accuracy"][10])
        first = int(np.flatnonzero(run.epochs["accuracy"] >= target)[0]) + 1
        targets = [target / 2, target]
        done = finished(tmp_path / "run", small({"training.targets": targets, "features.seed": 3, "scheme": "sealed"}))
        assert done == Finished(tmp_path / "run", "minibatch", "gradient-descent", first, False)

    def test_rates_matter_to_those_who_have_one(self, tmp_path: Path) -> None:
        changes = {"scheme": "conventional", "training.solver": "conjugate-gradients", "training.epochs": 5}
        small_run(tmp_path / "run", changes)
        asked = small({"training.learning_rate": 1.0, "training.targets": [0.5]})
        assert finished(tmp_path / "run", asked).solver == "conjugate-gradients"

    def test_a_run_that_says_nothing_of_the_target(self, tmp_path: Path) -> None:
        small_run(tmp_path / "run")
        for changes, words in (
            ({"features.dimension": 31}, "another task: its features.dimension is 30"),
            ({"data.source": "mnist"}, "another task: its data.source"),
            ({"training.learning_rate": 1.0}, "another task: its training.learning_rate is 4.0"),
            ({"training.targets": [0.999]}, "never reached 0.999 in 24 epochs"),
            ({"training.targets": []}, "needs a target"),
        ):
            with pytest.raises(UsageError, match=words) as raised:
                finished(tmp_path / "run", small(changes))
            assert is_one_sentence(str(raised.value))
        with pytest.raises(RunDirectoryError, match="nowhere"):
            finished(tmp_path / "nowhere", small())


@cache
def made(privacy: str = "encrypted") -> Plan:
    """All schemes; a code of length 20 does not fit 30 features."""
    few = EpochsToTarget({"gradient-descent": 20, "conjugate-gradients": 4})
    wanted = small({"schemes.code-based.n": 20, "schemes.he": OPTIONS["he"]})
    return plan(wanted, shapes(), epochs=few, draws=50, privacy=privacy)


class TestPlan:
    def test_quickest_first_and_all_there(self) -> None:
        offers = made().offers
        assert {offer.scheme.name for offer in offers} == SCHEMES.keys()
        means = [offer.best.time.mean for offer in offers if offer.best is not None]
        assert means == sorted(means)
        assert len(means) == len(SCHEMES) - 1

    def test_a_scheme_that_does_not_fit_says_why(self) -> None:
        (refused,) = (offer for offer in made().offers if not offer.predictions)
        assert refused.scheme.name == "code-based"
        assert refused.refused is not None
        assert "30 features" in refused.refused
        assert made().offers[-1] is refused

    def test_solvers_that_can_be_served(self) -> None:
        for offer in made().offers:
            solvers = {entry.solver for entry in offer.predictions}
            if offer.predictions:
                assert ("conjugate-gradients" in solvers) == offer.scheme.exact
                assert "gradient-descent" in solvers
                assert ("closed-form" in solvers) == offer.scheme.sums

    def test_bands_are_those_of_the_draws(self) -> None:
        wanted = small({"scheme": "conventional"})
        ends = predict(probed(wanted), wanted, epochs=20, draws=50)[:, [3, 19]]
        (offer,) = (offer for offer in made().offers if offer.scheme.name == "conventional")
        found = {entry.solver: entry.time for entry in offer.predictions}
        for solver, seconds in zip(("conjugate-gradients", "gradient-descent"), ends.T, strict=True):
            assert found[solver].mean == pytest.approx(seconds.mean())
            assert (found[solver].low, found[solver].high) == pytest.approx(tuple(np.quantile(seconds, [0.025, 0.975])))

    def test_what_encrypts_is_recommended(self) -> None:
        quickest = next(offer for offer in made().offers if offer.scheme.verdict in ENCRYPTED)
        assert made().recommended is quickest
        assert quickest.scheme.allowed_if in made().reason

    def test_the_quickest_is_recommended_where_secrecy_is_not_asked_for(self) -> None:
        assert made("any").recommended is made("any").offers[0]

    @pytest.mark.parametrize("privacy", ["encrypted", "sums", "any"])
    def test_what_is_broken_never_is(self, privacy: str) -> None:
        alone = plan(of_scheme("code-based"), shapes(), names=["code-based"], draws=2, privacy=privacy)
        assert alone.offers[0].predictions
        assert alone.recommended is None
        assert "No scheme" in alone.reason
        table = alone.to_table()
        assert (table["recommended"], table["solver"]) == (None, None)

    def test_nothing_in_clear_where_secrecy_is_asked_for(self) -> None:
        assert plan(small(), shapes(), names=["conventional"], draws=2).recommended is None
        assert plan(small(), shapes(), names=["conventional"], draws=2, privacy="any").recommended is not None

    def test_bits_of_a_device(self) -> None:
        """Conventional FL: d * c numbers of 32 bits an epoch, down from the second epoch on."""
        (offer,) = (offer for offer in made().offers if offer.scheme.name == "conventional")
        number = 30 * 10 * 32
        for entry in offer.predictions:
            epochs = entry.epochs.count
            assert entry.bits["up"] == {"mean": epochs * number, "largest": epochs * number}
            assert entry.bits["down"] == {"mean": (epochs - 1) * number, "largest": (epochs - 1) * number}
            assert entry.bits["d2d"] == {"mean": 0, "largest": 0}
            assert entry.bits_per_device == epochs * number

    def test_the_table(self) -> None:
        table = made().to_table()
        assert table["recommended"] == made().offers[0].scheme.name == "one-shot"
        for row in table["schemes"]:
            assert row.keys() >= {"scheme", "seconds", "low", "high", "bits_per_device", "leakage", "verdict"}
            if row["refused"] is None:
                assert row["low"] <= row["seconds"] <= row["high"]
                assert row["seconds"] == min(entry["seconds"] for entry in row["solvers"])
                assert row["epochs_from"] == ("by its nature" if row["solver"] == "closed-form" else "told by --epochs")

    def test_wrong_words(self) -> None:
        with pytest.raises(UsageError, match="nosuch"):
            plan(small(), shapes(), names=["nosuch"])
        with pytest.raises(UsageError, match="total"):
            plan(small(), shapes(), privacy="total")
        with pytest.raises(UsageError, match=r"training\.start = 'model\.npz' changes how many epochs") as error:
            plan(small({"training.start": "model.npz"}), shapes())
        assert is_one_sentence(str(error.value))

    def test_losses_are_not_foreseen(self) -> None:
        """A device that will be lost is predicted as if it stayed."""
        leaving = small({"scheme": "conventional", "fleet.devices.1.last_epoch": 3})
        staying = small({"scheme": "conventional"})
        both = [predict(probed(wanted), wanted, epochs=6, draws=3) for wanted in (leaving, staying)]
        assert np.array_equal(*both)

    def test_shapes_of_other_data(self) -> None:
        """Conventional FL costs 2 n d multiplications an output where that is fewer than d^2."""
        wanted = small({"scheme": "conventional"})
        few, many = (probed(wanted, replace(shapes(), samples=(samples,) * 5)) for samples in (5, 500))
        assert few.probed.rounds[1].macs.tolist() == [2 * 5 * 30 * 10] * 5
        assert many.probed.rounds[1].macs.tolist() == [30 * 30 * 10] * 5


def test_a_plan_in_short() -> None:
    made = codedfl.plan("paper-quick", ["minibatch", "sealed-coded"], draws=5)
    quickest = made.offers[0].scheme.name
    assert repr(made).startswith(f"<Plan of 2 schemes: {quickest} with ")
    assert made._repr_html_().count("<tr>") == 3
    none = codedfl.plan("paper-quick", ["minibatch"], draws=5)
    assert repr(none) == "<Plan of 1 schemes: none is recommended>"
