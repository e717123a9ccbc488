"""Runs with noise: what they are computed from, and that an interruption draws no second release."""

import json
from pathlib import Path

import numpy as np
import pytest

from codedfl import schemes
from codedfl.errors import CipherError, ScenarioError
from codedfl.privacy.noise import spare_noise
from codedfl.privacy.release import Release
from codedfl.runs import backend
from codedfl.runs import directory as runs
from codedfl.scenario import Privacy
from codedfl.schemes.aggregated.noisy import ExactReplies
from codedfl.schemes.messages import Work
from codedfl.schemes.private import NoisyShard, noise_key, noisy_shard
from codedfl.task import Shard
from codedfl.testing.small import conversed, placed, problem, scenario
from rundirs import Stopped, results, small, stop_at

PRIVATE = {"privacy.epsilon": 5.0, "privacy.delta": 1e-5, "training.targets": [], "timing.draws": 5}
LOSSES = {"privacy.losses": 2, "privacy.epsilon": 1.0}
SCHEMES = ("one-shot", "sealed-coded", "secagg")


def private(scheme: str, **more: object) -> dict[str, object]:
    solver = "closed-form" if scheme == "one-shot" else "gradient-descent"
    return {**PRIVATE, "scheme": scheme, "training.solver": solver, "training.learning_rate": 0.1, **more}


def private_run(path: Path, changes: dict[str, object], **options: object) -> runs.Run:
    return runs.execute(small(changes), path, **options)


def stop_in_timing(stage: str, done: int, total: int) -> None:
    if stage.startswith("timing"):
        raise Stopped


class TestShard:
    def release(self, given, **more):
        return schemes.create(scenario(private("one-shot", **more)), given).public.release

    def test_it_keeps_no_rows(self) -> None:
        given = problem((30, 20, 10), dtype="float64")
        noisy = noisy_shard(given.shards[0], self.release(given), bytes(32))
        assert noisy.samples == 30
        assert not noisy.x.any()
        assert not noisy.y.any()
        assert noisy.compact

    def test_rows_are_clipped_before_they_are_added(self) -> None:
        given = problem((30, 20, 10), dtype="float64")
        release = self.release(given, **{"privacy.clip_features": 0.5, "privacy.clip_targets": 0.25})
        x, y = given.shards[0].x, given.shards[0].y
        x = x * np.minimum(1, 0.5 / np.linalg.norm(x, axis=1, keepdims=True))
        y = y * np.minimum(1, 0.25 / np.linalg.norm(y, axis=1, keepdims=True))
        drawn = noisy_shard(given.shards[0], release, bytes(32))
        zero = noisy_shard(Shard(0 * given.shards[0].x, 0 * given.shards[0].y), release, bytes(32))
        steps = 2.0**-release.gram_bits, 2.0**-release.moments_bits
        np.testing.assert_allclose(drawn.gram - zero.gram, x.T @ x, atol=steps[0], rtol=1e-9)
        np.testing.assert_allclose(drawn.moments - zero.moments, x.T @ y, atol=steps[1], rtol=1e-9)

    def test_rows_of_a_device_count_as_few_where_the_device_is_hidden(self) -> None:
        given = problem((30, 20, 10), dtype="float64")
        release = self.release(given, **{"privacy.unit": "device", "privacy.most_rows": 5, "privacy.delta": 0.1})
        shards = [given.shards[0], Shard(0 * given.shards[0].x, 0 * given.shards[0].y)]
        drawn, zero = (noisy_shard(each, release, bytes(32)) for each in shards)
        x = given.shards[0].x
        x = x * np.minimum(1, 1 / np.linalg.norm(x, axis=1, keepdims=True))
        np.testing.assert_allclose(drawn.gram - zero.gram, 5 / 30 * x.T @ x, atol=2.0**-release.gram_bits, rtol=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_are_those_of_the_noisy_sums(scheme: str) -> None:
    """At several models, computed here from the sum of the noisy shards."""
    given, wanted = problem((30, 20, 10), dtype="float64"), scenario(private(scheme))
    made = schemes.create(wanted, given)
    assert made.public.release is not None
    shards = [noisy_shard(shard, made.public.release, bytes([i]) * 32) for i, shard in enumerate(given.shards)]
    A, B = sum(shard.gram for shard in shards), sum(shard.moments for shard in shards)
    assert not np.allclose(A, given.total_gram, rtol=0.1)
    rng = np.random.default_rng(1)
    models = [np.zeros(given.shape), *(rng.normal(size=given.shape) for _ in range(2))]
    server, devices = placed(made, shards)
    for epoch, model in enumerate(models, start=1):
        gradient = conversed(server, devices, epoch, model)
        np.testing.assert_allclose(gradient, (A @ model - B) / 60, rtol=1e-6, atol=1e-6 * np.abs(A).max())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_resumed_run_draws_no_second_release(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    drawn: list[bytes] = []

    def draw(given: Privacy) -> bytes:
        drawn.append(noise_key(given))
        return drawn[0]

    monkeypatch.setattr(backend, "noise_key", draw)
    whole = private_run(tmp_path / "whole", private(scheme))
    progress = stop_in_timing if scheme == "one-shot" else stop_at(7)  # the closed form takes one epoch
    with pytest.raises(Stopped):
        private_run(tmp_path / "run", private(scheme), progress=progress)
    assert len(drawn) == 2
    assert "kept_noise" in np.load(tmp_path / "run" / "checkpoint.npz")
    assert (tmp_path / "run" / "checkpoint.npz").stat().st_mode & 0o077 == 0, "others could take the noise off"
    private_run(tmp_path / "run", private(scheme))
    assert len(drawn) == 2, "the resumed run drew again"
    assert results(tmp_path / "run") == results(whole.path)
    assert not (tmp_path / "run" / "checkpoint.npz").exists(), "the key of the noise stays on disk"


def test_noise_comes_from_the_operating_system_unless_a_seed_is_given(tmp_path: Path) -> None:
    first, second, third = (private_run(tmp_path / str(i), private("one-shot")).model for i in range(3))
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)
    known = {**private("one-shot"), "privacy.seed": 3}
    same, again = (private_run(tmp_path / f"known{i}", known).model for i in range(2))
    np.testing.assert_array_equal(same, again)


def test_without_noise_the_section_changes_no_id() -> None:
    plain = scenario({"scheme": "one-shot"})
    assert "privacy" in plain.to_table()
    assert plain.with_settings({"privacy.epsilon": 1.0}).id() != plain.id()
    assert json.dumps(plain.to_table()["privacy"])


def test_a_noisy_shard_is_one(tmp_path: Path) -> None:
    given = problem((30, 20, 10), dtype="float64")
    release = schemes.create(scenario(private("one-shot")), given).public.release
    assert isinstance(noisy_shard(given.shards[0], release, None), NoisyShard)


class TestSpareNoise:
    """Noise that devices add for others which may be lost, and tell the seed of if nobody was."""

    def sums(self, answers=lambda device, question: True) -> tuple[np.ndarray, np.ndarray, list[NoisyShard]]:
        given, wanted = (
            problem((30, 20, 10, 25, 15, 20), dtype="float64"),
            scenario(private("one-shot", **LOSSES)),
        )
        made = schemes.create(wanted, given)
        release = made.public.release
        assert release is not None
        assert made.survives_losses == 2
        shards = [noisy_shard(shard, release, bytes([i]) * 32) for i, shard in enumerate(given.shards)]
        server, devices = placed(made, shards)
        assert conversed(server, devices, 1, np.zeros(given.shape), answers) is not None
        totals = server.totals()
        assert totals is not None
        alone = [spare_noise(release, shard.spare or b"")[0] for shard in shards]
        return totals[0], np.array(alone), shards

    def test_it_is_removed_if_nobody_is_lost(self) -> None:
        opened, spare, shards = self.sums()
        assert np.abs(spare).min(axis=0).max() > 0
        np.testing.assert_allclose(opened, sum(each.gram for each in shards) - spare.sum(axis=0), rtol=1e-12, atol=1e-9)

    def test_that_of_right_hand_sides_is_removed_as_well(self) -> None:
        given = problem((30, 20, 10, 25, 15, 20), dtype="float64")
        made = schemes.create(scenario(private("one-shot", **LOSSES)), given)
        release = made.public.release
        assert isinstance(release, Release)
        shards = [noisy_shard(shard, release, bytes([i]) * 32) for i, shard in enumerate(given.shards)]
        server, devices = placed(made, shards)
        assert conversed(server, devices, 1, np.zeros(given.shape)) is not None
        totals, spare = server.totals(), [spare_noise(release, shard.spare or b"")[1] for shard in shards]
        assert totals is not None
        assert np.abs(spare).min() > 0
        left = sum(each.moments for each in shards) - sum(spare)
        np.testing.assert_allclose(totals[1], left, rtol=1e-12, atol=1e-9)

    def test_it_stays_if_a_device_is_lost(self) -> None:
        opened, _, shards = self.sums(lambda device, question: device != 4)
        scale = 120 / 105  # the sums of the others are scaled to all data points
        left = scale * sum(each.gram for number, each in enumerate(shards) if number != 4)
        np.testing.assert_allclose(opened, left, rtol=1e-12, atol=1e-9)

    def test_that_of_a_device_which_leaves_before_it_tells_stays(self) -> None:
        opened, spare, shards = self.sums(lambda device, question: device != 4 or question < 3)
        told = spare.sum(axis=0) - spare[4]
        np.testing.assert_allclose(opened, sum(each.gram for each in shards) - told, rtol=1e-12, atol=1e-9)

    def test_two_sums_must_not_open_with_the_help_of_those_who_collude(self) -> None:
        """Two of four honest devices and two that collude are four, the threshold: and so are the other two."""
        given = problem((30, 20, 10, 25, 15, 20), dtype="float64")
        changes = LOSSES | {"privacy.colluding": 2, "fleet.devices": [{"count": 6, "mac_rate": 1e6}]}
        with pytest.raises(ScenarioError, match=r"whose difference has too little noise; .*threshold = 5, or lower"):
            schemes.create(scenario(private("one-shot", **changes)), given)
        assert schemes.create(scenario(private("one-shot", **changes, **{"schemes.one-shot.threshold": 5})), given)

    def test_more_losses_than_foreseen_open_nothing(self) -> None:
        given, wanted = (
            problem((30, 20, 10, 25, 15, 20), dtype="float64"),
            scenario(private("one-shot", **LOSSES)),
        )
        made = schemes.create(wanted, given)
        shards = [noisy_shard(shard, made.public.release, bytes(32)) for shard in given.shards]
        server, devices = placed(made, shards)
        assert conversed(server, devices, 1, np.zeros(given.shape), lambda device, question: device > 2) is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_devices_cannot_be_told_apart_by_the_rounding_of_their_replies(scheme: str) -> None:
    """What one device has more and another has less, in whole steps, leaves every bit of every gradient as it was."""
    given, wanted = problem((30, 20, 10), dtype="float64"), scenario(private(scheme))
    made = schemes.create(wanted, given)
    release = made.public.release
    assert release is not None
    before = [noisy_shard(shard, release, bytes([i]) * 32) for i, shard in enumerate(given.shards)]
    after = [noisy_shard(shard, release, bytes([i]) * 32) for i, shard in enumerate(given.shards)]
    for shard, sign in zip(after, (1, -1, 0), strict=True):  # by about 100 steps of any format
        gram, side = (2.0 ** (round(np.log2(step)) + 7) for step in release.coarsest_steps)
        vars(shard).update(gram=shard.gram + sign * gram, moments=shard.moments + sign * side)
    rng = np.random.default_rng(1)
    models = [np.zeros(given.shape), *(rng.normal(size=given.shape) * scale for scale in (1, 1e-3, 1e-6, 1e3))]
    sides = [placed(made, shards) for shards in (before, after)]
    for epoch, model in enumerate(models, start=1):
        first, second = (conversed(server, devices, epoch, model) for server, devices in sides)
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("model", "bits", "says"),
    [
        (np.zeros((10, 40)), 40, r"shape \(10, 40\) is refused"),
        (np.full((40, 10), np.inf), 40, "does not fit"),
        (np.full((40, 10), np.nan), 40, "does not fit"),
        (np.ones((40, 10)), 30_000, "does not fit"),
    ],
)
def test_models_that_cannot_be_multiplied_exactly_are_refused(model: np.ndarray, bits: int, says: str) -> None:
    given = problem((30, 20, 10), features=40, outputs=10, dtype="float64")
    release = schemes.create(scenario(private("secagg")), given).public.release
    exact = ExactReplies(noisy_shard(given.shards[0], release, bytes(32)), release)
    with pytest.raises(CipherError, match=says):
        exact.reply(model, bits, Work())
