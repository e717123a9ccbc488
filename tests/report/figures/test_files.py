"""Files: exact sizes, fonts that stay text, whole or not at all."""

import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from codedfl.errors import MissingExtraError
from codedfl.report.figures import PAPER, accuracy_against_time, new_figure, save, save_as, save_if_possible, svg_text
from codedfl.runs import Run
from report.made_up import slow_run
from rundirs import tree

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return slow_run(tmp_path)


@pytest.fixture
def figure(run: Run) -> Figure:
    return accuracy_against_time({"x & <y>": [run]}, targets=[0.7], style=PAPER, size=(3.25, 2.0))


class TestSave:
    def test_png_and_svg(self, figure: Figure, tmp_path: Path) -> None:
        save(figure, tmp_path / "figure.png")
        assert set(tree(tmp_path)) == {"figure.png", "figure.svg"}
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag == f"{SVG}svg"

    def test_a_failure_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(file, **options):
            file.write(b"half")
            raise OSError(28, "No space left on device")

        figure = Figure()
        monkeypatch.setattr(figure, "savefig", fail)
        with pytest.raises(OSError, match="No space"):
            save(figure, tmp_path / "figure.png")
        assert tree(tmp_path) == {}

    def test_a_png_has_the_width_asked_for(self, figure: Figure, tmp_path: Path) -> None:
        save_as(figure, tmp_path / "it.png", "png")
        content = (tmp_path / "it.png").read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        place = content.index(b"pHYs")
        dots, _, unit = struct.unpack(">IIB", content[place + 4 : place + 13])
        assert unit == 1, "dots a metre"
        assert width / dots / 0.0254 == pytest.approx(3.25, rel=1e-3)
        assert height / dots / 0.0254 == pytest.approx(2.0, rel=1e-3)

    def test_a_pdf_has_the_width_asked_for_and_its_fonts(self, figure: Figure, tmp_path: Path) -> None:
        save_as(figure, tmp_path / "it.pdf", "pdf")
        content = (tmp_path / "it.pdf").read_bytes()
        found = re.search(rb"/MediaBox \[ ?0 0 ([0-9.]+) ([0-9.]+) ?\]", content)
        assert found
        assert [float(number) / 72 for number in found.groups()] == [pytest.approx(3.25), pytest.approx(2.0)]
        streams = [zlib.decompress(part) for part in _streams(content)]
        everything = content + b"".join(streams)
        assert b"/FontFile2" in everything, "TrueType fonts are embedded"
        assert b"/Subtype /Type3" not in everything

    def test_an_svg_has_the_width_asked_for_and_text(self, figure: Figure, tmp_path: Path) -> None:
        save_as(figure, tmp_path / "it.svg", "svg")
        root = ElementTree.parse(tmp_path / "it.svg").getroot()
        assert float(root.attrib["width"].removesuffix("pt")) / 72 == pytest.approx(3.25)
        words = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
        assert "x & <y>" in words

    def test_the_same_figure_is_the_same_file(self, run: Run, tmp_path: Path) -> None:
        for kind in ("pdf", "svg", "png"):
            for name in ("a", "b"):
                save_as(accuracy_against_time({"x": [run]}, targets=[]), tmp_path / name, kind)
            assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def _streams(content: bytes) -> list[bytes]:
    return [part for part in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL) if part[:1] == b"x"]


class TestSvgInPages:
    def test_it_is_one_element_without_background_and_style_sheet(self, figure: Figure) -> None:
        text = svg_text(figure)
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg"
        assert not list(root.iter(f"{SVG}style"))
        assert not list(root.iter(f"{SVG}image")), "nothing is rasterised"
        assert "#ffffff" not in text

    def test_black_is_the_colour_of_the_page(self, figure: Figure) -> None:
        text = svg_text(figure)
        assert ElementTree.fromstring(text).attrib["fill"] == "currentColor"
        assert "#000000" not in text
        assert "stroke: currentColor" in text
        assert "stroke: #0072b2" in text, "curves keep their colour"

    def test_ids_are_those_referred_to(self, figure: Figure) -> None:
        text = svg_text(figure)
        ids = set(re.findall(r'\bid="([^"]+)"', text))
        assert ids == set(re.findall(r'#([A-Za-z][\w.-]*)(?:"|\))', text)) & ids
        assert not any(name.startswith(("axes", "figure", "patch", "text")) for name in ids)

    def test_it_is_small(self, tmp_path: Path) -> None:
        runs = {f"scheme {number}": [slow_run(tmp_path, 400, number + 1.0)] for number in range(6)}
        assert len(svg_text(accuracy_against_time(runs, targets=[0.7]))) < 150_000
        many = {f"scheme {number}": [slow_run(tmp_path, 400, number + 1.0)] for number in range(13)}
        assert len(svg_text(accuracy_against_time(many, targets=[0.7]))) < 300_000


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[plots\]'"):
        new_figure()
    said: list[tuple[str, int, int]] = []
    assert not save_if_possible(new_figure, tmp_path / "it.png", lambda *report: said.append(report))
    assert said == [("it.png left out: install codedfl[plots]", 0, 0)]


@pytest.mark.real
def test_matplotlib_is_not_imported_before_something_is_drawn() -> None:
    names = ", ".join(f"codedfl.cli.{name}" for name in ("compare", "reproduce", "sweep", "results.figure"))
    code = f"import {names}, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
