"""Wrong requests for pages."""

from cli.wrong import FOLDER, Wrong
from cli.wrong.figures import SWEEP

PAGES = {
    "no run": Wrong(("report",), 2, ("no run is named",)),
    "no such folder": Wrong(("report", "nosuch"), 1, ("'nosuch'", "does not exist")),
    "an empty folder": Wrong(("report", "mine"), 1, ("'mine'", "neither"), {"mine": FOLDER}),
    "a run that is not finished": Wrong(
        ("report", "mine"), 1, ("'mine'", "not a finished run"), {"mine/scenario.toml": ""}
    ),
    "a damaged comparison": Wrong(("report", "mine"), 1, ("compare.json", "damaged"), {"mine/compare.json": "[{"}),
    "a sweep whose runs are gone": Wrong(("report", "mine"), 1, ("sweep.json", "damaged"), {"mine/sweep.json": SWEEP}),
    "a study among runs": Wrong(
        ("report", "mine", "other"),
        1,
        ("'other'", "does not exist"),
        {"mine/sweep.json": SWEEP},
    ),
    "a folder as page": Wrong(("report", "mine", "--out", "mine"), 2, ("'mine'", "folder"), {"mine": FOLDER}),
    "a page in no folder": Wrong(("report", "mine", "--out", "a/b.html"), 2, ("'a/b.html'", "does not exist")),
    "no such run to lay over": Wrong(("explore", "nosuch"), 1, ("'nosuch'", "not a finished run")),
    "no such scenario": Wrong(("explore", "-s", "nosuch"), 2, ("nosuch",)),
    "samples without outputs": Wrong(
        ("explore", "-s", "small.toml", "--samples", "9"), 2, ("--samples", "--outputs", "together")
    ),
    "a port that is none": Wrong(("explore", "-s", "small.toml", "--port", "70000"), 2, ("70000",)),
    "a port below none": Wrong(("explore", "-s", "small.toml", "--port", "-1"), 2, ("-1",)),
    "settings of a run": Wrong(("explore", "nosuch", "--set", "links.loss=0.1"), 1, ("'nosuch'", "not a finished run")),
}
