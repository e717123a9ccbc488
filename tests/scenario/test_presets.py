"""Presets: what they promise, and where each of their values comes from."""

import math
import re
from typing import Any

import pytest

from codedfl.data import TABLES
from codedfl.data.sources.tables import TableSource
from codedfl.scenario import Scenario, load, preset_names
from codedfl.scenario.loading import preset_files


def preset_text(name: str) -> str:
    return preset_files()[name].read_text(encoding="utf-8")


def test_the_promised_presets_are_there() -> None:
    promised = {"paper", "paper-quick", "fashion", "paper-92", "paper-128", "homogeneous", "heavy-tailed"}
    assert promised <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_loads_under_its_own_name(name: str) -> None:
    loaded = load(name)
    assert loaded.name == name
    assert Scenario.from_toml(loaded.to_toml()) == loaded
    assert loaded.fleet.size == (120 if name == "heavy-tailed" else 25)


CITES = re.compile(r"#.*(section [IVX]+|table [IVX]+|\(ours\)|not given)", re.IGNORECASE)


def uncited(text: str) -> list[str]:
    """The lines whose value no comment accounts for: not its own, its table's nor its neighbour's.

    Later entries of a list of tables may rely on the comment at the first one's head, what stands above all tables on
    the comment that opens the file. The name of a preset, and of the one it extends, are its own.
    """
    missing, head, block = [], "", []
    heads = {head: text.splitlines()[0]}

    def close() -> None:
        cited = [bool(CITES.search(line)) for line in block]
        for place, line in enumerate(block):
            near = cited[max(place - 1, 0) : place + 2]
            if not any(near) and not CITES.search(heads.get(head, "")) and not line.startswith(("name", "extends")):
                missing.append(line)

    for line in [*text.splitlines(), "[end]"]:
        if line.startswith("["):
            close()
            head, block = line.split("]")[0], []
            heads.setdefault(head, line)
        elif line.strip() and not line.startswith("#"):
            block.append(line)
    return missing


def test_a_missing_citation_is_noticed() -> None:
    text = "# no source\na = 1\n[t]  # section II\nb = 1\n[u]\nc = 1\n\nd = 2  # (ours)\n"
    text += "[[v]] # not given\ne = 1\n[[v]]\ne = 2\n"
    assert uncited(text) == ["a = 1"]
    assert uncited("# of section II\na = 1\nb = 2\n[u]\nc = 1") == ["c = 1"]
    assert uncited("[u]\na = 1 # see below\nb = 2\nc = 3 # section I\n") == ["a = 1 # see below"]


@pytest.mark.parametrize("name", preset_names())
def test_every_value_of_a_preset_is_accounted_for(name: str) -> None:
    assert uncited(preset_text(name)) == []


PAPER = {
    "data.source": "mnist",
    "features.kind": "rbf",
    "features.dimension": 2000,
    "features.gamma": 1 / 50,
    "task.ridge": 9e-6,
    "task.precision": "auto",
    "training.learning_rate": 6.0,
    "training.decay": 0.8,
    "training.decay_epochs": (200, 350),
    "training.first_epoch_offline": True,
    "fleet.server_mac_rate": 8.24e12,
    "links.down_rate": 10e6,
    "links.up_rate": 5e6,
    "links.d2d_rate": 5e6,
    "links.overhead": 0.1,
    "links.loss": 0.1,
}


@pytest.mark.parametrize(("key", "value"), PAPER.items())
def test_the_paper_preset_holds_the_papers_value(key: str, value: Any) -> None:
    section, name = key.split(".")
    assert getattr(getattr(load("paper"), section), name) == value


@pytest.mark.parametrize("name", ["paper", "paper-quick", "fashion", "paper-92", "paper-128"])
def test_the_papers_fleet(name: str) -> None:
    devices = load(name).fleet.devices
    rates = [rate for group in devices for rate in [group.mac_rate] * group.count]
    assert rates == [25e6] * 10 + [5e6] * 5 + [2.5e6] * 5 + [1.25e6] * 5
    for group in devices:  # the mean setup time is rho / (2 tau), and nothing beside it
        assert (group.setup_ratio, group.setup_seconds) == (0.5, 0.0)
        assert (group.down_rate, group.up_rate, group.d2d_rate, group.loss) == (None,) * 4


def test_the_papers_benchmark_and_goal() -> None:
    paper = load("paper")
    assert 0.95 in paper.training.targets
    assert paper.scheme == "minibatch"
    assert paper.options("minibatch").to_table() == {"parts": 5}


@pytest.mark.parametrize(("name", "t", "M", "delta"), [("paper-92", 64, 16, 3.0), ("paper-128", 128, 4, 1.0)])
def test_the_papers_two_ciphers(name: str, t: int, M: int, delta: float) -> None:
    """Length 4000 for 2000 features, check degree 90, so that the 4000 columns of 2000 checks have 45 each."""
    loaded = load(name)
    options = loaded.options("code-based").to_table()
    expected = {"n": 4000, "degree": 90 * 2000 // 4000, "t_tot": 256, "t": t, "M": M, "beta": 4, "delta": delta}
    assert loaded.scheme == "code-based"
    assert {key: options[key] for key in expected} == expected


def test_fashion_differs_from_the_paper_in_data_and_goals_only() -> None:
    fashion, paper = load("fashion").to_table(), load("paper").to_table()
    assert fashion["data"].pop("source") == "fashion"
    assert paper["data"].pop("source") == "mnist"
    for table in (fashion, paper):
        del table["name"], table["training"]["targets"]
    assert fashion == paper


@pytest.mark.parametrize(("name", "known"), TABLES.items())
def test_a_table_has_a_preset_with_its_target_and_owners_and_the_papers_fleet(name: str, known: TableSource) -> None:
    loaded, paper = load(name), load("paper")
    assert (loaded.data.source, loaded.data.target, loaded.data.kind) == (name, known.target, known.kind)
    assert (loaded.partition.kind, loaded.partition.column) == ("column", known.owners[0])
    assert (loaded.fleet, loaded.links, loaded.timing) == (paper.fleet, paper.links, paper.timing)
    assert (loaded.precision, loaded.scaled, loaded.intercept) == ("float64", True, True), "the defaults of files"
    assert loaded.training.solver == "conjugate-gradients"


@pytest.mark.parametrize("name", ["homogeneous", "heavy-tailed"])
def test_other_fleets_differ_from_the_papers_in_their_devices_only(name: str) -> None:
    other, paper = load(name).to_table(), load("paper").to_table()
    for table in (other, paper):
        del table["name"], table["fleet"]["devices"], table["schemes"]["drop-slowest"]
    assert other == paper
    for group in load(name).fleet.devices:
        assert (group.setup_ratio, group.setup_seconds, group.last_epoch) == (0.5, 0.0, None)
        assert (group.down_rate, group.up_rate, group.d2d_rate, group.loss) == (None,) * 4


def rates(name: str) -> list[float]:
    return [rate for group in load(name).fleet.devices for rate in [group.mac_rate] * group.count]


def test_equal_devices_are_together_as_fast_as_the_papers() -> None:
    assert len(set(rates("homogeneous"))) == 1
    assert math.fsum(rates("homogeneous")) == pytest.approx(math.fsum(rates("paper")), rel=1e-12)


def test_heavy_tailed_rates_follow_paretos_law() -> None:
    """P(slowness > s) = 1 / s: groups between powers of two, at their middles, in counts apportioned to 120.

    A group from s to 2 s has the share 1/s - 1/(2 s) of the devices; the middle one is slower by the factor that
    half of the group exceeds, 1 / (1/s - 1/(4 s)). Nobody stands above the last group, whose middle is 2 s.
    """
    starts = [2.0**power for power in range(7)]
    shares = [1 / s - 1 / (2 * s) for s in starts[:-1]] + [1 / starts[-1]]
    middles = [1 / (1 / s - 1 / (4 * s)) for s in starts[:-1]] + [2 * starts[-1]]
    counts = [math.floor(120 * share) for share in shares]
    remainders = [120 * share - count for share, count in zip(shares, counts, strict=True)]
    for place in sorted(range(7), key=lambda place: -remainders[place])[: 120 - sum(counts)]:
        counts[place] += 1
    groups = load("heavy-tailed").fleet.devices
    assert [group.count for group in groups] == counts
    assert [group.mac_rate for group in groups] == pytest.approx([25e6 / middle for middle in middles], rel=1e-12)
    assert load("heavy-tailed").options("drop-slowest").to_table() == {"wait_for": 96}
