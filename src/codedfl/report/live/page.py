"""The document of the live page; its script fills it from the event stream."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.report.pages import Document, Section, escaped
from codedfl.scenario import Scenario

VIRTUAL, REAL, EMULATED = "virtual", "real", "emulated"
"""What the seconds of a training are."""

_STATUS = (
    '<p id="live-stage" class="lead" role="status" aria-live="polite">connecting to the training</p>'
    '<div id="live-connection"></div>'
    '<p><progress id="live-progress" aria-label="progress of the stage" max="1" value="0"></progress> '
    '<span id="live-done"></span></p><dl class="facts" id="live-facts"></dl>'
)
_COURSE = (
    '<figure><div class="chart" id="live-score"></div><figcaption id="live-score-caption"></figcaption></figure>'
    '<figure><div class="chart" id="live-durations"></div><figcaption id="live-durations-caption"></figcaption>'
    "</figure>"
    '<details><summary>The newest epochs as a table</summary><div class="wide" id="live-epochs" tabindex="0" '
    'role="region" aria-label="the newest epochs"></div></details>'
)
_DEVICES = (
    '<p id="live-counts"></p><div class="wide" id="live-devices" tabindex="0" role="region" aria-label="devices"></div>'
    "<h3>Losses, hand-overs, replacements and wrong replies</h3>"
    '<div class="wide" id="live-events" tabindex="0" role="region" aria-label="what happened to devices">'
    '<p class="muted">none so far</p></div>'
)
_RESULT = '<div id="live-result"><p class="muted">The training is not finished.</p></div>'


def about_training(scenario: Scenario, directory: str | Path, clock: str) -> dict[str, Any]:
    """Return what is known of a training before it starts."""
    return {
        "name": scenario.name,
        "scheme": scenario.scheme,
        "id": scenario.id(),
        "epochs": scenario.training.epochs,
        "targets": list(scenario.training.targets),
        "clock": clock,
        "directory": str(directory),
        "report": f"codedfl report {shlex.quote(str(directory))}",
    }


def live_document(about: Mapping[str, Any]) -> Document:
    """Return the page of a training."""
    place = "deployed on real processes" if about["clock"] != VIRTUAL else "simulated in virtual time"
    lead = (
        f'<p class="muted">{escaped(place)}; scheme {escaped(about["scheme"])}, scenario id '
        f"<code>{escaped(about['id'])}</code>, run directory <code>{escaped(about['directory'])}</code></p>"
        "<noscript><p>This page follows a training with a script; allow scripts to see it.</p></noscript>"
    )
    sections = [
        Section("State", _STATUS),
        Section("Course", _COURSE),
        Section("Devices", _DEVICES),
        Section("Result", _RESULT),
    ]
    footer = "Served by the training itself, on this address only while it runs. The page may be closed at any time."
    return Document(
        f"Training {about['name']}", sections, lead, data=dict(about), scripts=["live.js"], served=True, footer=footer
    )
