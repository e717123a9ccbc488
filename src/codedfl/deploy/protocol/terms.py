"""The terms of a run: all that decides what a site computes and what leaves it, as a text, a digest and in words.

Two scenarios with the same digest ask the same of a site. Not part of the terms: where the server keeps its own files,
the solver and its step sizes, and the random delays of simulations. Speeds of the fleet and its links are part of
them, because schemes choose thresholds by them.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, final

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.runs.sums import sum_scenario
from codedfl.scenario import Scenario
from codedfl.schemes.private import release_of
from codedfl.task.losses import SQUARED

_FORMAT = "codedfl-terms-1"
_OWN_DATA = ("kind", "target", "test_fraction", "held_out", "seed", "classes")
"""Keys of [data] that a site acts on."""


@final
@dataclass(frozen=True)
class Terms:
    """What a run asks of a site."""

    text: str
    """Readable TOML, canonical: equal terms have equal texts."""
    words: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The digest that owners agree to."""
        return f"sha256:{hashlib.sha256(self.text.encode()).hexdigest()}"


def terms_of(scenario: Scenario) -> Terms:
    """Return the terms of a scenario; refuse noise that is known."""
    import tomli_w

    if scenario.privacy.seed is not None:
        raise ScenarioError(
            f"privacy.seed = {scenario.privacy.seed} makes the noise known, so it protects nothing and is for "
            "simulations; leave it out for sites"
        )
    table = {name: _ordered(value) for name, value in _table(scenario).items()}
    return Terms(tomli_w.dumps(table), _words(scenario))


def _ordered(value: Any) -> Any:
    """Return nested tables with their keys in order, so that equal terms have equal texts."""
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return {key: _ordered(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _table(scenario: Scenario) -> dict[str, Any]:
    """Return all that a site acts on; values that follow from the kind of data are resolved."""
    given = scenario.to_table()
    used = (scenario.scheme, *scenario.options().others)
    scale, intercept = "standard" if scenario.scaled else "none", scenario.intercept
    # settings with their defaults do not change digests that owners agreed to before there were any others
    task = {name: value for name, value in given["task"].items() if (name, value) != ("loss", SQUARED)}
    numbers = {"ridge": list(scenario.ridges), "precision": scenario.precision, "accuracy": scenario.accuracy}
    noise = {"privacy": given["privacy"]} if scenario.private else {}
    return {
        "format": _FORMAT,
        "scheme": scenario.scheme,
        "devices": scenario.fleet.size,
        "epochs": scenario.training.epochs,
        "first_epoch_offline": scenario.training.first_epoch_offline,
        "data": {name: given["data"][name] for name in _OWN_DATA if name in given["data"]},
        "partition": given["partition"],
        "features": given["features"] | {"scale": scale, "intercept": intercept},
        "task": task | numbers,
        "fleet": given["fleet"],
        "links": given["links"],
        "schemes": {name: scenario.options(name).to_table() for name in used if name in schemes.SCHEMES},
    } | noise


def _words(scenario: Scenario) -> tuple[str, ...]:
    """Return the terms in plain sentences."""
    scheme = schemes.nominal(scenario)
    seen, epochs = scheme.leakage(), scenario.training.epochs
    options = {
        f"{name}.{key}": value
        for name in (scenario.scheme, *scenario.options().others)
        for key, value in scenario.options(name).to_table().items()
    }
    chosen = f" with {', '.join(f'{key} = {value}' for key, value in options.items())}" if options else ""
    features = scenario.features
    feature_words = "the prepared columns themselves"
    if features.kind != "none":
        feature_words = f"{features.dimension} random features ({features.kind}) of the columns"
    words = [
        f"scheme {scenario.scheme}{chosen}",
        f"{scenario.fleet.size} devices take part, in at most {epochs} epochs",
        f"devices train on {feature_words}",
    ]
    opened = []
    if scenario.prepared:
        opened.append("sums of columns, to standardise them")
    if len(scenario.ridges) > 1:
        opened.append(f"sums of errors on folds of rows, to choose among {len(scenario.ridges)} ridge weights")
    if scenario.data.held_out > 0:
        opened.append(
            f"sums of counts on the {scenario.data.held_out:.3g} of rows that are held out, to score the model"
        )
    if opened:
        words.append(f"over all devices are also opened, under {sum_scenario(scenario).scheme}: {'; '.join(opened)}")
    words += _noise_words(scenario)
    words += [f"the server sees {seen.server}", f"other devices see {seen.devices}"]
    return (*words, f"an eavesdropper sees {seen.eavesdropper}")


def _noise_words(scenario: Scenario) -> list[str]:
    """Return what devices add, and what it promises, which depends on no numbers of rows."""
    given, devices = scenario.privacy, scenario.fleet.size
    release = release_of(scenario, [1] * devices, scenario.features.dimension, 1)
    if release is None:
        return []
    when, others = "its sums, once", f"targets to {given.clip_targets:g}"
    if given.release != "once":
        when, others = "its gradient, in each epoch", f"residuals to {given.clip_residuals:g}"
    clips = f"rows are scaled down to norm {given.clip_features:g}, {others}"
    return [f"each device adds noise to {when}; {clips}", f"all that the run reveals is {release.statement}"]
