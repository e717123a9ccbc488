"""Verdict tables as rows and pages."""

from codedfl.report.secrecy import OVERVIEW, detail_rows, overview_markdown, overview_rows, reasons
from codedfl.schemes.secrecy import ADVERSARIES, FALLS, LEAKS, Cell, alike, all_cells, nothing, sums


class TestOverview:
    def test_the_worst_of_a_device_and_of_membership(self) -> None:
        mixed = nothing("masks")._replace(gram=Cell(LEAKS, "a"), gradient=Cell(FALLS, "b"), union=Cell(LEAKS, "c"))
        table = all_cells({"server": mixed, "device": sums("masks"), "eavesdropper": nothing("links")})
        (row,) = overview_rows([("mine", table)])
        found = dict(zip(OVERVIEW, row, strict=True))
        assert found["scheme"] == "mine"
        assert (found["server"], found["device"]) == ("falls / leaks", "proven / leaks")
        assert (found["eavesdropper"], found["model reader"]) == ("proven", "not examined")

    def test_markdown_has_a_line_a_scheme(self) -> None:
        lines = overview_markdown([("a", all_cells({})), ("b", all_cells({}))]).splitlines()
        assert [line.split("|")[1].strip() for line in lines[2:]] == ["`a`", "`b`"]


class TestDetail:
    def test_a_row_an_adversary(self) -> None:
        rows = detail_rows(all_cells({"server": sums("masks")}))
        assert [row[0] for row in rows] == list(ADVERSARIES)
        assert rows[list(ADVERSARIES).index("server")][1:] == ["proven", "proven", "leaks", "leaks"]

    def test_equal_reasons_stand_once(self) -> None:
        same = alike(FALLS, "linear algebra")._replace(gradient=Cell(LEAKS, "linear algebra"))
        found = [words for name, words in reasons(all_cells({"device": same})) if name == "device"]
        assert found == ["falls and leaks: linear algebra"]
