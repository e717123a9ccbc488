"""Stored figures: they come with the package, and the command writes them again."""

import dataclasses
import json
from pathlib import Path

import pytest

from codedfl.errors import DataError
from codedfl.scenario import load
from codedfl.schemes import SCHEMES
from codedfl.schemes.secrecy import ADVERSARIES, ASSETS
from codedfl.security.attacks import ATTACKS
from codedfl.security.attempts import SECOND_RUN, Outcome
from codedfl.security.figures import FULL, SMALL, Case, figures_of, store, stored_figures
from codedfl.security.scoring import Score
from tiny import is_one_sentence


def outcome(verdict: str, error: float | None, auc: float | None = None, **more: str) -> Outcome:
    score = Score(error, None, None, auc, verdict, guess_error=None if error is None else 0.4)
    words = {"attack": "left-kernel", "adversary": "server", "assumption": "", **more}
    usual = {"preset": "paper-quick", "aim": "", "view": "one parcel", "holder": "the server", "device": 3}
    return Outcome(score=score, seconds=0.0, peak_bytes=0, epochs=60, **{**usual, **words})  # type: ignore[arg-type]


CASE = Case.preset("paper-quick", "sealed", {"schemes.sealed.delta": 1e9})


def test_every_scheme_has_stored_figures_in_the_words_of_the_verdict_table() -> None:
    figures = stored_figures()
    assert {figure.scheme for figure in figures} == set(SCHEMES)
    assert {figure.adversary for figure in figures} <= set(ADVERSARIES)
    assert {figure.asset for figure in figures} <= set(ASSETS)
    assert {figure.attack for figure in figures} <= set(ATTACKS) - {"null"}
    assert {figure.unit for figure in figures} == {"relative error", "AUC"}
    assert all(0 <= figure.value <= 1 for figure in figures if figure.unit == "AUC")
    keys = [(f.command, f.adversary, f.asset, f.unit, SECOND_RUN in f.given) for f in figures]
    assert len(set(keys)) == len(keys)


def test_every_case_of_the_command_is_stored() -> None:
    assert {Case.preset(*case).command for case in (*SMALL, *FULL)} <= {figure.command for figure in stored_figures()}


def test_a_case_names_the_command_that_makes_it() -> None:
    assert CASE.command == "codedfl attack paper-quick --set scheme=sealed --set schemes.sealed.delta=1e+09"
    assert CASE.scenario.options().delta == 1e9  # type: ignore[attr-defined]
    assert Case.of(load("sealed"), {}, 7).command == "codedfl attack sealed --epochs 7"


def test_the_attack_that_got_most_is_kept() -> None:
    """A verdict counts before a figure, and what takes a second run, or is hypothetical, stands apart."""
    found = [
        outcome("leaks", 0.2),
        outcome("falls", 0.009, attack="server-replies"),
        outcome("falls", 1e-8, assumption=SECOND_RUN, attack="two-runs"),
        outcome("falls", 1e-9, assumption="errors of rank t = 8 instead of beta"),
        outcome("holds", None, attack="column-norms"),
        outcome("holds", 1.0, attack="null", adversary="eavesdropper"),
        outcome("leaks", None, 0.7, attack="leverage"),
    ]
    figures = {(figure.attack, figure.value) for figure in figures_of(CASE, found)}
    assert figures == {("server-replies", 0.009), ("two-runs", 1e-8), ("leverage", 0.7)}
    (first, *_) = figures_of(CASE, found)
    assert (first.options, first.device, first.epochs, first.guess) == ({"schemes.sealed.delta": 1e9}, 3, 60, 0.4)


def test_figures_of_the_same_command_are_replaced_and_others_kept(tmp_path: Path) -> None:
    place = tmp_path / "figures.json"
    other = dataclasses.replace(CASE, command="codedfl attack sealed")
    store(place, figures_of(CASE, [outcome("leaks", 0.2)]))
    store(place, figures_of(other, [outcome("leaks", 0.3)]))
    store(place, figures_of(CASE, [outcome("leaks", 0.1)]))
    assert sorted(entry["value"] for entry in json.loads(place.read_text())) == [0.1, 0.3]


def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    place = tmp_path / "other.json"
    place.write_text('[{"name": 1}]')
    with pytest.raises(DataError, match="no figures of attacks") as error:
        store(place, figures_of(CASE, [outcome("leaks", 0.2)]))
    assert is_one_sentence(str(error.value))
    assert place.read_text() == '[{"name": 1}]'
