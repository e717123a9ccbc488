"""``codedfl site``: bad input of owners is refused in one sentence and changes nothing."""

from pathlib import Path

import pytest

from codedfl.cli import main
from codedfl.deploy.protocol.terms import terms_of
from codedfl.scenario import load
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
