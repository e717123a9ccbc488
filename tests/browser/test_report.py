"""The report in a real browser: charts draw the data, and nothing else is asked for or run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from browser.conftest import OpenPage, serious
from browser.made import HOSTILE, command, hostile_table, made_run
from codedfl.report.figures import curve_of
from codedfl.runs import Run

READY = "html[data-ready=yes]"
Made = tuple[Path, dict[str, Run]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Three runs and their report; tests only read them."""
    folder = tmp_path_factory.mktemp("reports")
    runs = {
        "minibatch": made_run(folder, "minibatch"),
        "sealed": made_run(folder, "sealed", {"schemes.sealed.delta": 0.05}),
        "sealed-coded": made_run(folder, "sealed-coded"),
    }
    assert command("report", *(str(run.path) for run in runs.values()), "--out", str(folder / "report.html")) == 0
    return folder / "report.html", runs


def opened(open_page: OpenPage, file: Path, **options: Any) -> Any:
    page = open_page(file.as_uri(), **options)
    page.wait_for_selector(READY)
    return page


def test_charts_take_the_place_of_static_pictures(made: Made, open_page: OpenPage) -> None:
    page = opened(open_page, made[0])
    assert page.locator("figure[data-chart] .static").count() == 0
    assert page.locator("#chart-curves svg path").count() > 3
    assert page.locator("#chart-timeline canvas").count() == 1


def test_without_scripts_everything_is_there_to_read(made: Made, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(made[0].as_uri())
    assert page.locator("figure[data-chart] .static svg").count() == 4
    assert page.locator("#results table tbody tr").count() == 3
    assert "minibatch" in page.inner_text("main")
    context.close()


def test_curves_are_those_of_the_runs(made: Made, open_page: OpenPage) -> None:
    file, runs = made
    page = opened(open_page, file)
    drawn = page.evaluate("document.getElementById('chart-curves').chart.rows")
    assert len(drawn) == len(runs)
    for rows, (label, run) in zip(drawn, runs.items(), strict=True):
        curve = curve_of(label, [run])
        assert {row["label"] for row in rows} == {label}
        for name in ("time", "mean", "low", "high"):
            assert np.allclose([row[name] for row in rows], getattr(curve, name), rtol=1e-5, atol=0)


def test_the_line_on_the_screen_ends_where_the_data_does(made: Made, open_page: OpenPage) -> None:
    """The last point of a path, taken back through the scales of the axes' own tick labels, is the last score."""
    file, runs = made
    page = opened(open_page, file)
    ends = page.evaluate(
        """() => {
          const svg = document.querySelector('#chart-curves .chart svg');
          const ticks = [...svg.querySelectorAll('g[data-mark="y-axis tick label"] text')];
          const place = (t) => new DOMPoint(0, 0).matrixTransform(t.transform.baseVal.consolidate().matrix).y;
          const scale = ticks.map((t) => [+t.textContent, place(t)]);
          return {scale, lines: [...svg.querySelectorAll('[class^="curve-"] path')].map((p) =>
            p.getPointAtLength(p.getTotalLength()).y)};
        }"""
    )
    (low, low_y), (high, high_y) = ends["scale"][0], ends["scale"][-1]
    shift = ends["scale"][0][1] - low_y
    found = [low + (y - shift - low_y) / (high_y - low_y) * (high - low) for y in ends["lines"]]
    expected = [float(run.epochs["accuracy"][-1]) for run in runs.values()]
    assert len(found) == len(expected)
    assert np.allclose(found, expected, atol=0.01)


def test_hover_tells_values(made: Made, open_page: OpenPage) -> None:
    page = opened(open_page, made[0])
    chart = page.locator("#chart-curves .chart svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.4)
    tip = page.locator("#chart-curves .chart text", has_text="95%:")
    tip.wait_for()
    assert any(label in tip.text_content() for label in made[1])


def test_zoom_by_dragging_keys_and_buttons(made: Made, open_page: OpenPage) -> None:
    page = opened(open_page, made[0])
    domain = "document.getElementById('chart-curves').chart.domain"
    first = page.evaluate(domain)
    chart = page.locator("#chart-curves .chart svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 120)
    page.mouse.up()
    dragged = page.evaluate(domain)
    assert first[0] < dragged[0] < dragged[1] < first[1]
    page.locator("#chart-curves .chart").focus()
    page.keyboard.press("0")
    assert page.evaluate(domain) == first
    page.keyboard.press("+")
    zoomed = page.evaluate(domain)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(domain)[0] > zoomed[0]
    page.locator("#chart-curves").get_by_role("button", name="show everything").click()
    assert page.evaluate(domain) == first


def test_toggles_and_axes(made: Made, open_page: OpenPage) -> None:
    page = opened(open_page, made[0])
    page.locator("#chart-curves").get_by_label("minibatch", exact=True).uncheck()
    assert page.locator("#chart-curves .curve-0").count() == 0
    assert page.locator("#chart-curves .curve-1").count() == 1
    page.locator("#chart-curves").get_by_label("linear", exact=True).check()
    assert page.evaluate("document.getElementById('chart-curves').chart.kind") == "linear"
    assert "linear" in page.inner_html("#chart-curves .chart")


def test_the_timeline_has_every_step(made: Made, open_page: OpenPage) -> None:
    file, runs = made
    page = opened(open_page, file)
    table = pyarrow.parquet.read_table(runs["minibatch"].path / "timeline.parquet")
    bars = "document.getElementById('chart-timeline').chart"
    assert page.evaluate(f"{bars}.bars.begin.length") == table.num_rows
    order = np.lexsort((table["begin"].to_numpy(), table["device"].to_numpy()))
    ticks, tick = page.evaluate(f"Array.from({bars}.bars.begin)"), page.evaluate(f"{bars}.tick")
    assert np.allclose(np.array(ticks) * tick, table["begin"].to_numpy()[order], atol=2 * tick)
    assert page.evaluate(f"Array.from({bars}.bars.device)") == table["device"].to_numpy()[order].tolist()


def test_the_timeline_pans_zooms_and_tells_what_a_bar_is(made: Made, open_page: OpenPage) -> None:
    page = opened(open_page, made[0])
    window = "document.getElementById('chart-timeline').chart.window"
    canvas = page.locator("#chart-timeline canvas")
    canvas.focus()
    first = page.evaluate(window)
    page.keyboard.press("+")
    zoomed = page.evaluate(window)
    assert zoomed[1] - zoomed[0] == pytest.approx((first[1] - first[0]) / 2)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(window)[0] > zoomed[0]
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 34)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 34)
    page.mouse.up()
    page.keyboard.press("0")
    assert page.evaluate(window)[0] == 0
    page.mouse.move(box["x"] + 600, box["y"] + 40)
    page.wait_for_selector("#chart-timeline .tooltip:not(.hidden)")
    assert page.inner_text("#chart-timeline .tooltip").startswith("0")


def test_handovers_are_drawn_as_arrows(made: Made, open_page: OpenPage) -> None:
    file, runs = made
    page = opened(open_page, file)
    count = runs["sealed"].summary["handovers"]
    assert count > 0
    assert page.locator("#chart-handovers g[data-mark=arrow] path").count() == count


def test_costs_of_devices_are_those_of_the_run(made: Made, open_page: OpenPage) -> None:
    file, runs = made
    page = opened(open_page, file)
    stored = page.evaluate("JSON.parse(document.getElementById('data').textContent).devices")
    for entry, run in zip(stored, runs.values(), strict=True):
        spent = pyarrow.parquet.read_table(run.path / "costs.parquet")
        assert entry["up"] == spent["up"].to_pylist()
        assert sum(entry["up"]) == run.summary["bits_sent"]["up"]
        assert sum(entry["macs"]) == run.summary["device_macs"]
    assert page.locator("#chart-devices circle").count() == sum(len(entry["up"]) for entry in stored)


@pytest.mark.parametrize("width", [360, 1200, 3840])
def test_every_width_fits_and_violates_nothing(made: Made, open_page: OpenPage, width: int) -> None:
    page = opened(open_page, made[0], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(page) == []


def test_dark_pages_violate_nothing(made: Made, open_page: OpenPage) -> None:
    page = opened(open_page, made[0], dark=True)
    assert serious(page) == []
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_page_is_whole_without_a_network_and_small(made: Made, open_page: OpenPage) -> None:
    """``open_page`` blocks and records whatever the page asks for."""
    page = opened(open_page, made[0])
    data = page.evaluate("document.getElementById('data').textContent.length")
    assert made[0].stat().st_size - data < 1_500_000


def test_hostile_values_are_text_everywhere(tmp_path: Path, open_page: OpenPage) -> None:
    """Names of columns, classes, categories and owners, and every text of a summary, would change the title if run."""
    source = [f"data.source={hostile_table(tmp_path)}", "data.target=target", "partition.kind=column"]
    changes = [*source, "partition.column=owner", "training.epochs=5", "scheme=conventional", "task.ridge=0.1"]
    sets = [word for change in changes for word in ("--set", change)]
    place, out = tmp_path / "run", tmp_path / "report.html"
    assert command("run", "own-data", *sets, "--out", str(place)) == 0
    summary = json.loads((place / "summary.json").read_text())
    assert HOSTILE in summary["owners"][0]
    summary |= {"verdict": HOSTILE, "scheme": HOSTILE, "scenario": HOSTILE, "scenario_id": HOSTILE}
    summary["time_to_accuracy"] = summary["time_to_accuracy_band"] = {HOSTILE: None}
    (place / "summary.json").write_text(json.dumps(summary))
    assert command("report", str(place), "--out", str(out)) == 0
    page = opened(open_page, out)
    page.locator("#chart-timeline canvas").hover(position={"x": 500, "y": 40})
    assert page.title() != "1"
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("#chart-timeline .tooltip")
    assert HOSTILE in page.inner_text("#results")


def test_an_injected_script_does_not_run(made: Made, open_page: OpenPage, tmp_path: Path) -> None:
    """Even where escaping failed, the policy lets no foreign script run."""
    text = made[0].read_text().replace("</main>", "<script>document.title='ran'</script></main>")
    (tmp_path / "broken.html").write_text(text)
    page = opened(open_page, tmp_path / "broken.html", expected=("Content Security Policy",))
    assert page.title() != "ran"
