"""Epsilon beside time, traffic and accuracy: what commands print of noise, for people and for machines."""

import pytest

from cli.conftest import Command
from codedfl.privacy.promise import KNOWN_SEED
from rundirs import strict_json

NOISE = ("--set", "privacy.epsilon=2", "--set", "privacy.delta=1e-4")
SEEDED = (*NOISE, "--set", "privacy.seed=5")
STATEMENT = "(2.00, 0.0001)-differentially private for one record added or removed"


def words(text: str) -> str:
    """Undo the wrapping of lines and cells."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(("noise", "told"), [(NOISE, STATEMENT), (SEEDED, KNOWN_SEED), ((), "")])
def test_run(codedfl: Command, noise: tuple[str, ...], told: str) -> None:
    chosen = ("--set", "scheme=one-shot", "--set", "training.solver=closed-form")
    outcome = codedfl("run", "small.toml", *chosen, *noise)
    assert outcome.code == 0
    assert ("noise" in words(outcome.out)) == bool(noise)
    assert told in words(outcome.out)


def test_plan(codedfl: Command) -> None:
    outcome = codedfl("plan", "one-shot", "minibatch", "-s", "small.toml", *NOISE, "--json")
    assert outcome.code == 0
    rows = {row["scheme"]: row for row in strict_json(outcome.out)["schemes"]}
    assert rows["one-shot"]["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert rows["one-shot"]["delta"] == 1e-4
    assert rows["one-shot"]["privacy"]["statement"].startswith(STATEMENT)
    assert [rows["minibatch"][key] for key in ("epsilon", "delta", "privacy")] == [None] * 3
    assert "privacy.epsilon" in rows["minibatch"]["refused"]
    shown = codedfl("plan", "one-shot", "minibatch", "-s", "small.toml", *NOISE).out
    assert "epsilon" in shown
    assert f"noise of one-shot: {STATEMENT}" in words(shown)


@pytest.mark.usefixtures("no_figures")
def test_compare(codedfl: Command) -> None:
    chosen = ("one-shot", "-s", "small.toml", "--out", "there", *SEEDED)
    shown = codedfl("compare", *chosen).out
    assert "2.00 (known seed)" in shown
    assert f"noise of one-shot: {KNOWN_SEED}" in words(shown)
    rows = {row["scheme"]: row for row in strict_json(codedfl("compare", *chosen, "--json").out)}
    assert rows["one-shot"]["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert rows["one-shot"]["privacy"]["known_seed"] is True
    assert rows["minibatch"]["epsilon"] is None
    assert "privacy.epsilon" in rows["minibatch"]["refused"]


def test_security(codedfl: Command) -> None:
    found = strict_json(codedfl("security", "one-shot", "-s", "small.toml", *NOISE, "--json").out)
    (entry,) = (each for each in found if (each["preset"], each["scheme"]) == ("paper", "one-shot"))
    assert entry["privacy"]["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert {cell["verdict"] for cell in entry["secrecy"] if cell["adversary"] == "model reader"} >= {"bounded"}
    shown = codedfl("security", "minibatch", *NOISE).out
    assert "minibatch is shown without noise: privacy.epsilon = 2 cannot be kept" in words(shown)


def test_attacks_are_not_scored_with_noise(codedfl: Command) -> None:
    outcome = codedfl("attack", "small.toml", "--set", "scheme=one-shot", *NOISE)
    assert outcome.code == 2
    assert "attacks are scored on runs without noise" in words(outcome.err)
