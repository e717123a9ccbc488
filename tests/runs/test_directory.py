"""The run directory: its files, their agreement with each other, and what is refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from codedfl.data import load_named
from codedfl.errors import RunDirectoryError, ScenarioError, TrainingError
from codedfl.runs import directory as runs
from codedfl.runs import target_name
from codedfl.scenario import Scenario
from codedfl.training import COLUMNS
from rundirs import FINISHED, SCHEMES, Stopped, epochs, files, small, small_problem, small_run, stop_at, summary, tree
from tiny import is_one_sentence

DEVICES, FEATURES, OUTPUTS, EPOCHS = 5, 30, 10, 24
PROMISED = {
    "scenario_id",
    "scheme",
    "epochs",
    "final_accuracy",
    "final_r2",
    "metrics",
    "remark",
    "time_to_accuracy",
    "bits_sent",
    "device_macs",
    "wall_seconds",
    "decode_failures",
    "gradient_error",
}


@pytest.fixture(scope="module", params=SCHEMES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> runs.Run:
    """A finished run of each scheme; tests only read it."""
    return small_run(tmp_path_factory.mktemp("run") / request.param, {"scheme": request.param})


class TestContents:
    def test_files(self, run: runs.Run) -> None:
        repeats = (1, 2) if run.scenario.scheme == "drop-slowest" else ()
        wanted = FINISHED | {f"repeats/{number}/{name}" for number in repeats for name in FINISHED}
        assert files(run.path) == wanted

    def test_the_scenario_can_be_read_back(self, run: runs.Run) -> None:
        written = Scenario.from_toml((run.path / "scenario.toml").read_text())
        assert written == small({"scheme": run.scenario.scheme})
        assert summary(run.path)["scenario_id"] == written.id()
        assert summary(run.path)["scheme"] == written.scheme

    def test_what_is_returned_is_what_was_written(self, run: runs.Run) -> None:
        assert run.summary == summary(run.path)
        assert run.epochs.keys() == epochs(run.path).keys()
        for name, values in epochs(run.path).items():
            np.testing.assert_array_equal(run.epochs[name], values)
        again = runs.load(run.path)
        assert (again.scenario, again.summary) == (run.scenario, run.summary)
        np.testing.assert_array_equal(again.timings, np.load(run.path / "timings.npy"))

    def test_promised_keys(self, run: runs.Run) -> None:
        assert summary(run.path).keys() >= PROMISED
        assert summary(run.path)["time_to_accuracy"].keys() == {"0.5", "0.7", "0.99"}
        assert summary(run.path)["bits_sent"].keys() == {"up", "down", "d2d"}

    def test_columns(self, run: runs.Run) -> None:
        columns = epochs(run.path)
        assert list(columns) == [*COLUMNS, "time_mean", "time_low", "time_high"]
        assert columns["epoch"].tolist() == list(range(1, EPOCHS + 1))
        for name in ("epoch", "replies", "down_bits", "up_bits", "d2d_bits", "device_macs", "server_macs"):
            assert columns[name].dtype == np.int64, name
        for name, values in columns.items():
            if name != "gradient_error":
                assert np.isfinite(values.astype(float)).all(), name

    def test_learning_rate_and_replies(self, run: runs.Run) -> None:
        columns = epochs(run.path)
        rates = [4.0] * 9 + [4.0 * 0.8] * 15  # decays by the default 0.8 at epoch 10
        np.testing.assert_allclose(columns["learning_rate"], rates, rtol=1e-15)
        assert set(columns["replies"]) == {4 if run.scenario.scheme == "drop-slowest" else DEVICES}


class TestAgreement:
    def test_totals_are_the_sums_of_the_columns(self, run: runs.Run) -> None:
        found, columns = summary(run.path), epochs(run.path)
        assert found["epochs"] == len(columns["epoch"]) == EPOCHS
        assert found["bits_sent"] == {link: int(columns[f"{link}_bits"].sum()) for link in ("up", "down", "d2d")}
        assert found["device_macs"] == columns["device_macs"].sum()
        assert found["final_accuracy"] == columns["accuracy"][-1]
        assert found["best_accuracy"] == columns["accuracy"].max()
        assert found["virtual_seconds"] == columns["time"][-1]
        ends = [float(end) for each in run.repeats for end in each.timings[:, EPOCHS - 1]]  # written in float32
        assert len(set(ends)) > 1, "another time in each draw"
        assert found["seconds_per_epoch"] == pytest.approx(sum(ends) / len(ends) / EPOCHS, rel=2**-24)
        assert found["decode_failures"] == 0
        assert found["wall_seconds"] > 0

    def test_bits_are_those_of_models_down_and_gradients_up(self, run: runs.Run) -> None:
        if run.scenario.scheme == "drop-slowest":
            pytest.skip("replies that nobody awaits are another question")
        each = DEVICES * FEATURES * OUTPUTS * 32
        # the first gradient is computed offline: nobody needs the model for it, but it is sent up
        assert summary(run.path)["bits_sent"] == {"down": each * (EPOCHS - 1), "up": each * EPOCHS, "d2d": 0}

    def test_multiplications_are_those_of_the_products(self, run: runs.Run) -> None:
        samples = [shard.samples for shard in small_problem().shards]
        if run.scenario.scheme == "minibatch":
            third = [[part * n // 3 for part in range(4)] for n in samples]
            wanted = sum(
                2 * (cuts[(epoch - 1) % 3 + 1] - cuts[(epoch - 1) % 3]) * FEATURES * OUTPUTS
                for epoch in range(2, EPOCHS + 1)
                for cuts in third
            )
        else:
            wanted = DEVICES * FEATURES * FEATURES * OUTPUTS * (EPOCHS - 1)
        assert summary(run.path)["device_macs"] == wanted

    def test_time_to_accuracy_follows_from_the_columns(self, run: runs.Run) -> None:
        places = [run.path, *sorted((run.path / "repeats").glob("*"))]
        for name, found in summary(run.path)["time_to_accuracy"].items():
            times = []
            for place in places:
                columns = epochs(place)
                reached = np.flatnonzero(columns["accuracy"] >= float(name))
                times += [columns["time_mean" if len(places) == 1 else "time"][reached[0]]] if len(reached) else []
            if len(times) < len(places):
                assert found is None
            else:
                # timings.npy, from which repetitions are read, keeps single precision
                assert found == pytest.approx(np.mean(times), rel=1e-12 if len(places) == 1 else 2e-7)
        assert summary(run.path)["time_to_accuracy"]["0.5"] is not None, "the targets are chosen to show both cases"
        assert summary(run.path)["time_to_accuracy"]["0.99"] is None

    def test_bands_hold_the_mean(self, run: runs.Run) -> None:
        found, columns = summary(run.path), epochs(run.path)
        for target, mean in found["time_to_accuracy"].items():
            limits = found["time_to_accuracy_band"][target]
            assert limits is None if mean is None else limits[0] <= mean <= limits[1]
        assert (columns["time_low"] <= columns["time_mean"]).all()
        assert (columns["time_mean"] <= columns["time_high"]).all()
        assert (columns["time_low"] < columns["time_high"]).all()

    def test_the_run_lives_in_a_draw_of_its_own_band(self, run: runs.Run) -> None:
        columns, timings = epochs(run.path), np.load(run.path / "timings.npy")
        assert timings.shape == (1 if run.scenario.scheme == "drop-slowest" else 50, EPOCHS)
        np.testing.assert_allclose(timings[run.scenario.timing.draw], columns["time"], rtol=2e-7)
        assert (np.diff(timings, axis=1) > 0).all()
        if len(timings) > 1:
            np.testing.assert_allclose(columns["time_mean"], timings.mean(axis=0, dtype=float), rtol=2e-7)
            low, high = np.quantile(timings.astype(float), [0.025, 0.975], axis=0)
            np.testing.assert_allclose(columns["time_low"], low, rtol=2e-7)
            np.testing.assert_allclose(columns["time_high"], high, rtol=2e-7)

    def test_the_band_of_repeated_trainings_is_over_all_of_them(self, run: runs.Run) -> None:
        if run.scenario.scheme != "drop-slowest":
            pytest.skip("its model does not depend on the timing")
        times = [epochs(place)["time"] for place in (run.path, run.path / "repeats/1", run.path / "repeats/2")]
        assert len({column.tobytes() for column in times}) == 3, "each repetition has delays of its own"
        np.testing.assert_allclose(epochs(run.path)["time_mean"], np.mean(times, axis=0), rtol=2e-7)
        assert summary(run.path)["timing_draws"] == 3
        assert [entry.scenario.timing.draw for entry in run.repeats] == [0, 1, 2]

    def test_gradient_error_is_given_where_the_gradient_is_exact(self, run: runs.Run) -> None:
        found, column = summary(run.path)["gradient_error"], epochs(run.path)["gradient_error"]
        if run.scenario.scheme == "conventional":
            assert found == column.max()
            # a gradient in single precision, summed over 1,442 rows
            assert 0 < found < 1442 * np.finfo(np.float32).eps
        else:
            assert found is None
            assert np.isnan(column).all()

    def test_the_model_scores_what_the_summary_says(self, run: runs.Run) -> None:
        with np.load(run.path / "model.npz") as arrays:
            model = arrays["theta"]
        assert model.shape == (FEATURES, OUTPUTS)
        problem = small_problem()
        guesses = np.argmax(problem.x_test @ model.astype(np.float32), axis=1)
        found = summary(run.path)
        assert found["final_accuracy"] == found["metrics"]["accuracy"] == np.mean(guesses == problem.y_test)
        assert found["metrics"]["confusion_matrix"] == confusion_matrix(problem.y_test, guesses).tolist()
        assert (found["final_r2"], found["best_r2"], found["remark"]) == (None, None, None)

    def test_the_model_predicts_from_raw_rows(self, run: runs.Run) -> None:
        raw, model = load_named("digits"), run.load_model()
        assert np.array_equal(model.theta, run.model)
        assert np.mean(model.predict(raw.x_test) == raw.y_test) == summary(run.path)["final_accuracy"]
        assert model.classes == tuple(range(10))
        assert (model.scheme, model.scenario_id) == (run.scenario.scheme, run.scenario.id())
        assert (model.samples, model.ridge, model.intercept) == (raw.samples, 9e-6, False)

    def test_seconds_to_a_target(self, run: runs.Run) -> None:
        seconds = run.seconds_to(0.5)
        assert seconds is not None
        assert len(seconds) == summary(run.path)["timing_draws"]
        assert np.mean(seconds, dtype=float) == pytest.approx(run.summary["time_to_accuracy"]["0.5"], rel=2e-7)
        assert run.seconds_to(0.99) is None


class TestFinishedRunsAreLeftAlone:
    def test_nothing_is_trained_or_written(self, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(*arguments: Any, **options: Any) -> None:
            raise AssertionError("a finished run was run again")

        monkeypatch.setattr(runs, "train", never)
        before = tree(copy), {name: (copy / name).stat().st_mtime_ns for name in FINISHED}
        run = runs.execute(small(), copy, problem=never)
        assert run.summary == json.loads(before[0]["summary.json"])
        assert (tree(copy), {name: (copy / name).stat().st_mtime_ns for name in FINISHED}) == before

    def test_another_name_is_the_same_experiment(self, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runs, "train", None)
        assert runs.execute(small({"name": "renamed"}), copy).summary["scenario"] == "small"

    def test_a_checkpoint_that_outlived_its_run_goes(self, copy: Path) -> None:
        (copy / "checkpoint.npz").write_bytes(b"the process ended between the last two steps")
        small_run(copy)
        assert files(copy) == FINISHED


class TestRefusals:
    def test_another_scenario(self, copy: Path) -> None:
        before = tree(copy)
        other = small({"training.epochs": 25})
        with pytest.raises(RunDirectoryError, match=other.id()) as caught:
            runs.execute(other, copy)
        assert is_one_sentence(str(caught.value))
        assert small().id() in str(caught.value)
        assert tree(copy) == before

    def test_another_scenario_on_an_unfinished_run(self, stopped: Path) -> None:
        before = tree(stopped)
        with pytest.raises(RunDirectoryError, match="another scenario"):
            runs.execute(small({"links.loss": 0.2}), stopped)
        assert tree(stopped) == before

    @pytest.mark.parametrize("name", ["notes.txt", "summary.json", "checkpoint.npz", "repeats/1/summary.json"])
    def test_a_folder_with_files_of_others(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
        before = tree(tmp_path)
        with pytest.raises(RunDirectoryError, match="not a run directory") as caught:
            small_run(tmp_path)
        assert is_one_sentence(str(caught.value))
        assert tree(tmp_path) == before

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        with pytest.raises(RunDirectoryError, match="choose another --out"):
            small_run(tmp_path / "file")
        assert tree(tmp_path) == {"file": b"mine"}

    def test_an_empty_folder_will_do(self, tmp_path: Path) -> None:
        small_run(tmp_path, {"training.epochs": 1})
        assert files(tmp_path) == FINISHED

    def test_data_that_changed_under_a_finished_run(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        source = tmp_path / "data.npz"
        scenario = small({"data.source": str(source), "features.kind": "none", "training.learning_rate": 0.1})
        labels = np.arange(60) % 3

        def save() -> None:
            np.savez(source, x=rng.standard_normal((60, 4)) + labels[:, None], y=labels)

        save()
        runs.execute(scenario, tmp_path / "run")
        before = tree(tmp_path / "run")
        save()
        with pytest.raises(RunDirectoryError, match="another"):
            runs.execute(scenario, tmp_path / "run")
        assert tree(tmp_path / "run") == before

    def test_two_at_a_time(self, tmp_path: Path) -> None:
        refused = []

        def second(stage: str, done: int, total: int) -> None:
            if not refused:
                with pytest.raises(RunDirectoryError) as caught:
                    small_run(tmp_path / "run")
                refused.append(caught)

        run = small_run(tmp_path / "run", progress=second)
        assert "another process runs" in str(refused[0].value)
        assert is_one_sentence(str(refused[0].value))
        assert run.summary["epochs"] == EPOCHS, "the first goes on undisturbed"
        assert small_run(tmp_path / "run").summary == run.summary, "and lets go of the directory at the end"

    def test_a_failed_run_lets_go_of_the_directory(self, tmp_path: Path) -> None:
        with pytest.raises(Stopped):
            small_run(tmp_path / "run", progress=stop_at(3))
        assert small_run(tmp_path / "run").summary["epochs"] == EPOCHS


class TestDivergence:
    changes: ClassVar = {"scheme": "conventional", "training.learning_rate": 1e3}

    def test_a_run_that_diverges_at_once_leaves_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="diverged"):
            small_run(tmp_path / "run", self.changes)
        assert not (tmp_path / "run").exists()

    def test_a_resumed_run_that_diverges_keeps_its_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The checkpoint that it resumed from, or if there was none, the one that it has saved since."""
        monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
        with pytest.raises(Stopped):
            small_run(tmp_path / "run", self.changes, progress=stop_at(2))
        monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", 1e9)
        before = tree(tmp_path / "run")
        assert files(tmp_path / "run") == {"scenario.toml", "checkpoint.npz"}
        with pytest.raises(TrainingError, match="diverged"):
            small_run(tmp_path / "run", self.changes)
        assert tree(tmp_path / "run") == before
        monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
        (tmp_path / "run/checkpoint.npz").unlink()
        with pytest.raises(TrainingError, match="diverged"):
            small_run(tmp_path / "run", self.changes)
        assert files(tmp_path / "run") == {"scenario.toml", "checkpoint.npz"}

    def test_a_folder_that_was_there_before_stays(self, tmp_path: Path) -> None:
        """Hidden files do not make a folder another's, but they are not the run's to delete."""
        (tmp_path / "run/.git").mkdir(parents=True)
        (tmp_path / "run/.git/config").write_text("kept")
        with pytest.raises(TrainingError, match="diverged"):
            small_run(tmp_path / "run", self.changes)
        assert (tmp_path / "run/.git/config").read_text() == "kept"


class TestModelDifference:
    @staticmethod
    def stored(run: runs.Run, folder: Path, theta: np.ndarray) -> runs.Run:
        folder.mkdir()
        np.savez(folder / "model.npz", theta=theta)
        return dataclasses.replace(run, path=folder)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("shape", [(1, 1), (3, 2), (30, 10)])
    def test_one_unit_in_the_last_place_shows(
        self, finished: Path, tmp_path: Path, shape: tuple[int, int], dtype: str
    ) -> None:
        """The difference is one spacing of floats at 1, the norm that of so many ones; equal models differ by 0."""
        ones = np.ones(shape, dtype)
        last = ones.copy()
        last[-1, -1] = np.nextafter(last[-1, -1], np.inf, dtype=dtype)
        run = runs.load(finished)
        one, same, other = (
            self.stored(run, tmp_path / name, theta) for name, theta in (("1", ones), ("2", ones), ("3", last))
        )
        expected = float(np.finfo(dtype).eps) / np.sqrt(ones.size)
        assert runs.model_difference(other, one) == pytest.approx(expected, rel=1e-12, abs=0)
        assert runs.model_difference(same, one) == 0

    def test_a_known_difference_is_relative_to_the_second_run(self, finished: Path, tmp_path: Path) -> None:
        """(3, 4) and (3, 16) are 12 apart; their norms are 5 and sqrt(265). Formats may differ."""
        run = runs.load(finished)
        one = self.stored(run, tmp_path / "1", np.array([[3.0], [16.0]], np.float32))
        other = self.stored(run, tmp_path / "2", np.array([[3.0], [4.0]]))
        assert runs.model_difference(one, other) == pytest.approx(12 / 5, rel=1e-15, abs=0)
        assert runs.model_difference(other, one) == pytest.approx(12 / np.sqrt(265), rel=1e-15, abs=0)

    def test_two_zero_models_are_equal(self, finished: Path, tmp_path: Path) -> None:
        run = runs.load(finished)
        one, other = (self.stored(run, tmp_path / name, np.zeros((3, 2))) for name in "12")
        assert runs.model_difference(one, other) == 0


def test_load_refuses_what_is_not_finished(stopped: Path, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"summary\.json is missing"):
        runs.load(stopped)
    with pytest.raises(RunDirectoryError, match="is not a finished run"):
        runs.load(tmp_path / "nowhere")


def test_runs_go_to_a_place_of_their_own_by_default() -> None:
    first, second = small(), small({"links.loss": 0.3})
    assert runs.default_directory(first) != runs.default_directory(second)
    assert runs.default_directory(first) == Path("runs") / f"small-minibatch-{first.id()}"


@pytest.mark.parametrize("name", ["../../elsewhere", "/elsewhere", "a/b", ".."])
def test_no_name_leads_out_of_the_folder_of_runs(name: str) -> None:
    with pytest.raises(ScenarioError, match="name = "):
        small({"name": name})


@pytest.mark.parametrize("target", [0.9, 0.95, 0.5, -1.0, 0.9999999, 1 / 3])
def test_a_target_can_be_found_by_its_number(target: float) -> None:
    assert float(target_name(target)) == target


def test_round_targets_are_named_as_people_write_them() -> None:
    assert [target_name(target) for target in (0.9, 0.95, 0.5)] == ["0.9", "0.95", "0.5"]
