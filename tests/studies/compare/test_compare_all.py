"""Every scheme on several fleets: trained, predicted, attacked, written down."""

import csv
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import DataError, RunDirectoryError, UsageError
from codedfl.progress import silent
from codedfl.report.comparison import write_page
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.studies.compare import compare_all, measuring
from codedfl.studies.compare.fleets import label_sorted
from codedfl.studies.compare.measuring import Percentage, stored
from codedfl.task import Problem
from rundirs import Stopped, files, small, small_problem, stop_at, strict_json, tree
from tiny import is_one_sentence, known

OPTIONS = {
    "schemes.code-based": {"n": 60, "degree": 3, "t_tot": 12, "t": 6, "M": 4, "beta": 2, "delta": 1e-3},
    "schemes.sealed": {"delta": 1e-3},
    "schemes.he": {"backend": "costs"},
}
"""What fits a small problem; Delta so short that devices do hand over. Real ciphertexts take long to make."""
NEAR = 1e-6
KEYS = {
    *("fleet", "devices", "scheme", "solver", "predicted", "refused", "refused_sorted", "epochs", "final_accuracy"),
    *(
        "final_r2",
        "metric",
        "accuracy_iid",
        "accuracy_sorted",
        "time_to_accuracy",
        "time_to_accuracy_band",
        "timing_draws",
    ),
    *("speedup", "speedups", "seconds_per_epoch", "bits_sent", "bits_per_device", "device_macs", "macs_per_device"),
    *("survives_losses", "leakage", "verdict", "secrecy", "attack", "scenario_id", "epsilon", "delta", "privacy"),
}


def fleet_of(changes: Mapping[str, Any] | None = None) -> Scenario:
    return small({**OPTIONS, "training.targets": [0.5, 0.7], **(changes or {})})


def two_fleets(changes: Mapping[str, Any] | None = None) -> dict[str, Scenario]:
    """Five devices of two kinds, and six of three kinds."""
    six = [{"count": 2, "mac_rate": 25e6}, {"count": 3, "mac_rate": 5e6}, {"count": 1, "mac_rate": 0.2e6}]
    return {"five": fleet_of(changes), "six": fleet_of({"fleet.devices": six, **(changes or {})})}


def compared(out: Path, names: list[str], changes: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Compare on two fleets, without attacks unless told."""
    settings = {"attacked_epochs": 0, "fleets": two_fleets(changes), "progress": silent, **options}
    command = settings.pop("command", "")
    rows = compare_all(fleet_of(changes), names, out, **settings)
    write_page(fleet_of(changes), rows, out, settings["progress"], command=command)
    return rows


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """All schemes on two fleets, attacked; tests only read it."""
    out = tmp_path_factory.mktemp("everything")
    return out, compared(out, list(SCHEMES), attacked_epochs=20, command="codedfl compare --all --scenario small.toml")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures out, as without matplotlib, where no test looks at them."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def of(rows: list[dict[str, Any]], fleet: str, scheme: str) -> dict[str, Any]:
    (row,) = (row for row in rows if (row["fleet"], row["scheme"]) == (fleet, scheme))
    return row


class TestRows:
    def test_every_scheme_on_every_fleet_with_all_keys(self, everything: Any) -> None:
        _, rows = everything
        wanted = ["minibatch", *(name for name in SCHEMES if name != "minibatch")]
        assert [(row["fleet"], row["scheme"]) for row in rows] == [
            (f, name) for f in ("five", "six") for name in wanted
        ]
        for row in rows:
            assert row.keys() == KEYS
            assert row["devices"] == (5 if row["fleet"] == "five" else 6)

    def test_what_is_predicted_is_what_cannot_differ(self, everything: Any) -> None:
        _, rows = everything
        for row in rows:
            scheme, own = known(row["scheme"]), of(rows, "five", row["scheme"])
            same_model = scheme.exact and not scheme.follows_timing
            assert row["predicted"] == (row["fleet"] == "six" and same_model and own["refused"] is None)

    def test_speedups_are_against_the_benchmark_on_the_same_fleet(self, everything: Any) -> None:
        _, rows = everything
        for row in rows:
            if row["refused"] is None:
                base = of(rows, row["fleet"], "minibatch")["time_to_accuracy"]
                for target, seconds in row["time_to_accuracy"].items():
                    expected = None if seconds is None or base[target] is None else base[target] / seconds
                    assert row["speedups"][target] == expected

    def test_trained_rows_say_what_their_runs_found(self, everything: Any) -> None:
        out, rows = everything
        trained = [row for row in rows if not row["predicted"] and row["refused"] is None]
        assert len(trained) > len(SCHEMES)
        for row in trained:
            run = runs.load(out / "runs" / f"{row['scheme']}-{row['scenario_id']}")
            for key in ("epochs", "time_to_accuracy", "bits_sent", "bits_per_device", "macs_per_device", "leakage"):
                assert row[key] == run.summary[key]
            assert row["accuracy_iid"] == row["final_accuracy"] == run.summary["final_accuracy"]

    def test_devices_by_mean_and_largest(self, everything: Any) -> None:
        _, rows = everything
        for row in rows:
            if row["refused"] is None:
                for link, bits in row["bits_per_device"].items():
                    assert bits["mean"] * row["devices"] == pytest.approx(row["bits_sent"][link], rel=1e-12)
                    assert bits["mean"] <= bits["largest"] <= row["bits_sent"][link]
                assert row["macs_per_device"]["mean"] * row["devices"] == pytest.approx(row["device_macs"], rel=1e-12)

    def test_label_sorted_accuracy_is_of_another_partition(self, everything: Any) -> None:
        out, rows = everything
        for fleet, base in two_fleets().items():
            row = of(rows, fleet, "drop-slowest")
            changes = {"scheme": "drop-slowest", "training.stop_at_last_target": True, "timing.repeats": 1}
            wanted = label_sorted(base).with_settings(changes)
            run = runs.load(out / "runs" / f"drop-slowest-{wanted.id()}")
            assert (run.scenario.partition.kind, run.scenario.partition.shards_per_device) == ("shards", 1)
            assert row["accuracy_sorted"] == run.summary["final_accuracy"]
            assert row["accuracy_sorted"] < row["accuracy_iid"], "classes of the slow devices are lost"

    def test_schemes_that_use_all_data_do_not_mind_how_it_is_sorted(self, everything: Any, tmp_path: Path) -> None:
        """Trained for real on sorted labels, the accuracy is the same, up to a test image on the edge."""
        _, rows = everything
        (name, base), *_ = two_fleets().items()
        changes = {"scheme": "conventional", "training.stop_at_last_target": True}
        run = runs.execute(label_sorted(base).with_settings(changes), tmp_path / "run")
        row = of(rows, name, "conventional")
        assert row["accuracy_sorted"] == row["accuracy_iid"]
        assert row["accuracy_sorted"] == pytest.approx(run.summary["final_accuracy"], abs=0.003)

    def test_repetitions(self, everything: Any) -> None:
        _, rows = everything
        draws = [of(rows, fleet, "drop-slowest")["timing_draws"] for fleet in ("five", "six")]
        assert draws == [3, 2], "the scenario's own number, and two on further fleets"
        assert {of(rows, fleet, "conventional")["timing_draws"] for fleet in ("five", "six")} == {50}

    def test_what_the_attacks_find(self, everything: Any) -> None:
        _, rows = everything
        for fleet in ("five", "six"):
            broken, plain = of(rows, fleet, "code-based")["attack"], of(rows, fleet, "conventional")["attack"]
            assert broken["verdict"] == "falls"
            assert broken["assumption"] == ""
            assert (plain["attack"], plain["holder"]) == ("server-replies", "the server")


@pytest.mark.parametrize("name", [n for n in SCHEMES if known(n).exact and not known(n).follows_timing])
def test_predicted_rows_equal_a_run_on_that_fleet(name: str, everything: Any, tmp_path: Path) -> None:
    _, rows = everything
    row = of(rows, "six", name)
    if of(rows, "five", name)["refused"] is not None:
        pytest.skip("it does not fit so small a problem")
    assert row["predicted"]
    changes = {"scheme": name, "training.solver": row["solver"]}
    settings = {"training.stop_at_last_target": True, "timing.repeats": 2}
    run = runs.execute(two_fleets()["six"].with_settings({**changes, **settings}), tmp_path / "run")
    assert run.summary["scenario_id"] == row["scenario_id"]
    for key in ("epochs", "bits_sent", "bits_per_device", "device_macs", "macs_per_device", "survives_losses"):
        assert row[key] == run.summary[key], key
    for target, seconds in run.summary["time_to_accuracy"].items():
        assert row["time_to_accuracy"][target] == pytest.approx(seconds, rel=NEAR)
        if seconds is not None:
            limits = run.summary["time_to_accuracy_band"][target]
            assert row["time_to_accuracy_band"][target] == pytest.approx(limits, rel=NEAR)
    assert row["seconds_per_epoch"] == pytest.approx(run.summary["seconds_per_epoch"], rel=NEAR)
    assert row["leakage"] == run.summary["leakage"]
    test_points = len(small_problem().y_test)  # rounding may move one that lies between two classes
    assert row["final_accuracy"] == pytest.approx(run.summary["final_accuracy"], abs=1.5 / test_points)


class TestFiles:
    def test_all_of_them(self, everything: Any) -> None:
        out, rows = everything
        written = {"compare.md", "compare.json", "compare.csv", "compare.png", "compare.svg"}
        assert {path.name for path in out.iterdir()} == written | {"runs", "predictions", "attacks"}
        assert not [name for name in files(out) if Path(name).name.startswith(".")], "nothing half written is left"
        assert (out / "compare.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert strict_json((out / "compare.json").read_text()) == rows

    def test_csv(self, everything: Any) -> None:
        out, rows = everything
        lines = list(csv.DictReader(io.StringIO((out / "compare.csv").read_text())))
        assert [(line["fleet"], line["scheme"]) for line in lines] == [(row["fleet"], row["scheme"]) for row in rows]
        for line, row in zip(lines, rows, strict=True):
            if row["refused"] is None:
                assert float(line["bits_per_device.up.largest"]) == row["bits_per_device"]["up"]["largest"]

    def test_markdown(self, everything: Any) -> None:
        out, rows = everything
        text = (out / "compare.md").read_text()
        for word in ("codedfl compare --all --scenario small.toml", fleet_of().id(), "50 timing draws", "compare.png"):
            assert word in text
        five, six = text.partition("## Fleet `five`, 5 devices")[2].split("## Fleet `six`, 6 devices")
        for table, fleet in ((five, "five"), (six.partition("## Who may learn what")[0], "six")):
            lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
            assert [line[0] for line in lines] == [f"| `{row['scheme']}`" for row in rows if row["fleet"] == fleet]
            for line in lines:
                row = of(rows, fleet, line[0].strip("| `"))
                assert line[2] == ("no result" if row["refused"] else "predicted" if row["predicted"] else "trained")
        widths = {line.count(" | ") for line in text.splitlines() if line.startswith(("| `", "| scheme |"))}
        assert len(widths) <= 3, "every line of a table has as many cells as its head"
        learned = text.partition("## Who may learn what")[2].partition("## Who sees what")[0]
        names = [line.split("`")[1] for line in learned.splitlines() if line.startswith("| `")]
        assert sorted(names) == sorted({row["scheme"] for row in rows})
        assert names[-1] == "code-based"


def test_nothing_is_done_twice(no_figures: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["conventional", "drop-slowest"]
    first = compared(tmp_path, names, {"training.epochs": 3}, attacked_epochs=4)
    before = tree(tmp_path)
    monkeypatch.setattr(runs, "train", None)
    monkeypatch.setattr(Problem, "build", None)
    monkeypatch.setattr(measuring, "predicted_summary", None)
    monkeypatch.setattr(measuring, "attack_scenario", None)
    assert compared(tmp_path, names, {"training.epochs": 3}, attacked_epochs=4) == first
    assert tree(tmp_path) == before


def test_stopped_anywhere_it_goes_on(no_figures: None, tmp_path: Path) -> None:
    names, changes = ["conventional", "drop-slowest"], {"training.epochs": 10}
    whole = compared(tmp_path / "whole", names, changes)
    for report in (3, 30, 30):
        with pytest.raises(Stopped):
            compared(tmp_path / "out", names, changes, progress=stop_at(report))
        assert not (tmp_path / "out/compare.json").exists()
    assert compared(tmp_path / "out", names, changes) == whole


def test_data_of_fleets_of_one_size_are_prepared_once_a_partition(
    no_figures: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    build = Problem.build
    monkeypatch.setattr(Problem, "build", lambda *given: built.append(given[0].partition.kind) or build(*given))
    alike = {"one": fleet_of({"training.epochs": 2}), "other": fleet_of({"training.epochs": 2, "links.loss": 0.3})}
    compared(tmp_path, ["conventional", "drop-slowest"], {"training.epochs": 2}, fleets=alike)
    assert built == ["iid", "shards"]


class TestRefusals:
    def test_on_the_own_fleet_the_others_are_trained(self, tmp_path: Path) -> None:
        changes = {"schemes.drop-slowest.wait_for": 6, "training.epochs": 4}
        rows = compared(tmp_path, ["drop-slowest"], changes, attacked_epochs=4)
        refused, trained = of(rows, "five", "drop-slowest"), of(rows, "six", "drop-slowest")
        assert is_one_sentence(refused["refused"])
        assert "wait_for = 6" in refused["refused"]
        assert refused["refused"] == refused["refused_sorted"]
        assert refused.keys() == KEYS
        assert (refused["verdict"], refused["solver"], refused["attack"]) == ("not encrypted", "gradient-descent", None)
        for key in ("epochs", "final_accuracy", "accuracy_iid", "accuracy_sorted", "time_to_accuracy", "speedup"):
            assert refused[key] is None
        assert (trained["refused"], trained["predicted"], trained["epochs"]) == (None, False, 4)
        assert "wait_for = 6" in (tmp_path / "compare.md").read_text()
        assert (tmp_path / "compare.png").exists()

    def test_of_the_benchmark(self, no_figures: None, tmp_path: Path) -> None:
        rows = compared(tmp_path, ["conventional"], {"schemes.minibatch.parts": 1000, "training.epochs": 4})
        assert [row["speedup"] for row in rows] == [None] * 4
        assert of(rows, "five", "conventional")["epochs"] == 4

    def test_a_fleet_that_cannot_be_predicted(self, no_figures: None, tmp_path: Path) -> None:
        """Sealed coded data needs two devices; with one there is nothing to hide the sum in."""
        alone = fleet_of({"fleet.devices": [{"count": 1, "mac_rate": 1e6}], "schemes.drop-slowest.wait_for": 1})
        rows = compared(tmp_path, ["sealed-coded"], fleets={"five": fleet_of(), "one": alone})
        refused = of(rows, "one", "sealed-coded")
        assert "at least 2 devices" in refused["refused"]
        assert refused["predicted"]

    def test_a_training_that_diverges(self, no_figures: None, tmp_path: Path) -> None:
        rows = compared(tmp_path, ["conventional", "one-shot"], {"training.learning_rate": 1e6})
        for row in rows:
            if row["scheme"] == "one-shot":  # solves in closed form
                assert row["refused"] is None
            else:
                assert "diverged" in row["refused"]

    def test_data_that_is_not_there_ends_it(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"nowhere\.csv"):
            compared(tmp_path / "out", ["conventional"], {"data.source": "nowhere.csv"})

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(RunDirectoryError, match="is a file"):
            compared(tmp_path / "file", [])

    @pytest.mark.parametrize(
        ("names", "changes", "words"),
        [(["nosuch"], {}, "nosuch"), ([], {"partition.kind": "dirichlet"}, "dirichlet")],
    )
    def test_a_wrong_request(self, tmp_path: Path, names: list[str], changes: Any, words: str) -> None:
        with pytest.raises(UsageError, match=words) as raised:
            compare_all(small(changes), names, tmp_path / "out")
        assert is_one_sentence(str(raised.value))
        assert tree(tmp_path) == {}


def test_without_attacks_none_is_reported(no_figures: None, tmp_path: Path) -> None:
    rows = compared(tmp_path, [], {"training.epochs": 2})
    assert {row["attack"] for row in rows} == {None}
    assert "not attacked" in (tmp_path / "compare.md").read_text()


def test_no_targets_no_figure(tmp_path: Path) -> None:
    rows = compared(tmp_path, ["conventional"], {"training.targets": [], "training.epochs": 2})
    assert {row["speedup"] for row in rows} == {None}
    assert "png" not in (tmp_path / "compare.md").read_text()
    assert not (tmp_path / "compare.png").exists()


def test_without_matplotlib_the_rest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said: list[str] = []
    compared(tmp_path, [], {"training.epochs": 2}, progress=lambda stage, done, total: said.append(stage))
    assert {path.name for path in tmp_path.iterdir()} == {"compare.md", "compare.json", "compare.csv", "runs"}
    assert any("codedfl[plots]" in stage for stage in said)


class TestPercentage:
    def test_one_percentage_for_all_steps_that_never_falls(self) -> None:
        seen: list[tuple[str, int, int]] = []
        overall = Percentage(lambda *report: seen.append(report), steps=2)
        for _ in range(2):
            for done in (1, 2, 1, 2):  # trained twice
                overall("training some scheme", done, 2)
            overall("a sentence", 0, 0)
            overall.next_step()
        percent = [done for stage, done, _ in seen if "percent" in stage]
        assert percent == sorted(percent)
        assert set(percent) == {25, 50, 75, 100}
        assert ("training", 1, 2) in seen
        assert ("a sentence", 0, 0) in seen

    def test_a_comparison_ends_at_a_hundred(self, no_figures: None, tmp_path: Path) -> None:
        seen: list[tuple[str, int, int]] = []
        compared(tmp_path, [], {"training.epochs": 2}, progress=lambda *report: seen.append(report))
        assert [done for stage, done, _ in seen if "percent" in stage][-1] == 100


def test_a_stored_value_is_read_and_a_damaged_one_made_again(tmp_path: Path) -> None:
    place = tmp_path / "folder" / "value.json"
    assert stored(place, lambda: {"a": [1.5, None]}) == {"a": [1.5, None]}
    assert stored(place, lambda: 1 / 0) == {"a": [1.5, None]}
    place.write_text('{"a": [1.')
    assert stored(place, lambda: 7) == 7
    assert strict_json(place.read_text()) == 7
