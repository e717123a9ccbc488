"""Pictures of sharing, from timelines and curves made by hand."""

from typing import Any

import numpy as np
import pytest

from codedfl.report.figures import PAPER, SCREEN
from codedfl.report.sharing import active_figure, handover_figure, timeline_figure
from report.made_up import outside, overlaps

STEPS = [
    (1, 0, "send reply", -1, 0.0, 1.0),
    (2, 0, "receive model", -1, 1.0, 2.0),
    (2, 0, "compute", -1, 2.0, 3.0),
    (2, 2, "compute", -1, 2.0, 9.0),
    (2, 2, "encrypt", -1, 10.0, 11.0),
    (2, 2, "send", 0, 11.0, 15.0),
    (2, 0, "absorb", -1, 15.0, 16.0),
    (3, 1, "send", 0, 20.0, 24.0),
    (3, 0, "absorb", -1, 24.0, 25.0),
    (4, 0, "compute", -1, 30.0, 31.0),
]


def columns(steps: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    names = ("epoch", "device", "activity", "peer", "begin", "end")
    return {name: [step[place] for step in steps] for place, name in enumerate(names)}


def test_the_timeline_ends_with_the_last_handover() -> None:
    figure = timeline_figure(columns(STEPS), 3, "title")
    (axes,) = figure.axes
    assert axes.get_xlim() == (0, pytest.approx(25.0, rel=0.03))
    assert axes.get_ylim() == (2.5, -0.5), "the fastest at the top"
    assert "seconds" in axes.get_xlabel()
    drawn = [corners for patch in axes.patches for corners in patch.get_path().to_polygons()]
    bars = sorted((box[:, 0].min(), box[:, 0].max(), round(box[:, 1].mean())) for box in drawn)
    assert bars == sorted((begin, end, device) for _, device, _, _, begin, end in STEPS[:-1])
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} >= {"compute", "send", "absorb", "encrypt"}


def test_without_handovers_the_first_epochs_are_shown() -> None:
    figure = timeline_figure(columns([step for step in STEPS if step[2] not in ("send", "absorb", "encrypt")]), 3, "")
    assert figure.axes[0].get_xlim()[1] == 9.0


def test_handovers_are_arrows_from_sender_to_recipient() -> None:
    figure = handover_figure(columns(STEPS), 3, "title")
    (axes,) = figure.axes
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert [(text.xyann[1], text.xy[1]) for text in arrows] == [(2, 0), (1, 0)]
    styles = [text.arrow_patch.get_linestyle() for text in arrows]
    assert styles[0] != styles[1], "with an error matrix, and forwarded"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["2", "3"]


def test_no_handovers_at_all() -> None:
    assert handover_figure(columns(STEPS[:3]), 3, "").axes[0].get_xlabel()


def test_curves_that_have_settled_go_on_to_the_end() -> None:
    def table(level: int, active: list[float]) -> dict[str, Any]:
        bands = {f"{name}{part}": active for name in ("active", "supports") for part in ("", "_low", "_high")}
        return {"level": level, "supply": "once", "delta": 3.0, **bands}

    figure = active_figure([table(92, [25.0, 9.0]), table(128, [25.0, 20.0, 10.0, 5.0])])
    upper, lower = figure.axes
    assert "K(e)" in upper.get_ylabel()
    assert "L(e)" in lower.get_ylabel()
    for axes in (upper, lower):
        assert [line.get_ydata().tolist() for line in axes.lines] == [[25, 9, 9, 9], [25, 20, 10, 5]]
        words = [" ".join(text.get_text().split()) for text in axes.texts]
        assert [word.partition(",")[0] for word in words] == ["claimed 92 bit", "claimed 128 bit"]
        assert overlaps(figure, axes.texts) == []


@pytest.mark.parametrize("style", [PAPER, SCREEN], ids=["paper", "screen"])
@pytest.mark.parametrize("draw", [timeline_figure, handover_figure])
def test_nothing_sticks_out_and_a_paper_has_no_title(draw: Any, style: Any) -> None:
    figure = draw(columns(STEPS), 3, "the title", style)
    (axes,) = figure.axes
    (legend,) = figure.legends
    assert outside(figure, [axes.xaxis.label, axes.yaxis.label, *legend.get_texts()]) == []
    assert (legend.get_title().get_text() == "the title") == style.titles


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    falling = np.linspace(25, 1, 1000).tolist()
    bands = {f"{name}{part}": falling for name in ("active", "supports") for part in ("", "_low", "_high")}
    figure = active_figure([{"level": 92, "supply": "once", "delta": 3.0, **bands}])
    (line,) = figure.axes[0].lines
    assert len(line.get_xdata()) <= 400
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (1, 1000)
    np.testing.assert_allclose(line.get_ydata(), np.array(falling)[line.get_xdata() - 1])
