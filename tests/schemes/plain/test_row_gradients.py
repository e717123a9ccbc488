"""Gradients from rows: what one record can change, which requests are refused, and other losses in clear."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.errors import DataError, RefusalError, ScenarioError, TrainingError
from codedfl.privacy.descent import GradientRelease
from codedfl.schemes import Work
from codedfl.schemes.plain.row_gradients import ClippedGradients, RowDevice
from codedfl.schemes.private import noisy_shard
from codedfl.task import Shard
from codedfl.testing.small import conversed, is_one_sentence, placed, problem, scenario

PRIVATE: dict[str, Any] = {"scheme": "secagg", "privacy.epsilon": 5.0, "privacy.release": "each-epoch"}
LOSSES = ("squared", "softmax")


def release(shard: Shard, **changes: Any) -> GradientRelease:
    given = {"epsilon": 3.0, "delta": 1e-5, "clip_features": 1.0, "clip_residuals": 1.0, "epochs": 4}
    sizes = {"features": shard.x.shape[1], "outputs": shard.y.shape[1], "devices": 3, "largest_rows": shard.samples}
    return GradientRelease.plan(**given | sizes | {"records": 100} | changes)


def reply(shard: Shard, planned: GradientRelease, model: np.ndarray) -> np.ndarray:
    return ClippedGradients(shard, planned, bytes(32)).steps(1, model, Work())


@st.composite
def devices(draw: st.DrawFn) -> tuple[Shard, np.ndarray, int, dict[str, Any]]:
    """Rows, targets and models of any size, from far below the clips to far above."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d, c = draw(st.integers(1, 8)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    sizes = st.sampled_from([1e-6, 0.3, 1.0, 50.0, 1e60])
    shard = Shard(draw(sizes) * rng.standard_normal((n, d)), np.eye(c)[rng.integers(c, size=n)] * draw(sizes))
    clips = {"clip_features": draw(st.floats(0.01, 100)), "clip_residuals": draw(st.floats(0.01, 100))}
    return shard, draw(sizes) * rng.standard_normal((d, c)), draw(st.integers(0, n - 1)), clips


def without(shard: Shard, row: int) -> Shard:
    """The same rows with zeros in place of one: how many there are is public."""
    x, y = shard.x.copy(), shard.y.copy()
    x[row], y[row] = 0, 0
    return Shard(x, y)


class TestSensitivity:
    @pytest.mark.parametrize("loss", LOSSES)
    @settings(max_examples=200)
    @given(case=devices())
    def test_no_record_changes_a_reply_more_than_planned(self, loss: str, case: Any) -> None:
        shard, model, row, clips = case
        planned = release(shard, loss=loss, **clips)
        # the noise is that of seed, epoch and model, so it cancels
        change = reply(shard, planned, model) - reply(without(shard, row), planned, model)
        assert np.linalg.norm(change) <= planned.sensitivity * 2.0**planned.bits
        whole = clips["clip_features"] * clips["clip_residuals"]
        assert planned.sensitivity < 1.001 * whole, "the bound is loose"

    @settings(max_examples=100)
    @given(case=devices())
    def test_nor_all_records_of_a_device_where_it_is_hidden(self, case: Any) -> None:
        shard, model, _, clips = case
        planned = release(shard, unit="device", most_rows=2, delta=0.1, **clips)
        change = reply(shard, planned, model) - reply(Shard(0 * shard.x, 0 * shard.y), planned, model)
        assert np.linalg.norm(change) <= planned.sensitivity * 2.0**planned.bits

    def test_a_record_can_come_near(self) -> None:
        shard = Shard(np.array([[3.0, 4.0]]), np.array([[5.0, -12.0]]))
        planned, model = release(shard), np.zeros((2, 2))
        change = reply(shard, planned, model) - reply(without(shard, 0), planned, model)
        expected = -np.outer([0.6, 0.8], [5 / 13, -12 / 13]) * 2.0**planned.bits
        np.testing.assert_allclose(change, expected, rtol=1e-6)

    def test_residuals_are_those_of_clipped_features(self) -> None:
        """(0.6, 0.8) in place of (3, 4): outputs 1.4 and 2.8, residuals 0.4 and 0.8, which are not clipped."""
        shard = Shard(np.array([[3.0, 4.0]]), np.array([[1.0, 2.0]]))
        planned, model = release(shard, clip_residuals=9.0), np.array([[1.0, 2.0], [1.0, 2.0]])
        change = reply(shard, planned, model) - reply(without(shard, 0), planned, model)
        np.testing.assert_allclose(change, np.outer([0.6, 0.8], [0.4, 0.8]) * 2.0**planned.bits, rtol=1e-6)


class TestRequests:
    def made(self, answered: dict[int, bytes] | None = None) -> tuple[ClippedGradients, np.ndarray]:
        shard = problem((30,), dtype="float64").shards[0]
        keep = None if answered is None else answered.setdefault
        return ClippedGradients(shard, release(shard), bytes(32), keep), np.ones((6, 3))

    def test_the_same_model_has_the_same_reply(self) -> None:
        kept: dict[int, bytes] = {}
        first, model = self.made(kept)
        found = first.steps(2, model, Work())
        np.testing.assert_array_equal(found, first.steps(2, model, Work()))
        again, _ = self.made(kept)  # a site that was restarted
        np.testing.assert_array_equal(found, again.steps(2, model, Work()))
        with pytest.raises(RefusalError, match="epoch 2 was answered with another model"):
            again.steps(2, model + 1, Work())

    def test_another_model_in_the_same_epoch_is_refused(self) -> None:
        made, model = self.made()
        made.steps(1, model, Work())
        with pytest.raises(RefusalError, match="one release more than planned") as error:
            made.steps(1, np.nextafter(model, 2), Work())
        assert is_one_sentence(str(error.value))
        made.steps(2, np.nextafter(model, 2), Work())

    def test_a_reply_that_was_rounded_otherwise_before_is_refused(self) -> None:
        kept: dict[int, bytes] = {}
        made, model = self.made(kept)
        made.steps(1, model, Work())
        kept[1] = kept[1][:-1] + bytes([kept[1][-1] ^ 1])
        with pytest.raises(RefusalError, match="not that of before to the last bit"):
            made.steps(1, model, Work())

    @pytest.mark.parametrize("epoch", [-1, 0, 5])
    def test_epochs_that_were_not_planned_are_refused(self, epoch: int) -> None:
        made, model = self.made()
        with pytest.raises(RefusalError, match="epochs 1 to 4") as error:
            made.steps(epoch, model, Work())
        assert is_one_sentence(str(error.value))

    @pytest.mark.parametrize("entry", [np.nan, np.inf, 1e101])
    def test_models_that_overflow_are_refused_whatever_the_data(self, entry: float) -> None:
        made, model = self.made()
        model[1, 1] = entry
        with pytest.raises(TrainingError, match="diverged"):
            made.steps(1, model, Work())
        made.steps(1, np.ones((6, 3)), Work())

    @pytest.mark.parametrize("entry", [np.nan, 1e101])
    def test_data_that_overflow_are_refused(self, entry: float) -> None:
        with pytest.raises(DataError, match="cannot be clipped"):
            ClippedGradients(Shard(np.full((1, 6), entry), np.ones((1, 3))), self.made()[0]._release, bytes(32))

    def test_the_largest_data_and_models_are_taken(self) -> None:
        """1e100 is not too large, and negative numbers are as large as positive ones."""
        shard = Shard(np.full((1, 6), -1e100), np.full((1, 3), 1e100))
        made = ClippedGradients(shard, self.made()[0]._release, bytes(32))
        made.steps(1, np.full((6, 3), -1e100), Work())
        for model in (np.full((6, 3), np.nextafter(1e100, 2e100)), np.full((6, 3), -1e101)):
            with pytest.raises(TrainingError, match="diverged"):
                made.steps(2, model, Work())

    def test_two_products_and_the_clipping_are_counted(self) -> None:
        made, model = self.made()
        work = Work()
        made.steps(1, model, work)
        assert work.macs == 2 * 30 * 6 * 3 + 2 * 30 * 3


class TestInSums:
    @pytest.mark.parametrize("loss", LOSSES)
    def test_secure_aggregation_opens_the_sum_of_the_replies_to_the_last_bit(self, loss: str) -> None:
        data = problem((30, 20, 10), dtype="float64")
        made = schemes.create(scenario({**PRIVATE, "task.loss": loss}), data)
        planned, rng = made.public.release, np.random.default_rng(1)
        assert isinstance(planned, GradientRelease)

        def shards() -> list[Any]:
            return [noisy_shard(shard, planned, bytes([i]) * 32) for i, shard in enumerate(data.shards)]

        server, sides = placed(made, shards())
        clear = shards()
        for epoch in range(1, 6):
            model = rng.normal(size=data.shape)
            steps = sum(shard.gradients.steps(epoch, model, Work()) for shard in clear)
            found = conversed(server, sides, epoch, model)
            np.testing.assert_array_equal(found, steps.astype(float) * 2.0**-planned.bits / 60)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_without_clipping_and_with_little_noise_it_is_the_gradient(self, loss: str) -> None:
        data = replace(problem((30, 20, 10), dtype="float64"), loss=loss)
        wide = {"privacy.clip_features": 8.0, "privacy.clip_residuals": 30.0, "privacy.epsilon": 1e12}
        made = schemes.create(scenario({**PRIVATE, **wide, "task.loss": loss}), data)
        planned = made.public.release
        server, sides = placed(made, [noisy_shard(shard, planned, bytes(32)) for shard in data.shards])
        model = np.random.default_rng(1).normal(size=data.shape)
        found = conversed(server, sides, 1, model)
        bound = 6 * planned.std / 60 + 3 * 2.0**-planned.bits
        assert bound < 1e-4
        np.testing.assert_allclose(found, data.score(model[None]).gradient[0], atol=bound)

    def test_rows_stay_with_the_device(self) -> None:
        data = problem((30, 20, 10), dtype="float64")
        planned = schemes.create(scenario(PRIVATE), data).public.release
        shard = noisy_shard(data.shards[0], planned, None)
        assert (shard.samples, shard.x.any(), shard.y.any()) == (30, False, False)


class TestInClear:
    @pytest.mark.parametrize(
        ("loss", "residuals"),
        [("softmax", [[1 / 4, -1 / 4], [0.0, 0.0]]), ("squared", [[0.0, np.log(3) - 1], [-1, 0.0]])],
    )
    def test_a_gradient_by_hand(self, loss: str, residuals: list[list[float]]) -> None:
        """Outputs (0, ln 3) and (0, 0); the softmax of these is (1/4, 3/4) and (1/2, 1/2)."""
        half = [0.5, 0.5] if loss == "softmax" else [1.0, 0.0]
        shard = Shard(np.array([[1.0, 2.0], [0.0, 5.0]]), np.array([[0.0, 1.0], half]))
        work, model = Work(), np.array([[0.0, np.log(3)], [0.0, 0.0]])
        found = RowDevice(shard, loss).reply(1, {"model": model}, work)["gradient"]
        np.testing.assert_allclose(found, shard.x.T @ np.array(residuals), rtol=1e-14, atol=1e-15)
        assert work.macs == 2 * 2 * 2 * 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"scheme": "one-shot", "training.solver": "closed-form"}, "'each-epoch' is for scheme = 'secagg'"),
            ({"scheme": "sealed-coded"}, "'each-epoch' is for scheme = 'secagg'"),
            ({"scheme": "conventional"}, "more than sums over all devices"),
            ({"schemes.secagg.inner": "sealed"}, "'sealed' do not clip gradients"),
            ({"schemes.secagg.inner": "minibatch"}, "sums of 'minibatch'"),
            ({"training.solver": "conjugate-gradients"}, "gradients without noise"),
            ({"privacy.losses": 1}, "privacy.losses must be 0"),
            ({"task.precision": "float32"}, "float32"),
        ],
    )
    def test_of_noise_in_each_epoch(self, changes: dict[str, Any], word: str) -> None:
        with pytest.raises(ScenarioError, match=word) as error:
            schemes.check(scenario({**PRIVATE, **changes}))
        assert is_one_sentence(str(error.value))

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"scheme": "minibatch"}, "scheme = 'minibatch' trains with the squared loss only"),
            ({"scheme": "one-shot", "training.solver": "closed-form"}, "scheme = 'one-shot' trains with the squared"),
            ({"scheme": "secagg", "schemes.secagg.inner": "sealed"}, "scheme = 'secagg' trains with the squared"),
            ({"training.solver": "conjugate-gradients"}, "needs the squared loss, not task.loss = 'softmax'"),
            ({"features.intercept": True}, "features.intercept"),
            ({"training.start": "first.npz"}, "training.start"),
            ({"scheme": "secagg", "privacy.epsilon": 1.0}, "privacy.release = 'once'"),
        ],
    )
    def test_of_the_softmax(self, changes: dict[str, Any], word: str) -> None:
        with pytest.raises(ScenarioError, match=word) as error:
            schemes.check(scenario({"scheme": "conventional", "task.loss": "softmax", **changes}))
        assert is_one_sentence(str(error.value))

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"privacy.clip_residuals": 0.0}, "privacy.clip_residuals"),
            ({"privacy.clip_targets": 2.0}, "privacy.clip_targets is not used with privacy.release = 'each-epoch'"),
            ({"privacy.release": "once", "privacy.clip_residuals": 2.0}, "privacy.clip_residuals is not used"),
            ({"privacy.release": "always"}, "privacy.release"),
            ({"task.loss": "hinge"}, "task.loss"),
        ],
    )
    def test_of_settings(self, changes: dict[str, Any], word: str) -> None:
        with pytest.raises(ScenarioError, match=word):
            scenario({**PRIVATE, **changes})
