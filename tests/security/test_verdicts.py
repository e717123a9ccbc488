"""Verdict tables with the figures of attacks."""

from dataclasses import replace
from typing import Any

import pytest

from codedfl import schemes
from codedfl.scenario import load
from codedfl.schemes import Scheme
from codedfl.schemes.secrecy import Secrecy
from codedfl.security.attempts import SECOND_RUN
from codedfl.security.figures import Figure, stored_figures
from codedfl.security.verdicts import verdict_table

FIGURE = Figure(
    scheme="sealed",
    options={},
    adversary="server",
    asset="gram",
    attack="server-replies",
    value=1.4e-3,
    unit="relative error",
    guess=0.4,
    verdict="falls",
    device=7,
    epochs=215,
    data="mnist, 2000 features",
    given="replies of one device",
    command="codedfl attack sealed",
)


def scheme(name: str, options: Any = ()) -> Scheme[Any]:
    return schemes.nominal(load("paper").with_settings({"scheme": name, **dict(options)}))


def cell(found: Scheme[Any], adversary: str, asset: str, *figures: Figure) -> Secrecy:
    return next(c for c in verdict_table(found, figures) if (c.adversary, c.asset) == (adversary, asset))


class TestFigures:
    def test_what_leaks_falls_where_an_attack_gets_it(self) -> None:
        assert cell(scheme("sealed"), "server", "gram").verdict == "leaks"
        found = cell(scheme("sealed"), "server", "gram", FIGURE)
        assert found.verdict == "falls"
        for words in ("`server-replies` error 1.4e-03", "guessed: 4.0e-01", "device 7, 215 epochs", "2000 features"):
            assert words in found.reason

    @pytest.mark.parametrize("stronger", ["server and devices", "deviating server"])
    def test_who_can_do_more_gets_no_less(self, stronger: str) -> None:
        assert cell(scheme("sealed"), stronger, "gram", FIGURE).verdict == "falls"

    def test_a_figure_no_better_than_guessing_changes_no_verdict(self) -> None:
        found = cell(scheme("sealed"), "server", "gram", replace(FIGURE, verdict="holds", value=0.9))
        assert found.verdict == "leaks"
        assert "no better than guessing" in found.reason

    def test_the_worst_figure_is_shown_and_of_equals_that_of_the_larger_data(self) -> None:
        small = replace(FIGURE, data="digits, 300 features", value=1e-5)
        weak = replace(FIGURE, verdict="leaks", value=0.2, data="mnist, 9000 features")
        assert "2000 features" in cell(scheme("sealed"), "server", "gram", weak, small, FIGURE).reason

    def test_a_second_run_is_said_and_changes_no_verdict(self) -> None:
        twice = replace(FIGURE, scheme="sealed-coded", given=f"sums of two runs, {SECOND_RUN}", attack="two-runs")
        found = cell(scheme("sealed-coded"), "server", "gram", twice)
        assert found.verdict == "proven"
        assert "from two runs, with the device and without: `two-runs`" in found.reason

    def test_figures_of_other_options_do_not_count(self) -> None:
        few = replace(FIGURE, scheme="coded-padded", options={"schemes.coded-padded.alpha": 2})
        assert cell(scheme("coded-padded", {"schemes.coded-padded.alpha": 2}), "server", "gram", few).verdict == "falls"
        assert cell(scheme("coded-padded"), "server", "gram", few).verdict == "leaks"

    def test_where_only_costs_are_modelled_no_figure_counts(self) -> None:
        assert cell(scheme("he"), "server", "gram", replace(FIGURE, scheme="he")).verdict == "not examined"


class TestStoredFigures:
    def test_none_contradicts_a_proof(self) -> None:
        """An attack that succeeds within one run where a table says "proven" would be an error of one of them."""
        for figure in stored_figures():
            if figure.verdict != "falls" or SECOND_RUN in figure.given or "reads the parcel it relays" in figure.given:
                continue
            found = scheme(figure.scheme, figure.options)
            told = {(c.adversary, c.asset): c.verdict for c in found.secrecy()}
            assert told[figure.adversary, figure.asset] != "proven", figure

    def test_every_scheme_that_encrypts_has_some(self) -> None:
        known = {figure.scheme for figure in stored_figures()}
        assert {"sealed", "sealed-coded", "coded-padded", "secagg", "one-shot", "code-based"} <= known
