"""Pictures of the pages of docs/pages.md: ``python -m benchmarks.screenshots [--out docs] [--runs DIR...]``.

Every picture shows a real run, simulated or deployed, in the system's Chromium (Playwright drives it). Runs are made in
a temporary folder unless they are given. Servers are those of the commands, on loopback; all processes are ended.
"""

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import codedfl
from codedfl.deploy.flare.processes import status
from codedfl.errors import CodedflError
from codedfl.storage import write_whole

SCHEMES = {"minibatch": (), "code-based": ("schemes.code-based.delta=0.1",), "sealed-coded": ()}
"""Schemes of the report, with their settings."""
DEPLOYED = (
    *("scheme=sealed-coded", "schemes.sealed-coded.workers=4", "schemes.sealed-coded.threshold=2"),
    "training.epochs=1000000",  # it ends when the picture is taken
)
LOST = "device-2"
BROWSER = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
PATIENCE = 240
"""Seconds in which a page must show what is awaited."""
MOST = 250_000
"""Bytes above which a picture gets fewer colours, where Pillow is installed."""
WIDE, PHONE, PAPER = 1200, 360, 794
"""Widths in pixels: a screen, a phone, and A4 at 96 dots an inch."""

Write = Callable[[str, bytes], None]
Open = Callable[..., Any]


def command(*words: str | Path) -> list[str]:
    """Return ``codedfl WORDS`` as a process of the same sources as this one."""
    return [sys.executable, "-m", "codedfl.cli", *map(str, words)]


def environment() -> dict[str, str]:
    """Return the environment of processes: these sources, one thread each."""
    return os.environ | {"PYTHONPATH": str(Path(codedfl.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}


def make_runs(folder: Path) -> list[Path]:
    """Train each scheme of the report once."""
    for scheme, settings in SCHEMES.items():
        sets = [word for each in (f"scheme={scheme}", *settings) for word in ("--set", each)]
        words = command("run", "paper-quick", *sets, "--out", scheme)
        subprocess.run(words, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return [folder / scheme for scheme in SCHEMES]


@contextmanager
def served(folder: Path, *words: str) -> Iterator[str]:
    """Start a command that serves a page, and yield its address; end it in any case."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command(*words), cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=pipe, text=True
    )
    lines, found, known = [], [], threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if address := re.search(r"http://127\.0\.0\.1:\d+/\S+/", line):
                found.append(address[0])
                known.set()
        known.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        if not known.wait(PATIENCE) or not found:
            raise CodedflError(f"'codedfl {' '.join(words)}' serves no page: {''.join(lines)}")
        yield found[0]
    finally:
        end(process)
        reader.join(10)


def end(process: "subprocess.Popen[str]") -> None:
    """Ask a process to end, which ends those that it started; kill it if it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def browser() -> Iterator[Open]:
    """Yield a function that opens an address in a window of its own."""
    from playwright.sync_api import sync_playwright

    usual = Path("/usr/bin/chromium")
    program = str(usual) if usual.exists() else shutil.which("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(BROWSER))

        def open_page(address: str, *, width: int = WIDE, dark: bool = False, ready: str = "html") -> Any:
            context = started.new_context(
                viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
            )
            page = context.new_page()
            page.set_default_timeout(1000 * PATIENCE)
            page.goto(address)
            page.wait_for_selector(ready)
            return page

        try:
            yield open_page
        finally:
            started.close()


def span(page: Any, first: str, last: str, *, most: float = 1e4) -> bytes:
    """Return a picture as wide as the page, from the top of one element to the bottom of another."""
    page.wait_for_timeout(400)  # charts are drawn with the next frames
    edges = "([a, b]) => [a, b].map((each) => document.querySelector(each).getBoundingClientRect())"
    begin, finish = page.evaluate(f"(given) => {{ scrollTo(0, 0); return ({edges})(given); }}", [first, last])
    top = max(0.0, begin["top"] - 8)
    clip = {"x": 0, "y": top, "width": page.viewport_size["width"], "height": min(finish["bottom"] + 10 - top, most)}
    return bytes(page.screenshot(full_page=True, clip=clip))


def see_as(page: Any, deficiency: str) -> None:
    """Show the page as people see it who do not see all colours."""
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setEmulatedVisionDeficiency", {"type": deficiency})


def choose_run(page: Any, label: str) -> None:
    """Let the timeline show another run."""
    page.locator("#chart-timeline select").select_option(label=label)
    page.locator("#chart-timeline").get_by_role("button", name="show the first epochs").wait_for()


def report_pictures(runs: Sequence[Path], folder: Path, open_page: Open, write: Write) -> None:
    """Take pictures of the report: as it is, dark, on a phone, on paper, and without red and green."""
    words = command("report", *(each.resolve() for each in runs), "--out", "report.html")
    subprocess.run(words, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
    address, ready = (folder / "report.html").as_uri(), "html[data-ready=yes]"
    page = open_page(address, ready=ready)
    write("report", span(page, "body", "#score"))
    if len(runs) > 1:
        choose_run(page, runs[1].name)
    page.locator("#chart-timeline canvas").scroll_into_view_if_needed()
    write("timeline", span(page, "#timeline", "#chart-timeline"))
    see_as(page, "deuteranopia")
    curves, matrix = span(page, "#score", "#chart-curves"), span(page, "#secrecy", "#secrecy .wide")
    write("report-colour-blind", stacked(curves, matrix))
    write("report-dark", span(open_page(address, ready=ready, dark=True), "body", "#score"))
    write("report-phone", span(open_page(address, ready=ready, width=PHONE), "body", "#score", most=1700))
    page = open_page(address, ready=ready, width=PAPER)
    page.emulate_media(media="print")
    see_as(page, "achromatopsia")
    page.add_style_tag(content="body { padding: 38px; }")  # the margins of the paper, 1 cm
    write("report-print", span(page, "body", "#score"))


def explorer_picture(folder: Path, open_page: Open, write: Write) -> None:
    """Take a picture of the explorer with slower links between devices, when everything is counted."""
    done = "html[data-busy=no]"
    with served(folder, "explore", "-s", "paper-quick") as address:
        page = open_page(address, ready=done)
        exact = page.get_by_label("rate between devices, exact value")
        exact.fill("2")
        exact.press("Enter")
        exact.blur()
        page.wait_for_function("() => window.explorer.shown.command.includes('d2d_rate')")
        page.wait_for_selector(done)
        write("explorer", span(page, "body", "#ranking .chart"))


def live_picture(folder: Path, open_page: Open, write: Write) -> None:
    """Take a picture of a deployment whose second device was killed, when the server has noticed."""
    import psutil

    sets = [word for each in DEPLOYED for word in ("--set", each)]
    words = ("deploy", "local", "paper-quick", "--devices", "4", *sets, "--out", "run", "--live")
    with served(folder, *words) as address:
        page = open_page(address)
        page.wait_for_function("() => document.querySelectorAll('#live-epochs tbody tr').length > 5")
        (site,) = status([folder / "run.fleet" / LOST])
        for number in site.jobs:
            psutil.Process(number).kill()
        page.wait_for_function(
            "(name) => [...document.querySelectorAll('#live-devices tbody tr')].some((row) =>"
            " row.children[0].textContent === name && row.children[1].textContent.includes('lost')"
            " && row.children[6].textContent.length > 3)",
            arg=LOST,
        )
        before = int(page.inner_text("#live-facts dd").split(" of ")[0].replace(",", ""))
        page.wait_for_function(  # the others go on
            "(before) => +document.querySelector('#live-facts dd').textContent.split(' of ')[0].replace(',', '')"
            " > before",
            arg=before,
        )
        write("live", span(page, "body", "#live-events"))


def stacked(*pictures: bytes) -> bytes:
    """Put pictures of the same width below each other."""
    from matplotlib.image import imread, imsave
    from numpy import concatenate

    made = io.BytesIO()
    imsave(made, concatenate([imread(io.BytesIO(each), format="png")[..., :3] for each in pictures]), format="png")
    return made.getvalue()


def smaller(picture: bytes) -> bytes:
    """Return a picture in fewer bytes, with fewer colours if it is large; as it is without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return picture
    made = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").save(made, "png", optimize=True)
        if made.tell() > MOST:
            made = io.BytesIO()
            image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(made, "png", optimize=True)
    return made.getvalue()


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main(words: Sequence[str] | None = None) -> None:
    """Make all pictures, and print what is written."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.screenshots")
    options.add_argument("--out", type=Path, default=Path("docs"), help="pictures go to its folder pages")
    options.add_argument("--runs", type=Path, nargs="+", default=[], help="runs of the report; made if not given")
    options.add_argument("--only", choices=("report", "explorer", "live"), help="pictures of one page only")
    chosen = options.parse_args(words)
    signal.signal(signal.SIGTERM, _stop)  # so that a terminated script ends its processes, too
    place = chosen.out / "pages"
    place.mkdir(parents=True, exist_ok=True)

    def write(name: str, picture: bytes) -> None:
        path, content = place / f"{name}.png", smaller(picture)
        write_whole(path, lambda file: file.write(content))
        print(f"{path}: {len(content) / 1000:.0f} kB", flush=True)

    with tempfile.TemporaryDirectory(prefix="codedfl-pages-") as name, browser() as open_page:
        folder = Path(name)
        if chosen.only in (None, "report"):
            report_pictures(chosen.runs or make_runs(folder), folder, open_page, write)
        if chosen.only in (None, "explorer"):
            explorer_picture(folder, open_page, write)
        if chosen.only in (None, "live"):
            live_picture(folder, open_page, write)


if __name__ == "__main__":
    main()
