"""The results of a run in a few words."""

from pathlib import Path
from typing import Any

from codedfl.runs import load
from codedfl.runs.facts import run_facts
from report.exports.made import HOSTILE, copied, made

PROMISE: dict[str, Any] = {"epsilon": 2.0001, "delta": 1e-5, "known_seed": False}


def test_what_a_page_shows() -> None:
    summary = load(made()).summary
    facts = run_facts(summary)
    assert list(facts) == [
        *("scenario", "scheme", "epochs", "final accuracy"),
        *(f"virtual time to accuracy {target}" for target in (0.5, 0.7, 0.99)),
        *("payload", "secrecy", "the server sees"),
    ]
    assert facts["final accuracy"] == f"{summary['final_accuracy']:.4f}"
    assert facts["virtual time to accuracy 0.99"] == "never"
    assert " (95%: " in facts["virtual time to accuracy 0.5"]
    assert facts["payload"].endswith(" MB d2d")
    assert facts["secrecy"] == "not encrypted"


def test_noise_and_real_time(tmp_path: Path) -> None:
    facts = run_facts(copied(tmp_path / "run", privacy=PROMISE, virtual_seconds=None).summary)
    assert facts["noise"] == "epsilon 2.01, delta 1e-05"
    assert "real time to accuracy 0.5" in facts
    known = run_facts({**load(made()).summary, "privacy": PROMISE | {"known_seed": True}})
    assert known["noise"].endswith("protects nothing)")


def test_what_is_not_known(tmp_path: Path) -> None:
    facts = run_facts({**load(made()).summary, "final_accuracy": None})
    assert facts["final accuracy"] == "not known"
    assert not [name for name in facts if "time to" in name]
    held_out = run_facts({**load(made()).summary, "scored_on": "rows held out by devices"})
    assert held_out["final accuracy"].endswith(", on rows held out by devices")
    assert not [name for name in held_out if "time to" in name]


def test_hostile_words_are_text(tmp_path: Path) -> None:
    words = {"server": HOSTILE, "devices": HOSTILE, "eavesdropper": HOSTILE}
    run = copied(tmp_path / "run", scenario=HOSTILE, scheme=HOSTILE, verdict=HOSTILE, leakage=words)
    page = run._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") == 4
