"""Laws of scenarios over random valid ones: TOML round trip, and what the id depends on."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from codedfl.scenario import Links, Scenario, Training
from codedfl.scenario.sections import Data, Features, Partition, Task, Timing
from codedfl.schemes import SCHEMES
from codedfl.solvers import SOLVERS

Table = dict[str, Any]

positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
not_negative = st.floats(min_value=0, allow_infinity=False, allow_nan=False)
shares = st.floats(min_value=0, max_value=1, exclude_max=True)
seeds = st.integers(0, 2**40)
counts = st.integers(1, 10**9)
rates = st.floats(min_value=1, allow_infinity=False)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,9}", fullmatch=True)


def table(required: dict[str, SearchStrategy[Any]], optional: dict[str, SearchStrategy[Any]]) -> SearchStrategy[Table]:
    return st.fixed_dictionaries(required, optional=optional)


def increasing(values: SearchStrategy[Any]) -> SearchStrategy[list[Any]]:
    return st.lists(values, max_size=4, unique=True).map(sorted)


data = table(
    {},
    {
        "source": st.sampled_from(["mnist", "fashion", "digits"]),
        "kind": st.sampled_from(["auto", "classification", "regression"]),
        "target": st.text(max_size=8),
        "test_fraction": shares.filter(bool),
        "seed": seeds,
    },
)
features = table(
    {},
    {"kind": st.sampled_from(["rbf", "none"]), "dimension": st.integers(1, 10**5), "gamma": positive, "seed": seeds},
)
task = table({}, {"ridge": not_negative, "precision": st.sampled_from(["float32", "float64"])})
training = table(
    {},
    {
        "epochs": st.integers(1, 10**6),
        "learning_rate": positive,
        "decay": st.floats(min_value=0, exclude_min=True, max_value=1),
        "decay_epochs": increasing(counts),
        "targets": increasing(st.floats(max_value=1, exclude_max=True, allow_nan=False, allow_infinity=False)),
        "stop_at_last_target": st.booleans(),
        "first_epoch_offline": st.booleans(),
        "solver": st.sampled_from(list(SOLVERS)),
        "tolerance": shares,
    },
)
groups = table(
    {"mac_rate": rates},
    {
        "count": st.integers(1, 3),
        "setup_ratio": not_negative,
        "setup_seconds": not_negative,
        "down_rate": rates,
        "up_rate": rates,
        "d2d_rate": rates,
        "loss": shares,
        "d2d_loss": shares,
    },
)
links = table(
    {},
    {
        "down_rate": rates,
        "up_rate": rates,
        "d2d_rate": rates,
        "overhead": not_negative,
        "loss": shares,
        "d2d_loss": shares,
        "d2d_channel": st.sampled_from(["parallel", "shared"]),
    },
)
timing = table({}, {"seed": seeds, "draws": st.integers(2, 10**5), "draw": seeds, "repeats": counts})
schemes = table(
    {},
    {
        "conventional": st.just({}),
        "minibatch": table({}, {"parts": counts}),
        "drop-slowest": table({}, {"wait_for": counts}),
        "deadline": table({}, {"seconds": positive, "share": st.floats(0, 1, exclude_min=True, exclude_max=True)}),
        "asynchronous": table({}, {"buffer": counts, "power": not_negative, "step": positive}),
        "code-based": table(
            {},
            {
                "n": st.integers(2, 10**6),
                "M": counts,
                "delta": not_negative,
                "supply": st.sampled_from(["once", "reissued"]),
                "parallel_reception": st.booleans(),
            },
        ),
    },
)


@st.composite
def tables(draw: DrawFn) -> Table:
    """A valid scenario as nested tables; sections and keys may be left to their defaults."""
    devices = draw(st.lists(groups, min_size=1, max_size=3))
    size = sum(group.get("count", 1) for group in devices)
    partition = table(
        {"sizes": st.lists(positive, min_size=size, max_size=size)},
        {
            "kind": st.sampled_from(["iid", "shards", "dirichlet", "sizes"]),
            "seed": seeds,
            "shards_per_device": counts,
            "alpha": positive,
        },
    )
    sections = {
        "name": names,
        "scheme": st.sampled_from(list(SCHEMES)),
        "data": data,
        "partition": partition,
        "features": features,
        "task": task,
        "training": training,
        "links": links,
        "timing": timing,
        "schemes": schemes,
    }
    fleet = draw(table({"devices": st.just(devices)}, {"server_mac_rate": rates}))
    return {"fleet": fleet, **draw(table({}, sections))}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values; a list of numbers is one value, a list of tables is not."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    else:
        yield path


def get(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def put(value: Any, path: tuple[Any, ...], leaf: Any) -> None:
    get(value, path[:-1])[path[-1]] = leaf


@given(tables())
def test_reading_what_was_written_gives_an_equal_scenario(made: Table) -> None:
    scenario = Scenario.from_table(made)
    again = Scenario.from_toml(scenario.to_toml())
    assert again == scenario
    assert again.id() == scenario.id()
    assert again.to_toml() == scenario.to_toml()


@settings(max_examples=50)
@given(tables())
def test_every_value_that_was_set_is_in_the_scenario(made: Table) -> None:
    written = Scenario.from_table(made).to_table()
    for path in leaves(made):
        assert get(written, path) == get(made, path)


def reordered(value: Any, draw: DrawFn) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key], draw) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [reordered(item, draw) for item in value]
    return value


@settings(max_examples=50)
@given(tables(), st.data())
def test_the_order_of_keys_does_not_count(made: Table, chosen: st.DataObject) -> None:
    assert Scenario.from_table(reordered(made, chosen.draw)).id() == Scenario.from_table(made).id()


@settings(max_examples=50)
@given(tables())
def test_writing_the_defaults_down_does_not_count(made: Table) -> None:
    scenario = Scenario.from_table(made)
    explicit = scenario.to_table()
    for name in SCHEMES:
        explicit["schemes"].setdefault(name, scenario.options(name).to_table())
    assert Scenario.from_table(explicit).id() == scenario.id()


@settings(max_examples=50)
@given(tables(), st.data())
def test_leaving_out_what_equals_the_default_does_not_count(made: Table, chosen: st.DataObject) -> None:
    scenario = Scenario.from_table(made)
    sections = (Data, Features, Links, Partition, Task, Timing, Training)
    defaults = {section.table: section().to_table() for section in sections}
    short = scenario.to_table()
    for name, values in defaults.items():
        for key, value in values.items():
            if short[name][key] == value and chosen.draw(st.booleans()):
                del short[name][key]
    assert Scenario.from_table(short) == scenario
    assert Scenario.from_table(short).id() == scenario.id()


@settings(max_examples=50)
@given(tables(), names, schemes)
def test_the_name_and_other_schemes_options_do_not_count(made: Table, name: str, others: Table) -> None:
    scenario = Scenario.from_table(made)
    own = {key: value for key, value in scenario.to_table()["schemes"].items() if key == scenario.scheme}
    other = {**made, "name": name, "schemes": {**others, **own}}
    if scenario.scheme not in own:
        other["schemes"].pop(scenario.scheme, None)
    assert Scenario.from_table(other).id() == scenario.id()


@settings(max_examples=60)
@given(tables(), tables(), st.data())
def test_any_value_that_defines_the_experiment_counts(one: Table, two: Table, chosen: st.DataObject) -> None:
    """Take one value over from another scenario: where it differs, the id differs."""
    first, second = Scenario.from_table(one).to_table(), Scenario.from_table(two).to_table()
    for made in (first, second):  # the options that count are those of the scheme that is run
        made["schemes"] = {first["scheme"]: Scenario.from_table(made).options(first["scheme"]).to_table()}
    shared = [path for path in leaves(first) if path != ("name",) and path in set(leaves(second))]
    path = chosen.draw(st.sampled_from(shared))
    assume(get(first, path) != get(second, path))
    by_size = get(first, ("partition", "kind")) == "sizes"
    assume(not (by_size and (path[-1] == "count" or path == ("partition", "sizes"))))  # these two must fit
    if path == ("scheme",):
        second["schemes"] = {}
    changed = copy.deepcopy(first)
    put(changed, path, get(second, path))
    assert Scenario.from_table(changed).id() != Scenario.from_table(first).id()


@settings(max_examples=50)
@given(tables(), st.sampled_from(["setup_seconds", "down_rate", "up_rate", "d2d_rate", "loss", "d2d_loss"]), st.data())
def test_an_override_of_one_group_counts(made: Table, key: str, chosen: st.DataObject) -> None:
    group = made["fleet"]["devices"][-1]
    group.pop(key, None)
    before = Scenario.from_table(made)
    group[key] = chosen.draw(rates if key.endswith("rate") else shares.filter(bool))
    assert Scenario.from_table(made).id() != before.id()


@settings(max_examples=50)
@given(tables(), tables(), st.data())
def test_a_dotted_key_sets_what_it_names_and_nothing_else(one: Table, two: Table, chosen: st.DataObject) -> None:
    scenario = Scenario.from_table(one)
    other = Scenario.from_table(two).to_table()
    shared = [path for path in leaves(scenario.to_table()) if path in set(leaves(other))]
    path = chosen.draw(st.sampled_from([path for path in shared if path[-1] not in ("sizes", "kind", "count")]))
    key = ".".join(str(step) for step in path)
    expected = scenario.to_table()
    put(expected, path, get(other, path))
    assert scenario.with_settings({key: get(other, path)}) == Scenario.from_table(expected)
