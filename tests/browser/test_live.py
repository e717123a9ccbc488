"""The live page in a real browser: it follows real processes, survives their death, and they survive its own."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pages that are served need Starlette, of the extra 'explore'")
pytest.importorskip("uvicorn", reason="pages that are served need uvicorn, of the extra 'explore'")

from browser.conftest import OpenPage, serious
from browser.trainings import Training
from rundirs import SMALL, epochs, summary

REFUSED = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
"""What a browser says of a server that was killed."""
NASTY = "<img src=x onerror=alert(1)>"

Start = Callable[..., Training]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts trainings in a folder with a small scenario; none is left at the end."""
    (tmp_path / "small.toml").write_text(SMALL)
    started: list[Training] = []

    def one(*arguments: str, **options: Any) -> Training:
        started.append(Training(tmp_path, *arguments, **options))
        return started[-1]

    yield one
    for each in started:
        each.terminate()


def fact(page: Any, name: str) -> str:
    """The value of a fact on the page, by its name."""
    return str(
        page.evaluate(
            "name => [...document.querySelectorAll('#live-facts > div')]"
            ".filter(each => each.children[0].textContent === name).map(each => each.children[1].textContent)[0] || ''",
            name,
        )
    )


def await_phase(page: Any, phase: str) -> None:
    page.wait_for_function("phase => document.getElementById('live-stage').dataset.phase === phase", arg=phase)


def await_fact(page: Any, name: str, value: str) -> None:
    page.wait_for_function(
        "([name, value]) => [...document.querySelectorAll('#live-facts > div')]"
        ".some(each => each.children[0].textContent === name && each.children[1].textContent.startsWith(value))",
        arg=[name, value],
    )


def newest_epochs(page: Any) -> list[list[str]]:
    """The table of the newest epochs."""
    page.wait_for_function("() => document.querySelectorAll('#live-epochs tbody tr').length > 0")
    found = page.eval_on_selector_all(
        "#live-epochs tbody tr", "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return list(found)


def check_course(page: Any, run: Path) -> None:
    """What the page shows at the end is what the run has stored."""
    stored, found = epochs(run), summary(run)
    shown = newest_epochs(page)
    assert [int(row[0]) for row in shown] == stored["epoch"].tolist()[::-1][: len(shown)]
    assert [row[2] for row in shown] == [f"{value:.4f}" for value in stored["accuracy"].tolist()[::-1][: len(shown)]]
    assert fact(page, "accuracy") == f"{found['final_accuracy']:.4f}"
    assert fact(page, "epoch") == f"{found['epochs']} of {found['epochs']}"
    assert page.inner_text("#live-result dd >> nth=0") == f"{found['final_accuracy']:.4f}, on test set"


def test_a_page_follows_a_run_to_its_end(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    training = start("run", "small.toml", "--out", "run", "--live", upto=9)
    page = open_page(training.address)
    other = open_page(training.address, width=360, dark=True)
    for each in (page, other):
        await_fact(each, "epoch", "9 of 24")
        assert each.inner_text("#live-stage") == "training minibatch"
    assert serious(other) == []
    assert page.locator("#live-devices tbody tr").count() == 5
    assert other.evaluate("document.documentElement.scrollWidth") == 360
    training.release(10**9)
    for each in (page, other):
        await_phase(each, "finished")
    assert training.wait() == 0
    check_course(page, tmp_path / "run")
    check_course(other, tmp_path / "run")
    assert serious(page) == []
    assert page.locator("#live-score svg").count() == 1
    assert "codedfl report run" in page.inner_text("#live-result")
    assert page.title() == "finished: small"


def test_a_killed_training_is_awaited_and_followed_again(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    arguments = ("run", "small.toml", "--out", "run", "--live")
    first = start(*arguments, upto=12)
    page = open_page(first.address, expected=REFUSED)
    await_fact(page, "epoch", "12 of 24")
    first.kill()
    await_phase(page, "lost")
    text = page.inner_text("#live-stage")
    assert text == "connection lost at epoch 12, waiting for the training to come back"
    assert serious(page) == []
    second = start(*arguments, upto=15)
    assert second.address == first.address
    await_fact(page, "epoch", "15 of 24")
    await_phase(page, "training")
    second.release(10**9)
    await_phase(page, "finished")
    assert second.wait() == 0
    check_course(page, tmp_path / "run")
    assert not (tmp_path / "run" / ".live").exists()


def test_a_closed_browser_changes_nothing(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    training = start("run", "small.toml", "--out", "run", "--live", upto=5)
    page = open_page(training.address)
    await_fact(page, "epoch", "5 of 24")
    page.context.close()
    training.release(10**9)
    assert training.wait() == 0
    assert len(epochs(tmp_path / "run")["epoch"]) == 24


def test_owners_with_hostile_names_are_text(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    """Names of owners are a column of the data; there are no test rows, so nothing is known of accuracy."""
    names = [NASTY, "b & <b>", '"quoted" </script>']
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        moduli = (7, 5, 11, 13, 17, 19)  # with two columns, rounding decides whether the third epoch is the last
        rows.writerow([*(f"column {modulus}" for modulus in moduli), "owner", "what"])
        rows.writerows([*(i % modulus for modulus in moduli), names[i % 3], i % 2] for i in range(60))
    settings = {
        "data.source": "rows.csv",
        "data.target": "what",
        "data.kind": "classification",
        "data.test_fraction": 0,
        "features.kind": "none",
        "partition.kind": "column",
        "partition.column": "owner",
        "scheme": "conventional",
        "training.epochs": 6,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    training = start("run", "own-data", *words, "--out", "run", "--live", upto=3)
    page = open_page(training.address)
    await_fact(page, "epoch", "3 of 6")
    shown = page.eval_on_selector_all("#live-devices tbody th", "cells => cells.map(cell => cell.textContent)")
    assert sorted(shown) == sorted(names)
    assert page.locator("img").count() == 0
    assert fact(page, "accuracy") == "not known"
    training.release(10**9)
    await_phase(page, "finished")
    assert training.wait() == 0


def test_an_error_is_shown_as_text(start: Start, open_page: OpenPage) -> None:
    training = start(*("run", "small.toml", "--out", "run", "--live", "--set", "training.learning_rate=1e9"), upto=0)
    page = open_page(training.address, expected=REFUSED)
    page.wait_for_function("() => document.querySelectorAll('#live-devices tbody tr').length === 5")
    training.release(10**9)
    page.wait_for_function("() => document.getElementById('live-connection').textContent.includes('diverged')")
    assert training.wait() == 1
    assert page.inner_text("#live-stage").startswith("stopped at epoch")


def test_the_page_is_used_by_keyboard(start: Start, open_page: OpenPage) -> None:
    training = start("run", "small.toml", "--out", "run", "--live", upto=8)
    page = open_page(training.address)
    await_fact(page, "epoch", "8 of 24")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    stage = page.locator("#live-stage")
    assert (stage.get_attribute("role"), stage.get_attribute("aria-live")) == ("status", "polite")
    live = page.eval_on_selector_all("[aria-live], [role=status], [role=alert]", "found => found.map(each => each.id)")
    assert live == ["live-stage"], "epochs are not read out"


def test_a_lost_site_of_a_deployment_is_shown(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    pytest.importorskip("nvflare", reason="a deployment needs NVIDIA FLARE, of the extra 'flare'")
    import psutil

    from codedfl.deploy.flare.processes import status

    coded = ("scheme=sealed-coded", "schemes.sealed-coded.workers=4", "schemes.sealed-coded.threshold=2")
    words = [word for each in (*coded, "training.epochs=1000000") for word in ("--set", each)]
    training = start("deploy", "local", "paper-quick", "--devices", "4", *words, "--out", "run", "--live")
    page = open_page(training.address, expected=REFUSED)
    page.wait_for_function("() => document.querySelectorAll('#live-epochs tbody tr').length > 0")
    (site,) = status([tmp_path / "run.fleet" / "device-2"])
    for number in site.jobs:
        psutil.Process(number).kill()
    page.wait_for_function(
        "() => [...document.querySelectorAll('#live-devices tbody tr')].some(row =>"
        " row.children[0].textContent === 'device-2' && row.children[1].textContent.includes('lost')"
        " && row.children[6].textContent.length > 3)"
    )
    assert "device-2 was lost: " in page.inner_text("#live-events")
    assert fact(page, "lost devices") == "1"
    before = int(fact(page, "epoch").split(" of ")[0].replace(",", ""))
    page.wait_for_function(
        "before => +document.querySelector('#live-facts dd').textContent.split(' of ')[0].replace(',', '') > before",
        arg=before,
    )
    assert serious(page) == []
    training.terminate()
    await_phase(page, "lost")
    assert page.inner_text("#live-stage").endswith("waiting for the training to come back")
