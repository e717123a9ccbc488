"""The explorer in a real browser: its answers are those of ``codedfl plan``, and nothing else is asked."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import OpenPage, serious
from browser.made import HOSTILE, QUICK, command, made_run
from codedfl.report.explorer import ExplorerSession, explorer_routes
from codedfl.report.web import PageServer
from codedfl.runs import Run
from codedfl.scenario import Scenario, load

NAMES = ["conventional", "sealed", "sealed-coded", "one-shot", "code-based"]
DONE = "html[data-busy=no]"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made_run(tmp_path_factory.mktemp("laid-over"), "conventional", {"training.targets": [0.3]})


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load("paper-quick").with_settings(QUICK)


@pytest.fixture(scope="module")
def file(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explored") / "mine.toml"
    path.write_text(scenario.to_toml())
    return path


@pytest.fixture(scope="module")
def address(scenario: Scenario, file: Path, run: Run) -> Iterator[str]:
    told = {"samples": 1000, "outputs": 10, "names": NAMES, "origin": str(file)}
    session = ExplorerSession(scenario, **told, runs={HOSTILE: run})
    with PageServer(explorer_routes(session)) as server:
        yield server.address
    session.close()


def opened(open_page: OpenPage, address: str, **options: Any) -> Any:
    page = open_page(address, **options)
    page.wait_for_selector(DONE)
    return page


def printed(capsys: pytest.CaptureFixture[str], text: str) -> Any:
    """What the command on the page prints."""
    capsys.readouterr()
    assert command(*shlex.split(text)[1:], "--json") == 0
    return json.loads(capsys.readouterr().out)


def answer(page: Any) -> Any:
    return page.evaluate("window.explorer.shown")


def test_the_ranking_is_that_of_plan(address: str, open_page: OpenPage, capsys: pytest.CaptureFixture[str]) -> None:
    page = opened(open_page, address)
    shown = answer(page)
    assert shown["plan"] == printed(capsys, shown["command"])
    assert len(shown["plan"]["schemes"]) == len(NAMES)
    rows = page.locator("#ranking tbody tr").evaluate_all("rows => rows.map(row => row.dataset.scheme)")
    assert rows == [row["scheme"] for row in shown["plan"]["schemes"]]


def test_every_slider_changes_the_answer_as_the_command_does(
    address: str, open_page: OpenPage, capsys: pytest.CaptureFixture[str]
) -> None:
    page = opened(open_page, address)
    names = page.locator("#sliders input[type=range]").evaluate_all("all => all.map(each => each.id)")
    assert len(names) == 11
    for name in names:
        page.locator(f"#{name}").press("ArrowRight")
    page.wait_for_selector(DONE)
    page.locator("#slider-devices").press("Home")
    page.locator("#slider-devices").press("PageUp")
    page.get_by_label("one channel for all").check()
    page.wait_for_selector("html:not([data-busy=no])")
    page.wait_for_selector(DONE)
    shown = answer(page)
    assert shown["plan"] == printed(capsys, shown["command"])
    assert "links.d2d_channel" in shown["command"]
    page.get_by_role("button", name="As the scenario is").click()
    page.wait_for_selector("html:not([data-busy=no])")
    page.wait_for_selector(DONE)
    assert answer(page)["command"].count("--set") == 0


def test_the_saved_scenario_is_the_one_that_is_shown(
    address: str, open_page: OpenPage, tmp_path: Path, scenario: Scenario
) -> None:
    page = opened(open_page, address)
    page.locator("#sliders").get_by_label("loss of a message, exact value").fill("0.25")
    page.keyboard.press("Enter")
    page.wait_for_selector("html:not([data-busy=no])")
    page.wait_for_selector(DONE)
    with page.expect_download() as saving:
        page.get_by_role("link", name="Save as TOML").click()
    saving.value.save_as(tmp_path / "saved.toml")
    assert load(tmp_path / "saved.toml") == scenario.with_settings({"links.loss": 0.25})


def test_orders_and_overlays(address: str, open_page: OpenPage) -> None:
    page = opened(open_page, address)
    bits = {row["scheme"]: row["bits_per_device"] for row in answer(page)["plan"]["schemes"]}
    page.get_by_label("traffic of a device").check()
    rows = page.locator("#ranking tbody tr").evaluate_all("rows => rows.map(row => row.dataset.scheme)")
    assert rows == sorted(rows, key=lambda name: bits[name])
    marks = page.locator("#ranking .chart svg g[data-mark=dot] path").count()
    page.get_by_text("Lay runs over").click()
    assert page.locator("#ranking details input").is_checked(), "runs that are named are laid over at first"
    page.locator("#ranking details input").uncheck()
    assert page.locator("#ranking .chart svg g[data-mark=dot] path").count() == marks - 1
    assert page.title() != "1"
    assert HOSTILE in page.inner_text("#ranking details")


def test_wrong_values_get_one_sentence(address: str, open_page: OpenPage) -> None:
    page = opened(open_page, address)
    wrong = {
        "loss = 7 must be": {"values": {"loss": 7}, "number": 1, "page": "x"},
        "devices = 2.5 must be": {"values": {"devices": 2.5}, "number": 2, "page": "x"},
        "channel = 'tin cans' must be one of": {"values": {"channel": "tin cans"}, "number": 3, "page": "x"},
        "draws = 0 must be": {"values": {}, "draws": 0, "number": 4, "page": "x"},
        "--privacy 'none' must be one of": {"values": {"privacy": "none"}, "number": 5, "page": "x"},
        "a question needs values": {"values": 3, "number": 6, "page": "x"},
        "a question is a JSON object": [1],
    }
    for sentence, question in wrong.items():
        reply = page.request.post(f"{address}plan", data=json.dumps(question))
        assert reply.status == 400
        assert sentence in reply.json()["error"]


def test_no_cookies_and_no_other_address(address: str, open_page: OpenPage) -> None:
    page = opened(open_page, address)
    assert page.context.cookies() == []
    assert page.request.get(address.rstrip("/") + "x/").status == 404
    assert address.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("width", [360, 1200, 2560])
def test_every_width_fits_and_violates_nothing(address: str, open_page: OpenPage, width: int) -> None:
    page = opened(open_page, address, width=width, dark=width == 1200)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(page) == []
