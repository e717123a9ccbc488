"""Wrong settings of differential privacy."""

from typing import Any

import numpy as np

from cli.wrong import Wrong
from cli.wrong.data import csv

PRIVATE = """
scheme = "one-shot"
[data]
source = "data.csv"
[features]
kind = "none"
[training]
targets = []
[[fleet.devices]]
count = 4
mac_rate = 1e6
[timing]
draws = 2
[privacy]
epsilon = 1.0
columns = [
    {name = "a", low = -3, high = 3},
    {name = "b", low = -3, high = 3},
    {name = "c", low = -3, high = 3},
    {name = "y", low = -3, high = 3},
]
"""
X, Y = np.random.default_rng(1).normal(size=(40, 3)), np.random.default_rng(2).normal(size=40)
FILES = {"private.toml": PRIVATE, "data.csv": csv(X, Y)}
A, B, C, Y_RANGE = (f'{{name="{name}", low=-3, high=3}}' for name in "abcy")


def wrong(*says: str, files: Any = None, **changes: Any) -> Wrong:
    """A scenario with changes, whose dots are written as two underscores."""
    pairs = [("--set", f"{key.replace('__', '.')}={value}") for key, value in changes.items()]
    return Wrong(
        ("run", "private.toml", *(word for pair in pairs for word in pair)), 2, says, {**FILES, **(files or {})}
    )


def columns(*ranges: str) -> str:
    return f"[{', '.join(ranges)}]"


def scheme(name: str, reason: str, **changes: Any) -> Wrong:
    return wrong(f"scheme = '{name}'", reason, "choose one-shot, sealed-coded or secagg", scheme=name, **changes)


BUDGET = {
    f"epsilon {value}": wrong(f"privacy.epsilon = {shown}", "a number above 0", privacy__epsilon=value)
    for value, shown in {
        "0": "0",
        "-1": "-1",
        "nan": "nan",
        "inf": "inf",
        "1e300": "1e+300",
        "much": "'much'",
        "true": "True",
    }.items()
} | {
    f"delta {value}": wrong(f"privacy.delta = {shown}", "at least 1e-300 and below 1", privacy__delta=value)
    for value, shown in {"0": "0", "1e-310": "1e-310", "1": "1", "-0.1": "-0.1", "nan": "nan", "tiny": "'tiny'"}.items()
}
BUDGET |= {
    "delta too large for the rows": wrong("privacy.delta is 0.05", "32 records", privacy__delta=0.05),
    "epsilon too small for any noise": wrong(
        "ask for a larger epsilon", privacy__epsilon=1e-300, privacy__delta=1e-300
    ),
}
UNITS = {
    "a unit that is none": wrong("privacy.unit = 'row'", "record, device", privacy__unit="row"),
    "a device of any number of rows": wrong("privacy.most_rows", "'device'", privacy__unit="device"),
    "rows of a device where records are hidden": wrong("privacy.most_rows", "'record'", privacy__most_rows=5),
    "a device of no rows": wrong("privacy.most_rows = 0", "at least 1", privacy__unit="device", privacy__most_rows=0),
    "delta too large for the devices": wrong(
        "privacy.delta is 0.3", "4 devices", privacy__unit="device", privacy__most_rows=5, privacy__delta=0.3
    ),
}
DEVICES = {
    "all collude": wrong("privacy.colluding = 4", "none of the 4 devices", privacy__colluding=4),
    "more collude than there are": wrong("privacy.colluding = 9", "none of the 4 devices", privacy__colluding=9),
    "fewer than none collude": wrong("privacy.colluding = -1", "at least 0", privacy__colluding=-1),
    "half a device colludes": wrong("privacy.colluding = 0.5", "a whole number", privacy__colluding=0.5),
    "all are lost": wrong("privacy.losses = 4", "none of the 4 devices", privacy__losses=4),
    "some collude and the others are lost": wrong(
        "privacy.colluding = 2 and privacy.losses = 2", "lower them", privacy__colluding=2, privacy__losses=2
    ),
    "collusion under seals without masks": wrong(
        "privacy.colluding needs masks",
        scheme="sealed-coded",
        privacy__colluding=1,
        **{"schemes__sealed-coded__masks": "false"},
    ),
    "losses under sealed-coded": wrong("privacy.losses", "sealed-coded", scheme="sealed-coded", privacy__losses=1),
    "losses under secagg": wrong("privacy.losses", "secagg", scheme="secagg", privacy__losses=1),
    "a threshold that opens sums with less noise": wrong(
        "schemes.one-shot.threshold = 3", "privacy.losses = 0", **{"schemes__one-shot__threshold": 3}
    ),
}
CLIPS = {
    f"{name} {value}": wrong(f"privacy.{name} = {value}", "above 0", **{f"privacy__{name}": value})
    for name in ("clip_features", "clip_targets")
    for value in ("0", "-1", "nan")
} | {
    f"{name} beside ranges": wrong(f"privacy.{name} = 0.5", "leave it out", **{f"privacy__{name}": 0.5})
    for name in ("clip_features", "clip_targets")
}
SCHEMES = {
    "in clear": scheme("conventional", "a single device"),
    "in clear, without waiting": scheme("minibatch", "a single device"),
    "deadline": scheme("deadline", "a single device"),
    "encrypted": scheme("he", ""),
    "code-based": scheme("code-based", ""),
    "sealed": scheme("sealed", ""),
    "parity data": scheme("coded-padded", ""),
    "of some devices": wrong("'drop-slowest'", "changing data", scheme="secagg", schemes__secagg__inner="drop-slowest"),
    "noise each epoch in one sum": wrong("privacy.release = 'each-epoch'", "secagg", privacy__release="each-epoch"),
    "a release that is none": wrong("privacy.release = 'daily'", "once, each-epoch", privacy__release="daily"),
}
BESIDE = {
    "owners alone": Wrong(
        ("owners", "private.toml", "--owner", "a"), 2, ("privacy.epsilon = 1", "without noise"), FILES
    ),
    "single precision": wrong("float32", "leave it out", task__precision="float32"),
    "several weights": wrong("task.ridge", "give one", task__ridge="[0.1, 1]"),
    "a weight by itself": wrong("task.ridge", "give one", task__ridge="auto"),
    "rows held out": wrong("data.held_out", "set 0", data__held_out=0.2),
    "a first model": wrong("training.start", "leave it out", training__start="first.npz", files={"first.npz": ""}),
    "means for empty cells": wrong("features.missing", "remove rows", features__missing="mean"),
    "standard scaling": wrong("features.scale = 'standard'", "privacy.columns", features__scale="standard"),
    "columns as they are with an intercept": wrong("features.scale = 'none'", "false", features__scale="none"),
    "ranges of columns as they are": wrong(
        "range of 'a'", "as they are", features__scale="none", features__intercept="false"
    ),
    "random features with an intercept": wrong(
        "privacy.clip_features = 1", "1.5", features__kind="rbf", features__intercept="true"
    ),
    "ranges of images": wrong("range of 'a'", "'digits'", data__source="digits"),
    "scaled images": wrong("features.scale = 'standard'", data__source="digits", features__scale="standard"),
}
RANGES = {
    "no ranges": wrong("a public range of a, b, c, y", "[[privacy.columns]]", privacy__columns="[]"),
    "a column without a range": wrong("a public range of b (", privacy__columns=columns(A, C, Y_RANGE)),
    "two columns without a range": wrong("a public range of b, c (", privacy__columns=columns(A, Y_RANGE)),
    "the target without a range": wrong("a public range of y (", privacy__columns=columns(A, B, C)),
    "a range of no column": wrong(
        "range of 'agee'",
        "ranges are for a, b, c, y",
        privacy__columns=columns(A, B, C, Y_RANGE, '{name="agee", low=0, high=1}'),
    ),
    "a range twice": wrong("privacy.columns name 'a' twice", privacy__columns=columns(A, A, B, C, Y_RANGE)),
    "an empty range": wrong("'a'", "from 3 to 3", "below high", privacy__columns='[{name="a", low=3, high=3}]'),
    "a range upside down": wrong("'a'", "from 3 to -3", privacy__columns='[{name="a", low=3, high=-3}]'),
    "a range without an end": wrong("privacy.columns.high = inf", privacy__columns='[{name="a", low=3, high=inf}]'),
    "a range that is no number": wrong("privacy.columns.low = 'x'", privacy__columns='[{name="a", low="x", high=3}]'),
    "a range too wide for squares": wrong("'a'", "1e+100", privacy__columns='[{name="a", low=-1e200, high=1e200}]'),
    "half a range": wrong("[privacy.columns]", "'high'", privacy__columns='[{name="a", low=3}]'),
    "a range with a key too many": wrong(
        "privacy.columns.unit", privacy__columns='[{name="a", unit="m", low=0, high=1}]'
    ),
    "a range that is no table": wrong("privacy.columns = 5", "a table", privacy__columns="[5]"),
    "ranges that are no list": wrong("privacy.columns = 5", "a list", privacy__columns="5"),
    "a range of classes": wrong(
        "range of 'y'",
        "no target of a regression",
        data__kind="classification",
        files={"data.csv": csv(X, np.arange(40) % 2)},
    ),
    "text that nobody declares": wrong(
        "all possible values of t (",
        "[[features.categories]]",
        files={
            "data.csv": "t,a,b,c,y\n"
            + "\n".join(
                f"{'uv'[n % 2]},{a},{b},{c},{y}" for n, (a, b, c, y) in enumerate(np.column_stack([X, Y]).tolist())
            )
        },
    ),
}
WITHOUT = {
    f"{key} without epsilon": Wrong(
        ("run", "small.toml", "--set", f"privacy.{key}={value}"), 2, (f"privacy.{key} needs privacy.epsilon",)
    )
    for key, value in {
        **{"delta": 1e-6, "unit": "device", "most_rows": 3, "colluding": 1, "losses": 1, "clip_features": 2},
        **{"clip_targets": 2, "columns": columns(A), "release": "each-epoch", "seed": 1},
    }.items()
} | {
    "a key that is none": Wrong(
        ("run", "small.toml", "--set", "privacy.epsilom=1"), 2, ("privacy.epsilom", "did you mean 'epsilon'")
    )
}
PRIVACY = BUDGET | UNITS | DEVICES | CLIPS | SCHEMES | BESIDE | RANGES | WITHOUT
