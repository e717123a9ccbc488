"""Wrong requests for figures."""

import json
from typing import Any

from cli.wrong import FOLDER, Wrong


def row(**settings: Any) -> dict[str, Any]:
    """A row of a sweep, as far as its figure needs it."""
    links = {link: {"mean": 1.0, "largest": 1.0} for link in ("up", "down", "d2d")}
    times = {"time_to_accuracy": {"0.5": 1.0}, "time_to_accuracy_band": {"0.5": None}}
    return {"settings": settings, **times, "final_accuracy": 0.6, "metric": "accuracy", "bits_per_device": links}


SWEEP = json.dumps([row(x=1), row(x=2)])
SQUARE = json.dumps([row(x=x, y=y) for x in (1, 2) for y in (1, 2)])
CUBE = json.dumps([row(x=x, y=y, z=z) for x in (1, 2) for y in (1, 2) for z in (1, 2)])
TEXTS = json.dumps([row(scheme="a"), row(scheme="b")])


def figure(*words: str, code: int = 2, says: tuple[str, ...], sweep: str | bytes = SWEEP, **files: Any) -> Wrong:
    """A command about the sweep in the folder ``swept``."""
    given = {name.replace("_", "."): content for name, content in files.items()}
    return Wrong(("figure", "swept", *words), code, says, {"swept/sweep.json": sweep, **given})


FIGURES = {
    "no run": Wrong(("figure",), 2, ("no run is named",)),
    "no such folder": Wrong(("figure", "nosuch"), 1, ("'nosuch'", "does not exist", "runs/mine")),
    "a file": Wrong(("figure", "small.toml"), 1, ("'small.toml'", "it is a file")),
    "an empty folder": Wrong(("figure", "mine"), 1, ("'mine'", "neither"), {"mine": FOLDER}),
    "a run that is not finished": Wrong(
        ("figure", "mine"), 1, ("'mine'", "not a finished run"), {"mine/scenario.toml": ""}
    ),
    "a folder among runs": Wrong(
        ("figure", "swept", "swept"), 2, ("'swept'", "named alone"), {"swept/sweep.json": SWEEP, "other/a": ""}
    ),
    "a damaged sweep": figure(code=1, says=("sweep.json", "damaged"), sweep="[{"),
    "a sweep that is text": figure(code=1, says=("sweep.json", "damaged"), sweep=b"\xff\xfe"),
    "a sweep without rows": figure(code=1, says=("sweep.json", "damaged"), sweep="[]"),
    "a sweep of something else": figure(code=1, says=("sweep.json", "damaged"), sweep='[{"settings": {}}]'),
    "rows without settings": figure(
        code=1, says=("sweep.json", "damaged"), sweep=json.dumps([{**row(), "settings": {}}])
    ),
    "a row that lacks values": figure(
        code=1,
        says=("sweep.json", "damaged"),
        sweep=json.dumps([{"settings": {"x": 1}, "time_to_accuracy": {"0.5": 1}}]),
    ),
    "a damaged comparison": Wrong(
        ("figure", "mine"), 1, ("compare.json", "damaged"), {"mine/compare.json": '[{"fleet": "a"}]'}
    ),
    "a damaged summary": Wrong(("figure", "mine"), 1, ("summary.json", "damaged"), {"mine/summary.json": "{"}),
    "claims without numbers": Wrong(
        ("figure", "mine"), 1, ("summary.json", "damaged"), {"mine/summary.json": '{"claims": []}'}
    ),
    "claims without runs": Wrong(
        ("figure", "mine"),
        1,
        ("'mine'", "no runs of minibatch"),
        {"mine/summary.json": '{"claims": [], "schemes": {}, "feature_seeds": [1], "quick": true}'},
    ),
    "unknown kind": figure("--kind", "pie", says=("'pie'", "accuracy, traffic")),
    "a kind of other folders": figure("--kind", "timeline", says=("--kind timeline", "'swept'", "choose sweep")),
    "unknown style": figure("--style", "poster", says=("'poster'", "paper, screen")),
    "unknown format": figure("--format", "jpg", says=("'jpg'", "pdf, svg")),
    "unknown quantity": figure("--y", "money", says=("'money'", "time, accuracy, bits")),
    "a width without unit": figure("--width", "3.5", says=("--width '3.5'", "3.5in")),
    "a width in words": figure("--width", "wide", says=("--width 'wide'",)),
    "a width below zero": figure("--width", "-3in", says=("--width '-3in'",)),
    "too wide": figure("--width", "100in", says=("--width '100in'", "1.5 to 40 inches")),
    "too low": figure("--height", "1mm", says=("--height '1mm'", "1.5 to 40 inches")),
    "a target above all": figure("--target", "1.5", says=("--target 1.5", "up to 1")),
    "a target that is no number": figure("--target", "nan", says=("--target nan",)),
    "a target that was not measured": figure("--target", "0.7", says=("--target 0.7", "choose one of 0.5")),
    "a target of something else": figure("--target", "0.5", "--y", "bits", says=("--target 0.5", "--y bits")),
    "a name without ending": figure("--out", "mine", says=("--out 'mine'", ".pdf")),
    "a name of another format": figure("--out", "mine.png", "--format", "pdf", says=("mine.png", "--format pdf")),
    "into a folder": figure("--out", "mine.pdf", code=1, says=("'mine.pdf'", "--out"), mine_pdf=FOLDER),
    "below a file": figure("--out", "small.toml/mine.tex", code=1, says=("small.toml/mine.tex", "--out")),
    "into no folder": figure("--out", "nosuch/mine.svg", code=1, says=("nosuch/mine.svg", "--out")),
    "three keys": figure(says=("3 keys (x, y, z)", "--set"), sweep=CUBE),
    "an overlay on a heat map": figure(
        "--overlay", "mine.csv", says=("--overlay", "heat map"), sweep=SQUARE, mine_csv="label,x,y\na,1,2\n"
    ),
    "no such overlay": figure("--overlay", "nosuch.csv", says=("'nosuch.csv'", "No such file")),
    "an overlay with other columns": figure(
        "--overlay", "mine.csv", says=("'mine.csv'", "label, x, y"), mine_csv="label,time,accuracy\na,1,2\n"
    ),
    "an overlay with text for a number": figure(
        "--overlay", "mine.csv", says=("row 2", "column y", "'much'"), mine_csv="label,x,y\na,1,much\n"
    ),
    "an overlay off the axis": figure(
        *("--overlay", "mine.csv"), says=("row 2", "'c'", "a, b"), sweep=TEXTS, mine_csv="label,x,y\na,c,1\n"
    ),
    "a sweep of an unknown quantity": Wrong(
        ("sweep", "small.toml", "--over", "links.loss=0", "--y", "money"), 2, ("'money'", "time, accuracy, bits")
    ),
}
