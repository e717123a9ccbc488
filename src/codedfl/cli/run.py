"""``codedfl run``: one training run."""

from typing import Any

from rich.table import Table

from codedfl.cli import common
from codedfl.cli.live import Live, LiveHost, LivePort, checked_live, live_simulation
from codedfl.front.functions import shortened, taken_as_public
from codedfl.report.pages import seconds_text
from codedfl.runs import default_directory, execute, final_score, metric_name
from codedfl.runs.markup import bits_text
from codedfl.runs.scoring import HELD_OUT


def run_command(
    scenario: common.ScenarioArgument = None,
    named: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    out: common.Out = None,
    live: Live = False,
    live_port: LivePort = None,
    live_host: LiveHost = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Train once, in virtual time; a run that was stopped is resumed.

    The page of --live needs the extra 'explore'. It ends with the command: an open page keeps the last state. After a
    kill, the same command resumes the run at the same address, and open pages go on.
    """
    page = checked_live(live, live_port, live_host)
    chosen = common.chosen_scenario(common.chosen_name(scenario, named), changes, devices)
    place = out or default_directory(chosen)
    with common.bars() as progress:
        run = live_simulation(page, chosen, place, progress) if page else execute(chosen, place, progress=progress)
    common.warn_if_broken(chosen)
    classes = run.load_model().classes if chosen.private else ()
    for sentence in (*taken_as_public(chosen, classes), *shortened(run.summary)):
        common.warn(sentence)
    if json:
        common.print_json(run.summary)
    else:
        common.console.print(run_table(run.summary))
        for remark in filter(None, (run.summary.get(name) for name in ("remark", "without_noise"))):
            common.console.print(remark, soft_wrap=True)
        common.console.print(f"run directory: {place}", soft_wrap=True)


def run_table(summary: dict[str, Any]) -> Table:
    """Return the results of a run for people; without test data, nothing about accuracy is known."""
    table = Table(title=f"{summary['scenario']}, {summary['scheme']}, id {summary['scenario_id']}", show_header=False)
    name = metric_name(summary)
    table.add_row("epochs", f"{summary['epochs']:,}")
    score, real = final_score(summary), summary["virtual_seconds"] is None
    clock = ("real" if summary["deployment"]["time_scale"] == 1 else "emulated") if real else "virtual"
    held_out = summary["scored_on"] == HELD_OUT
    where = f", on {HELD_OUT}" if held_out else ""
    table.add_row(f"final {name}", "not known" if score is None else f"{score:.4f}{where}")
    curve = score is not None and not held_out
    for target, seconds in summary["time_to_accuracy"].items():
        limits = summary["time_to_accuracy_band"][target]
        reached = seconds_text(seconds) if curve else "not known"
        if curve and limits and None not in limits:
            reached += f"  (95%: {' to '.join(map(seconds_text, limits))})"
        table.add_row(f"{clock} time to {name} {target}", reached)
    table.add_row(f"{clock} time an epoch", seconds_text(summary["seconds_per_epoch"]))
    for link, bits in summary["bits_sent"].items():
        table.add_row(f"payload {link}", bits_text(bits))
    table.add_row("multiplications on devices", f"{summary['device_macs']:.3g} MAC")
    if summary["gradient_error"] is not None:
        table.add_row("gradient error against plaintext", f"{summary['gradient_error']:.1e}")
    table.add_row("secrecy", summary["verdict"])
    if summary.get("privacy"):
        table.add_row("noise", summary["privacy"]["statement"])
    table.add_row("the server sees", summary["leakage"]["server"])
    table.add_row("wall time", seconds_text(summary["wall_seconds"]))
    return table
