"""The solver that a scenario without one is trained with."""

from codedfl import schemes
from codedfl.scenario import Scenario, load
from codedfl.scenario import scenario as scenario_module
from tiny import known


def test_schemes_and_their_options_name_the_same_solver() -> None:
    named = {name: options.solver for name, options in scenario_module.known_options().items()}
    assert named == {name: known(name).solver or "gradient-descent" for name in schemes.SCHEMES}


def test_a_scheme_is_trained_with_the_solver_that_it_is_made_for() -> None:
    assert load("paper-quick").training.solver == "gradient-descent"
    once = load("paper-quick").with_settings({"scheme": "one-shot"})
    assert once.training.solver == "closed-form"
    assert once.with_settings({"scheme": "sealed"}).training.solver == "gradient-descent"


def test_a_chosen_solver_stays() -> None:
    nesterov = load("paper-quick").with_settings({"training.solver": "nesterov"})
    assert nesterov.with_settings({"scheme": "conventional"}).training.solver == "nesterov"
    descent = {"scheme": "one-shot", "training.solver": "gradient-descent"}
    chosen = load("paper-quick").with_settings(descent)
    assert chosen.training.solver == "gradient-descent"
    assert Scenario.from_toml(chosen.to_toml()) == chosen


def test_ids_are_those_of_the_solver_that_is_used() -> None:
    said = load("paper-quick").with_settings({"scheme": "one-shot", "training.solver": "closed-form"})
    assert load("paper-quick").with_settings({"scheme": "one-shot"}).id() == said.id()
    assert 'solver = "closed-form"' in said.to_toml()
