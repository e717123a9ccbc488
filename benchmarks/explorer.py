"""The explorer at full size: from a slider to a new ranking, beside one ``plan``; frames of the timeline in Chromium.

Sliders that only move times are answered from costs that are known. The machine is shared, so what counts are the
ratios to a plan in the same run.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import show
from codedfl.report.explorer.session import ExplorerSession
from codedfl.runs import execute
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES
from codedfl.studies.plan import Shapes, plan

SAMPLES, OUTPUTS = 60_000, 10
MANY = 1000
LINEAR = ("conventional", "minibatch", "drop-slowest", "deadline", "asynchronous")
"""Schemes whose costs at 2,000 features and 1,000 devices can be counted in the memory of this machine."""
MOVES = ({"loss": 0.2}, {"up": 8.0}, {"gradient_epochs": 700}, {"speed": 2.0})
PAN_SECONDS = 3


def main() -> dict[str, Any]:
    """Measure answers on the paper's fleet and on a thousand devices, and frames per second."""
    paper = load("paper")
    results = {"paper": _answers(paper, list(SCHEMES)), "many": _answers(paper.with_devices(MANY), list(LINEAR))}
    return results | {"timeline": _frames()}


def _answers(scenario: Scenario, names: list[str]) -> dict[str, Any]:
    size = scenario.fleet.size
    session = ExplorerSession(scenario, names=names, samples=SAMPLES, outputs=OUTPUTS)
    counted = time.perf_counter()
    number = 0
    while True:
        number += 1
        found = session.answer({"values": {}, "draws": 2, "number": number})
        if not found["counting"]:
            break
        time.sleep(0.5)
    results: dict[str, Any] = {"counting": time.perf_counter() - counted, "schemes": len(found["plan"]["schemes"])}
    show(f"{size} devices: all costs counted", results["counting"], unit="s")
    began = time.perf_counter()
    shapes = Shapes.told(scenario, samples=SAMPLES, outputs=OUTPUTS)
    draws = session.quick_draws(size)
    known = plan(scenario, shapes, names=names, draws=draws)
    results["plan"] = time.perf_counter() - began
    number += 1
    same = session.answer({"values": {}, "draws": draws, "number": number})["plan"] == known.to_table()
    show(f"{size} devices: one plan of {len(names)} schemes", results["plan"], unit="s")
    show(f"{size} devices: answers that differ from the plan", float(not same), 0)
    results["answers"] = {}
    for values in MOVES:
        number += 1
        answer = session.answer({"values": values, "draws": None, "number": number})
        (name,) = values
        took, again = answer["took"], answer["counting"]
        results["answers"][name] = {"seconds": took, "ratio": took / results["plan"], "counted_again": again}
        show(f"{size} devices: {name} moved, {len(names) - len(again)} schemes ranked again", took, 1.0, unit="s")
        show(f"{size} devices: the same, as a share of one plan", took / results["plan"])
    session.close()
    return results


def _frames() -> dict[str, Any]:
    """Pan the timeline of 25 devices over 1,000 epochs for some seconds, and count frames."""
    from playwright.sync_api import sync_playwright

    from codedfl.report.pages.run_page import runs_document

    quick = load("paper-quick").with_settings({"training.epochs": 1000, "timing.draws": 10, "scheme": "conventional"})
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = execute(quick, Path(folder) / "run")
        page_file = Path(folder) / "report.html"
        page_file.write_text(runs_document({"conventional": [run]}).to_html(), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        found = page.evaluate(_PAN, PAN_SECONDS * 1000)
        browser.close()
    show(f"timeline of {found['bars']:,} bars, 1/20 of it shown: frames a second while panning", found["near"], unit="")
    show("the same with everything shown, zooming: frames a second", found["far"], unit="")
    return dict(found)


_PAN = """async (span) => {
  const chart = document.getElementById('chart-timeline').chart;
  const total = chart.tick * 2 ** 31, ticks = 2 ** 31;
  async function frames(step) {
    let count = 0;
    const began = performance.now();
    while (performance.now() - began < span) {
      step((performance.now() - began) / span, count);
      await new Promise(requestAnimationFrame);
      count += 1;
    }
    return count / (performance.now() - began) * 1000;
  }
  const near = await frames((share) => chart.move(share * ticks * 0.9, ticks / 20));
  const far = await frames((share, count) => chart.move(0, ticks * (1 - (count % 2) / 100)));
  return {bars: chart.bars.begin.length, near, far, paints: chart.paints};
}"""
