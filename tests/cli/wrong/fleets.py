"""Wrong requests for a fleet of runs."""

from cli.wrong import FOLDER, Wrong

FLEETS = {
    "no run": Wrong(("fleet", "fit"), 2, ("no run is named",)),
    "no such folder": Wrong(("fleet", "fit", "nosuch"), 1, ("'nosuch'", "not a finished run")),
    "a file": Wrong(("fleet", "fit", "small.toml"), 1, ("'small.toml'", "not a finished run")),
    "an empty folder": Wrong(("fleet", "fit", "mine"), 1, ("'mine'", "not a finished run"), {"mine": FOLDER}),
    "into a folder": Wrong(("fleet", "fit", "x", "--out", "mine.toml"), 2, ("is a folder",), {"mine.toml": FOLDER}),
    "into no folder": Wrong(("fleet", "fit", "x", "--out", "nosuch/a.toml"), 2, ("nosuch", "does not exist")),
    "over a scenario": Wrong(("fleet", "fit", "x", "--out", "small.toml"), 2, ("small.toml", "not written by this")),
    "not as TOML": Wrong(("fleet", "fit", "x", "--out", "a.json"), 2, ("a.json", "must end in .toml")),
}
