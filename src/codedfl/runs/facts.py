"""The results of a run in a few words, for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from codedfl.privacy.promise import KNOWN_SEED, rounded_up
from codedfl.runs.markup import bits_text, seconds_and_band
from codedfl.runs.scoring import HELD_OUT
from codedfl.runs.summary import final_score, metric_name


def score_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return how long a run trained, and its final score."""
    score = final_score(summary)
    where = f", on {HELD_OUT}" if summary.get("scored_on") == HELD_OUT else ""
    shown = "not known" if score is None else f"{score:.4f}{where}"
    return {"epochs": f"{summary['epochs']:,}", f"final {metric_name(summary)}": shown}


def run_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return scores, times to targets with their bands, payload, secrecy and noise."""
    facts = {"scenario": summary["scenario"], "scheme": summary["scheme"], **score_facts(summary)}
    facts |= dict(_times(summary))
    sent = (f"{bits_text(bits)} {link}" for link, bits in summary["bits_sent"].items())
    facts |= {
        "payload": ", ".join(sent),
        "secrecy": summary["verdict"],
        "the server sees": summary["leakage"]["server"],
    }
    if summary.get("privacy"):
        facts["noise"] = noise_text(summary["privacy"])
    return facts


def _times(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the time to each target; scores of held-out rows are of the final model only."""
    if final_score(summary) is None or summary.get("scored_on") == HELD_OUT:
        return
    clock = "virtual" if summary.get("virtual_seconds") is not None else "real"
    for target, seconds in summary["time_to_accuracy"].items():
        words = f"{clock} time to {metric_name(summary)} {target}"
        yield words, seconds_and_band(seconds, summary["time_to_accuracy_band"][target])


def noise_text(privacy: Mapping[str, Any]) -> str:
    """Return what noise promises in numbers."""
    known = f" ({KNOWN_SEED})" if privacy["known_seed"] else ""
    return f"epsilon {rounded_up(privacy['epsilon'])}, delta {privacy['delta']:g}{known}"
