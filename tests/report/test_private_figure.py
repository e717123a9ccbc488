"""The figure accuracy against epsilon."""

from typing import Any

import numpy as np
from benchmarks.private_figure import accuracy_against_epsilon
from matplotlib.colors import same_color

ROWS: list[dict[str, Any]] = [
    {"scheme": scheme, "epsilon": epsilon, "seed": seed, "accuracy": base + step + seed / 100}
    for scheme, base in (("one-shot", 0.9), ("sealed-coded", 0.88))
    for epsilon, step in ((1.0, 0.0), (8.0, 0.03))
    for seed in (0, 1)
]
CLEAR = [{"scheme": "one-shot", "epsilon": None, "seed": seed, "accuracy": 0.95} for seed in (0, 1)]


def test_a_curve_a_scheme_with_the_range_of_seeds_and_the_clear_model_as_a_line() -> None:
    (axes,) = accuracy_against_epsilon([*ROWS, *CLEAR]).axes
    first, second, line = axes.get_lines()
    np.testing.assert_allclose(first.get_ydata(), [90.5, 93.5])
    np.testing.assert_allclose(second.get_ydata(), [88.5, 91.5])
    assert list(first.get_xdata()) == [1.0, 8.0]
    assert first.get_marker() != second.get_marker(), "told apart without colour"
    assert not same_color(first.get_color(), second.get_color())
    assert {float(value) for value in line.get_ydata()} == {95.0}
    heights = {round(float(y), 6) for y in axes.collections[0].get_paths()[0].vertices[:, 1]}
    assert heights == {90.0, 91.0, 93.0, 94.0}
    assert axes.get_xscale() == "log"
    assert "epsilon" in axes.get_xlabel()
    assert "accuracy" in axes.get_ylabel()


def test_names_stand_beside_their_curves_and_apart() -> None:
    alike = [row | {"scheme": name} for row in ROWS if row["scheme"] == "one-shot" for name in ("a", "b", "c")]
    (axes,) = accuracy_against_epsilon(alike).axes
    places = [text.xy[1] for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]
    assert min(np.diff(places)) > 0.04
