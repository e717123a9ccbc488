"""Scenarios: wrong input in one sentence, dotted keys, ids, files and presets."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.data import SOURCES, TABLES
from codedfl.errors import DataError, ScenarioError, UsageError
from codedfl.scenario import Scenario, load, preset_names
from codedfl.scenario.sections import DATA_SETS, PATH_SOLVER_NAMES, SOLVER_NAMES, TABLE_SETS
from codedfl.solvers import PATH_SOLVERS, SOLVERS
from codedfl.testing.schemes import registered
from tiny import is_one_sentence, scenario

FLEET = {"devices": [{"count": 2, "mac_rate": 1e6}, {"count": 1, "mac_rate": 2e6}]}

WRONG = [
    ("scheme", "magic", "one of conventional, "),
    ("name", 3, "a text"),
    ("name", "../mine", "letters, digits, '-', '_' and '.'"),
    ("name", "", "letters, digits, '-', '_' and '.'"),
    ("data", 5, "a table with the keys of [data]"),
    ("data.source", "minst", "one of mnist"),
    ("data.source", 7, "a text"),
    ("data.kind", "fuzzy", "one of auto, classification, regression"),
    ("data.target", 3, "a text"),
    ("data.test_fraction", -0.1, "a number at least 0 and below 1"),
    ("data.test_fraction", 1.0, "a number at least 0 and below 1"),
    ("data.seed", -1, "a whole number at least 0"),
    ("partition.kind", "random", "one of iid, shards, dirichlet, sizes"),
    ("partition.seed", 1.5, "a whole number at least 0"),
    ("partition.shards_per_device", 0, "a whole number at least 1"),
    ("partition.alpha", 0.0, "a number above 0"),
    ("features.kind", "poly", "one of rbf, none"),
    ("features.dimension", 0, "a whole number at least 1"),
    ("features.dimension", 100_001, "at most 100000"),
    ("features.gamma", math.nan, "a number above 0"),
    ("features.gamma", math.inf, "a number above 0"),
    ("task.ridge", -1e-9, "a number at least 0"),
    ("task.precision", "float16", "one of auto, float32, float64"),
    ("training.epochs", 0, "a whole number at least 1"),
    ("training.epochs", 1_000_001, "at most 1000000"),
    ("training.epochs", True, "a whole number at least 1"),
    ("training.epochs", "ten", "a whole number at least 1"),
    ("training.learning_rate", 0.0, "a number above 0"),
    ("training.decay", 1.5, "a number above 0 and at most 1"),
    ("training.decay_epochs", 200, "a list"),
    ("training.decay_epochs", [350, 200], "must increase"),
    ("training.targets", [0.9, 0.9], "must increase"),
    ("training.stop_at_last_target", "yes", "true or false"),
    ("training.solver", "newton", "one of gradient-descent, nesterov, conjugate-gradients, closed-form"),
    ("training.solver", 1, "one of gradient-descent, nesterov"),
    ("training.tolerance", -1e-9, "a number at least 0 and below 1"),
    ("training.tolerance", 1.0, "a number at least 0 and below 1"),
    ("fleet", 5, "a table with the keys of [fleet]"),
    ("fleet.devices", [], "at least one group"),
    ("fleet.devices", 5, "a list"),
    ("fleet.server_mac_rate", 0.0, "a number at least 1"),
    ("links.loss", 1.0, "a number at least 0 and below 1"),
    ("links.d2d_loss", 1.0, "a number at least 0 and below 1"),
    ("links.d2d_loss", "none", "a number at least 0 and below 1"),
    ("links.d2d_channel", "serial", "one of parallel, shared"),
    ("links.d2d_channel", True, "one of parallel, shared"),
    ("links.overhead", -0.1, "a number at least 0"),
    ("links.up_rate", 0.0, "a number at least 1"),
    ("timing.draws", 1, "a whole number at least 2"),
    ("timing.draws", 100_001, "at most 100000"),
    ("timing.repeats", 0, "a whole number at least 1"),
    ("timing.draw", -1, "a whole number at least 0"),
    ("schemes", 5, "one table for each scheme"),
    ("schemes.minibatch", 5, "a table"),
    ("schemes.minibatch.parts", 0, "a whole number at least 1"),
    ("schemes.drop-slowest.wait_for", 2.5, "a whole number at least 1"),
    ("linkz", 1, "allowed: name, scheme, data"),
    ("links.lost", 0.1, "did you mean 'loss'?"),
    ("links.loss.p", 0.1, "allowed"),
    ("schemes.magic", {}, "allowed: conventional, "),
    ("schemes.minibatch.batch", 3, "allowed: parts"),
    ("schemes.conventional.parts", 3, "allowed: no keys at all"),
]

WRONG_IN_LISTS = [
    ("partition.sizes", [1.0, -2.0, 1.0], "partition.sizes = -2.0", "a number above 0"),
    ("training.targets", [0.9, 1.0], "training.targets = 1.0", "a number below 1"),
    ("training.decay_epochs", [0, 5], "training.decay_epochs = 0", "a whole number at least 1"),
    ("fleet.devices.0", 5, "fleet.devices = 5", "a table with the keys of [fleet.devices]"),
    ("fleet.devices.1.count", 0, "fleet.devices.count = 0", "a whole number at least 1"),
    ("fleet.devices.1.mac_rate", 0.0, "fleet.devices.mac_rate = 0.0", "a number at least 1"),
    pytest.param("fleet.devices.1.mac_rate", 10**400, "mac_rate = 1000", "a number at least 1", id="huge"),
    ("fleet.devices.0.mac_rate", "fast", "fleet.devices.mac_rate = 'fast'", "a number at least 1"),
    ("fleet.devices.0.setup_ratio", -0.5, "fleet.devices.setup_ratio = -0.5", "a number at least 0"),
    ("fleet.devices.0.loss", 1.0, "fleet.devices.loss = 1.0", "a number at least 0 and below 1"),
    ("fleet.devices.0.d2d_loss", -0.1, "fleet.devices.d2d_loss = -0.1", "a number at least 0 and below 1"),
    ("fleet.devices.0.down_rate", 0.0, "fleet.devices.down_rate = 0.0", "a number at least 1"),
    ("fleet.devices.0.speed", 3, "'fleet.devices.speed' (value 3)", "allowed: count, mac_rate"),
    ("fleet.devices.2.count", 3, "'fleet.devices.2.count' (value 3)", "allowed"),
    ("fleet.devices.²", 3, "'fleet.devices.²' (value 3)", "entries"),
    ("training.targets.2", 0.99, "'training.targets.2' (value 0.99)", "2 entries"),
    ("partition.kind", "sizes", "partition.sizes holds 0 numbers", "one each"),
]


def refusal(key: str, value: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        Scenario(fleet=FLEET, name="base", training={"targets": [0.8, 0.9]}).with_settings({key: value})
    text = str(error.value)
    assert is_one_sentence(text)
    return text


@pytest.mark.parametrize(("key", "value", "allowed"), WRONG)
def test_a_wrong_setting_names_key_value_and_what_is_allowed(key: str, value: Any, allowed: str) -> None:
    text = refusal(key, value)
    assert key in text
    assert repr(value) in text
    assert allowed in text


@pytest.mark.parametrize(("key", "value", "named", "allowed"), WRONG_IN_LISTS)
def test_a_wrong_entry_of_a_list_is_named(key: str, value: Any, named: str, allowed: str) -> None:
    text = refusal(key, value)
    assert named in text
    assert allowed in text


@pytest.mark.parametrize(("key", "value"), [("scheme", "magic"), ("schemes.magic", {})])
def test_every_scheme_is_offered_in_place_of_an_unknown_one(key: str, value: Any) -> None:
    text = refusal(key, value)
    assert all(name in text for name in schemes.SCHEMES)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("", ["the scenario", "'fleet'"]),
        ("[fleet]", ["[fleet]", "'devices'"]),
        ("[[fleet.devices]]\ncount = 3", ["[fleet.devices]", "'mac_rate'"]),
        ("fleet = ", ["my scenario", "not valid TOML"]),
        ("[links]\nloss = 0.1\nloss = 0.2", ["my scenario", "not valid TOML"]),
    ],
)
def test_wrong_toml_is_refused_in_one_sentence(toml: str, words: list[str]) -> None:
    with pytest.raises(ScenarioError) as error:
        Scenario.from_toml(toml, "my scenario")
    text = str(error.value)
    assert all(word in text for word in words)
    assert is_one_sentence(text)


def test_a_scenario_needs_a_fleet_only() -> None:
    made = Scenario.from_toml("[[fleet.devices]]\nmac_rate = 1e6\n")
    assert made == Scenario(fleet=FLEET).with_settings({"fleet.devices": [{"mac_rate": 1e6}]})
    assert made.fleet.size == 1
    assert made.scheme == "minibatch"


def test_dotted_keys_reach_every_place() -> None:
    base = Scenario(fleet=FLEET)
    changed = base.with_settings(
        {
            "scheme": "conventional",
            "links.loss": 0,
            "fleet.devices.1.count": 7,
            "fleet.devices.0.up_rate": 3e6,
            "training.targets.0": 0.5,
            "training.decay_epochs": [10],
            "schemes.minibatch.parts": 3,
            "schemes.drop-slowest": {"wait_for": 2},
        }
    )
    assert changed.scheme == "conventional"
    assert changed.links.loss == 0.0
    assert [group.count for group in changed.fleet.devices] == [2, 7]
    assert [group.up_rate for group in changed.fleet.devices] == [3e6, None]
    assert changed.training.targets == (0.5, 0.95)
    assert changed.training.decay_epochs == (10,)
    assert changed.options("minibatch").to_table() == {"parts": 3}
    assert changed.options("drop-slowest").to_table() == {"wait_for": 2}
    assert base == Scenario(fleet=FLEET), "the original stays as it was"


def test_settings_that_fit_only_together_may_be_changed_together() -> None:
    changed = Scenario(fleet=FLEET).with_settings({"partition.kind": "sizes", "partition.sizes": [1, 2, 3]})
    assert changed.partition.sizes == (1.0, 2.0, 3.0)


def test_the_values_of_a_change_are_left_alone() -> None:
    links = {"loss": 0.1}
    Scenario(fleet=FLEET).with_settings({"links": links, "links.loss": 0.2})
    assert links == {"loss": 0.1}


def test_options_are_those_of_the_file_or_else_the_defaults() -> None:
    made = Scenario(fleet=FLEET, schemes={"minibatch": {"parts": 2}})
    assert made.options().to_table() == {"parts": 2}
    assert made.options("drop-slowest").to_table() == {}
    assert made.options("conventional").to_table() == {}
    with pytest.raises(TypeError):
        made.schemes["minibatch"] = None  # type: ignore[index]


def test_two_schemes_without_options_keep_their_own_names() -> None:
    """A scheme that has no options either must not change what is said of another's."""
    another = type("Another", (schemes.SCHEMES["conventional"],), {"name": "another"})
    with registered(another):
        assert "'schemes.another.parts'" in refusal("schemes.another.parts", 3)
    assert "'schemes.conventional.parts'" in refusal("schemes.conventional.parts", 3)


# --- ids ---


def test_the_id_is_short_and_hexadecimal() -> None:
    assert re.fullmatch("[0-9a-f]{16}", scenario().id())


def test_options_of_the_chosen_scheme_count_and_those_of_others_do_not() -> None:
    base = scenario({"scheme": "minibatch"})
    assert base.with_settings({"schemes.drop-slowest.wait_for": 3}).id() == base.id()
    assert base.with_settings({"schemes.minibatch.parts": 3}).id() != base.id()
    assert base.with_settings({"schemes.minibatch.parts": 5}).id() == base.id(), "5 is the default"


def test_the_sign_of_zero_is_no_other_experiment() -> None:
    plus, minus = (scenario({"links.overhead": zero}) for zero in (0.0, -0.0))
    assert plus == minus
    assert plus.id() == minus.id()


def test_a_file_of_features_counts_by_its_contents(tmp_path: Path) -> None:
    here, there = tmp_path / "here.csv", tmp_path / "elsewhere" / "there.csv"
    there.parent.mkdir()
    here.write_text("a,b\n1,2\n")
    shutil.copy(here, there)
    ids = {scenario({"data.source": str(path)}).id() for path in (here, there)}
    assert len(ids) == 1
    there.write_text("a,b\n1,3\n")
    assert scenario({"data.source": str(there)}).id() not in ids
    tested = scenario({"data.source": str(here), "data.test_source": str(there)})
    assert tested.id() not in ids
    there.write_text("a,b\n1,4\n")
    before = tested.id()
    there.write_text("a,b\n1,5\n")
    assert tested.id() != before


def test_a_file_that_is_not_there_has_no_id(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        scenario({"data.source": str(tmp_path / "none.csv")}).id()
    assert "none.csv" in str(error.value)
    assert is_one_sentence(str(error.value))


# --- files ---


def test_a_file_is_read_and_its_paths_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "mine.npz", x=np.eye(2), y=np.arange(2))
    wanted = scenario({"data.source": "data/mine.npz"})
    (tmp_path / "mine.toml").write_text(wanted.to_toml())
    monkeypatch.chdir("/")
    loaded = load(str(tmp_path / "mine.toml"))
    assert Path(loaded.data.source) == (tmp_path / "data" / "mine.npz").resolve()
    assert loaded == wanted.with_settings({"data.source": loaded.data.source})


def test_a_misspelt_data_set_is_shown_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nsource = "minst"\n[[fleet.devices]]\nmac_rate = 1e6\n')
    with pytest.raises(ScenarioError, match=r"data\.source = 'minst' must be one of mnist"):
        load(str(path))


def test_a_data_set_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(scenario().to_toml())
    assert load(str(tmp_path / "mine.toml")) == scenario()


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_tables_are_merged_and_lists_replaced(tmp_path: Path) -> None:
    changes = "[links]\nloss = 0.3\n[[fleet.devices]]\nmac_rate = 1e6\n[schemes.minibatch]\nparts = 2\n"
    loaded = load(write(tmp_path / "mine.toml", f'extends = "paper"\nname = "mine"\n{changes}'))
    expected = {"name": "mine", "links.loss": 0.3, "fleet.devices": [{"mac_rate": 1e6}], "schemes.minibatch.parts": 2}
    assert loaded == load("paper").with_settings(expected)


def test_extended_files_and_data_are_found_from_the_file_that_names_them(tmp_path: Path) -> None:
    """Data of the base lie beside the base, whoever extends it."""
    write(tmp_path / "base" / "base.toml", scenario({"data.source": "mine.npz", "links.loss": 0.3}).to_toml())
    write(tmp_path / "middle" / "middle.toml", 'extends = "../base/base.toml"\n[timing]\ndraws = 7\n')
    loaded = load(write(tmp_path / "top.toml", 'extends = "middle/middle.toml"\nscheme = "conventional"\n'))
    assert Path(loaded.data.source) == (tmp_path / "base" / "mine.npz").resolve()
    assert (loaded.links.loss, loaded.timing.draws, loaded.scheme) == (0.3, 7, "conventional")


@pytest.mark.parametrize("base", ["one.toml", "./one.toml", "../here/one.toml", "two.toml"])
def test_a_circle_is_refused(tmp_path: Path, base: str) -> None:
    write(tmp_path / "here" / "two.toml", 'extends = "one.toml"\n')
    with pytest.raises(ScenarioError, match="extends itself") as error:
        load(write(tmp_path / "here" / "one.toml", f'extends = "{base}"\n'))
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize(("base", "words"), [("3", "extends = 3"), ("'papers'", "papers"), ("'no.toml'", "no.toml")])
def test_what_cannot_be_extended_is_named(tmp_path: Path, base: str, words: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load(write(tmp_path / "mine.toml", f"extends = {base}\n"))
    assert words in str(error.value)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("name", ["papers", "missing.toml", "folder.toml", "latin.toml", "broken.toml", "number.toml"])
def test_a_scenario_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes("name = 'é'".encode("latin-1"))
    (tmp_path / "broken.toml").write_text("name = [")
    (tmp_path / "number.toml").write_text("data = 3\n[[fleet.devices]]\nmac_rate = 1.0\n")
    with pytest.raises(ScenarioError) as error:
        load(name if name == "papers" else str(tmp_path / name))
    text = str(error.value)
    assert ("data = 3" if name == "number.toml" else name) in text
    assert is_one_sentence(text)
    if name == "papers":
        assert all(preset in text for preset in preset_names())


def mac_rates(scenario: Scenario) -> list[float]:
    return [group.mac_rate for group in scenario.fleet.devices for _ in range(group.count)]


@given(st.integers(1, 70))
def test_devices_are_spread_evenly_over_the_fleet(devices: int) -> None:
    """Every class of speed has its share, rounded to a device, and nothing else of the scenario changes."""
    paper = load("paper")
    scaled = paper.with_devices(devices)
    assert scaled.fleet.size == devices
    for rate in set(mac_rates(paper)):
        assert abs(mac_rates(scaled).count(rate) - mac_rates(paper).count(rate) * devices / 25) < 1
    assert mac_rates(scaled) == sorted(mac_rates(scaled), reverse=True), "in the order of the fleet"
    assert scaled.with_settings({"fleet.devices": paper.fleet.to_table()["devices"]}) == paper


@pytest.mark.parametrize("devices", [0, -1, 100_001])
def test_no_fleet_of_an_impossible_size_can_be_made(devices: int) -> None:
    with pytest.raises(UsageError, match=f"--devices {devices} must be from 1 to 100000"):
        load("paper").with_devices(devices)


def test_the_names_that_scenarios_know_are_those_of_the_registries() -> None:
    assert tuple(SOURCES) == DATA_SETS
    assert tuple(TABLES) == TABLE_SETS
    assert tuple(SOLVERS) == SOLVER_NAMES
    assert tuple(PATH_SOLVERS) == PATH_SOLVER_NAMES


def test_a_table_known_by_name_counts_by_its_name() -> None:
    one, other = (load("paper").with_settings({"data.source": name}) for name in ("chem97", "insteval"))
    assert one.data.tabular
    assert not one.data.named
    assert len({load("paper").id(), one.id(), other.id()}) == 3
    assert one.id() == one.with_settings({"name": "other"}).id()
