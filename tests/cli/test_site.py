"""``codedfl site``: bad input of owners is refused in one sentence and changes nothing."""

from pathlib import Path

import pytest
from dp_accounting import get_epsilon_gaussian

from codedfl.cli import main
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.site.privacy import LEDGER
from codedfl.scenario import load
from deploy.site.test_host import Asker
from deploy.site.test_privacy import PrivateAsker, kept, released
from rundirs import strict_json
from tiny import is_one_sentence

SITE = 'name = "anna"\n[data]\nsource = "mine.csv"\n[agreement]\ncohort = ["anna", "ben", "cleo"]\n'


def ran(*words: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(["site", *words])
    return int(done.value.code or 0)


def test_an_owner_agrees_to_one_scenario_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.toml").write_text(f"# mine alone\n{SITE}", encoding="utf-8")
    assert ran("terms", "sealed-coded", "--devices", "3", "--json") == 0
    terms = strict_json(capsys.readouterr().out)
    assert terms["digest"] == terms_of(load("sealed-coded").with_devices(3)).digest
    assert ran("agree", str(tmp_path), "sealed-coded", "--json") == 0
    made = strict_json(capsys.readouterr().out)
    assert (made["terms"], made["least"], made["cohort"]) == ([terms["digest"]], 3, ["anna", "ben", "cleo"])
    assert ran("agree", str(tmp_path), "paper-quick", "--cohort", "ben,anna", "--least", "2", "--json") == 0
    other = strict_json(capsys.readouterr().out)
    assert (other["cohort"], other["least"], len(other["terms"])) == (["ben", "anna"], 2, 1)
    text = (tmp_path / "agreement.toml").read_text(encoding="utf-8")
    assert text.endswith(terms_of(load("paper-quick").with_devices(2)).text)
    assert other["terms"][0] in text
    kept = (tmp_path / "site.toml").read_text(encoding="utf-8")
    assert kept.startswith("# mine alone\n"), "an owner's comments stay"
    assert other["terms"][0] in kept


@pytest.mark.parametrize(
    ("words", "site", "code", "sentence"),
    [
        (("no-such-preset",), SITE, 2, "no-such-preset"),
        ((), SITE, 2, "no scenario is named"),
        (("sealed-coded", "--cohort", "ben,cleo"), SITE, 2, "anna among them"),
        (("sealed-coded", "--cohort", "anna,anna"), SITE, 2, "names a device twice"),
        (("sealed-coded", "--least", "0"), SITE, 2, "agreement.least = 0 must be"),
        (("sealed-coded", "--devices", "4"), SITE, 2, "must name the 4 devices"),
        (("sealed-coded",), 'name = "anna"\n', 2, "(nobody) must name"),
        (("sealed-coded",), SITE + "leest = 3\n", 2, "unknown key 'agreement.leest'"),
        (("sealed-coded",), "name =", 1, "is not valid TOML"),
        (("sealed-coded",), None, 1, "every site needs its own site.toml"),
    ],
)
def test_bad_input_changes_nothing(
    words: tuple[str, ...],
    site: str | None,
    code: int,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if site is not None:
        (tmp_path / "site.toml").write_text(site, encoding="utf-8")
    assert ran("agree", str(tmp_path), *words) == code
    told = capsys.readouterr().err.strip()
    assert sentence in told
    assert is_one_sentence(told.removeprefix("codedfl: "))
    assert [path.name for path in tmp_path.iterdir()] == ([] if site is None else ["site.toml"])
    assert site is None or (tmp_path / "site.toml").read_text(encoding="utf-8") == site


def test_an_owner_sees_what_was_released_and_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.toml").write_text(f"{SITE}[privacy]\nbudget_epsilon = 4.0\n", encoding="utf-8")
    assert ran("privacy", str(tmp_path)) == 0
    told = "0 releases in ledger 'default': together (0, 1e-05)-differentially private for one record"
    assert told in capsys.readouterr().out
    for number in (1, 2):
        released(PrivateAsker(kept(tmp_path), f"s{number}", f"run-{number}"))
    plain = Asker(kept(tmp_path), session="s3")
    plain.begin()
    plain.host.handle(plain.round(1))
    plain.ask("forget", stage=None)
    assert ran("privacy", str(tmp_path), "--json") == 0
    shown = strict_json(capsys.readouterr().out)
    assert [entry["run"] for entry in shown["releases"]] == ["run-1", "run-2"]
    (total,) = shown["totals"]
    mu = 2**0.5 * shown["releases"][0]["mu"]
    assert total["mu"] == pytest.approx(mu)
    assert get_epsilon_gaussian(1 / mu, 1e-5) == pytest.approx(total["epsilon"], rel=1e-6)
    assert total["budget"] == 4.0
    assert shown["without_noise"] == ["run-1"], "the server has used the name of a run twice"
    assert ran("privacy", str(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 releases in ledger 'default': together (2.96, 1e-05)" in lines[0]
    assert "; a budget of 4 leaves 2." in lines[0]
    assert "run run-2 (default): (2.00, 1e-05)-differentially private for one record" in lines[2]
    assert lines[3] == "1 runs without noise, which no bound covers: run-1"


@pytest.mark.parametrize(
    ("site", "ledger", "code", "sentence"),
    [
        (None, None, 1, "every site needs its own site.toml"),
        (f"{SITE}[privacy]\nbudget_epsilon = -1\n", None, 2, "privacy.budget_epsilon = -1"),
        (SITE, "{", 1, "privacy cannot be read"),
    ],
)
def test_what_cannot_be_shown_is_said(
    site: str | None, ledger: str | None, code: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("site.toml", site), (LEDGER, ledger)):
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    assert ran("privacy", str(tmp_path)) == code
    told = capsys.readouterr().err.strip()
    assert sentence in told
    assert is_one_sentence(told.removeprefix("codedfl: "))
