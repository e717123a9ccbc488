"""``codedfl deploy``: the same scenario on real processes, of this machine or of real hosts."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from threadpoolctl import threadpool_limits

from codedfl import data, schemes
from codedfl.cli import common
from codedfl.cli.deploy import members
from codedfl.cli.deploy.board import board, read_board
from codedfl.cli.deploy.board import live as board_shown
from codedfl.cli.deploy.members import SCENARIO
from codedfl.cli.live import (
    Live,
    LiveChoice,
    LiveHost,
    LivePort,
    checked_live,
    deployment_page,
    finish,
    followed,
    show_finished,
)
from codedfl.cli.live.deployment import ON_THE_SERVER
from codedfl.cli.run import run_table
from codedfl.deploy.flare import processes as kit_processes
from codedfl.deploy.flare.kits import load_kits
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.processes import Status, kits_of, reviver, running, threads_each
from codedfl.deploy.flare.sites import read_site
from codedfl.deploy.server import fleet
from codedfl.deploy.server.deployment import STATUS
from codedfl.deploy.server.kit_readme import SHARED_MACHINE, kit_readme, kit_warnings
from codedfl.deploy.server.membership import UNPINNED, device_key, is_device, is_server, read_pins
from codedfl.errors import EngineError, LostDevicesError, UsageError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.storage import make_folder, write_text

deploy_app = typer.Typer(
    help="The same scenario on real processes or hosts (NVIDIA FLARE).", no_args_is_help=True, rich_markup_mode=None
)

Kits = Annotated[Path, typer.Argument(metavar="DIR", help="A folder of start-up kits, or one kit.")]


@deploy_app.command("local")
def local_command(
    scenario: common.ScenarioArgument = None,
    named: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    out: common.Out = None,
    time_scale: Annotated[
        float | None,
        typer.Option("--emulate", metavar="SCALE", help="Emulate the scenario's delays, SCALE real seconds for one."),
    ] = None,
    kernel_links: Annotated[
        bool, typer.Option("--kernel-links", help="With --emulate: slow the links by namespaces and tc (root only).")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Also train in virtual time; compare the models.")] = False,
    live: Live = False,
    live_port: LivePort = None,
    live_host: LiveHost = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Train on this machine: a server and devices as processes of their own, with mutual TLS on loopback.

    The scenario is sealed-coded unless named. All processes that are started are ended; a training that was stopped is
    resumed. The page of --live needs the extra 'explore' and ends with the command.
    """
    choice = checked_live(live, live_port, live_host)
    chosen = common.chosen_scenario(common.chosen_name(scenario, named, "sealed-coded"), changes, devices)
    schemes.check(chosen)  # before processes are started
    if time_scale is not None and not time_scale > 0:
        raise UsageError(f"--emulate {time_scale:g} must be above 0, for example 0.1: ten times faster than told")
    if kernel_links and time_scale is None:
        raise UsageError("--kernel-links is for emulated fleets; add --emulate SCALE, for example --emulate 1")
    usual, how = runs.default_directory(chosen), "deployed" if time_scale is None else "emulated"
    place = out or usual.with_name(f"{usual.name}-{how}")
    common.warn_if_broken(chosen)
    if runs.finished(chosen, place, on_sites=True):
        clock = "real" if time_scale in (None, 1) else "emulated"
        run = show_finished(choice, chosen, place, fleet.fleet_folder(place), clock)
    else:
        run = _train_here(chosen, place, time_scale, kernel_links, choice)
    verified = _verify(chosen, run) if verify else {}
    if json:
        common.print_json(run.summary | {"run": str(place)} | ({"verified": verified} if verify else {}))
        return
    common.console.print(run_table(run.summary))
    for name, value in verified.items():
        common.console.print(f"{name.replace('_', ' ')}: {value}", soft_wrap=True)
    common.console.print(f"run directory: {place}", soft_wrap=True)


def _train_here(
    scenario: Scenario, place: Path, time_scale: float | None, kernel_links: bool, choice: LiveChoice | None
) -> Run:
    need_flare()
    if scenario.data.elsewhere:
        raise UsageError("data.source = 'sites' leaves data to the hosts; use `codedfl deploy kit` or name a data set")
    if scenario.data.named or scenario.data.tabular:
        with common.bars() as progress:  # once, and not by all sites at the same time
            data.fetch(scenario.data.source, progress)
    folder, scale = fleet.fleet_folder(place), time_scale or 1.0
    make_folder(place.parent)
    try:
        with deployment_page(choice, scenario, place, folder, time_scale=scale) as page:
            with (
                fleet.local_fleet(scenario, place, time_scale=time_scale, kernel_links=kernel_links) as kits,
                board_shown(kits.server / STATUS) as write,
                followed(page, kits.server / STATUS, write) as report,
            ):
                report("starting processes")
                run = fleet.train(kits, scenario, run=place, time_scale=scale, report=report)
            finish(page, run.summary, place)
        return run
    except (EngineError, LostDevicesError) as error:
        raise type(error)(f"{error} (logs are in '{folder}')") from None


def _verify(scenario: Scenario, run: Run) -> dict[str, Any]:
    """Train in virtual time, computing with as many threads as sites do, and compare the models."""
    place = run.path.with_name(f"{run.path.name}.virtual")
    sites = [Path(name) for name in ("server", *run.summary["deployment"]["sites"])]
    with common.bars() as progress, threadpool_limits(threads_each(sites)):
        virtual = runs.execute(scenario, place, progress=progress, summed=False)
    difference = runs.model_difference(run, virtual)
    return {
        "difference_to_virtual_time": difference,
        "equal_to_the_last_bit": difference == 0,
        "virtual_run": str(place),
    }


@deploy_app.command("kit")
def kit_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the start-up kits.")],
    scenario: common.ScenarioOption = "sealed-coded",
    host: Annotated[str, typer.Option("--host", help="Name or address where devices reach the server.")] = "localhost",
    port: Annotated[int | None, typer.Option("--port", help="The server's port.  [default: a free one]")] = None,
    sites: Annotated[list[str] | None, typer.Option("--site", metavar="NAME", help="Site's name (repeatable).")] = None,
    devices: common.Devices = None,
    make_keys: Annotated[
        bool, typer.Option("--make-keys", help="Make device keys here instead of at the devices; for trials only.")
    ] = False,
    own_keys: Annotated[bool, typer.Option("--own-keys", help="The default now; has no effect.", hidden=True)] = False,
    authority: Annotated[
        bool, typer.Option("--authority/--no-authority", help="Keep the key that certifies further sites.")
    ] = True,
    changes: common.Set = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Make start-up kits for real hosts, and print what to do with them."""
    size = len(sites) if devices is None and sites else devices
    chosen = common.chosen_scenario(scenario or "sealed-coded", changes, size)
    common.warn_if_broken(chosen)
    if own_keys:
        common.warn("--own-keys has no effect: device keys are made at the devices unless --make-keys is given")
    kits = fleet.make_fleet(
        folder, chosen, sites=sites, host=host, port=port, own_keys=not make_keys, keep_authority=authority
    )
    for sentence in kit_warnings(kits):
        common.warn(sentence)
    write_text(folder / SCENARIO, chosen.to_toml())
    text = kit_readme(kits, chosen, own_keys=not make_keys)
    write_text(folder / "README.md", text)
    if json:
        common.print_json({"folder": str(folder), "host": kits.host, "port": kits.port, "sites": list(kits.sites)})
    else:
        common.console.print(text, soft_wrap=True)


@deploy_app.command("start")
def start_command(
    folder: Kits,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, start again what dies, and end all on Ctrl-C or SIGTERM.")
    ] = False,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Start the process of a kit on this machine, or of all kits in a folder."""
    need_flare()
    if not (kits := _kits(folder)):
        raise UsageError(f"'{folder}' is a run directory; name start-up kits, or go on with `codedfl deploy local`")
    _check_keys(kits)
    if foreground:
        revive = reviver(kits, most=1_000_000)
        with running(kits):
            while True:
                time.sleep(2.0)
                revive()
    for kit in kits:
        kit_processes.start(kit, threads_each(kits))
    _show(folder, kits, json)


@deploy_app.command("train")
def train_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of start-up kits, with that of the admin.")],
    scenario: common.ScenarioArgument = None,
    named: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    live: Live = False,
    live_port: LivePort = None,
    live_host: LiveHost = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Have the server of some kits train, and wait; after a loss the same command resumes it.

    The scenario is the one that the kits were made for unless named. The page of --live needs the extra 'explore', ends
    with the command, and shows devices where the server's kit is on this machine.
    """
    choice = checked_live(live, live_port, live_host)
    need_flare()
    kits = load_kits(folder)
    chosen = common.chosen_scenario(common.chosen_name(scenario, named, str(folder / SCENARIO)), changes, devices)
    common.warn_if_broken(chosen)
    if chosen.fleet.size != len(kits.sites):
        raise UsageError(
            f"the scenario has {chosen.fleet.size} devices but there are {len(kits.sites)} kits; match them"
        )
    status = kits.server / STATUS
    with deployment_page(choice, chosen, ON_THE_SERVER, folder) as page:
        with board_shown(status) as write, followed(page, status, write) as report:
            result = fleet.submit(kits, chosen, report=report)
        finish(page, result["summary"], result["run"])
    if json:
        common.print_json(result["summary"] | {"run": result["run"]})
        return
    common.console.print(run_table(result["summary"]))
    common.console.print(f"run directory, on the server: {result['run']}", soft_wrap=True)


@deploy_app.command("status")
def status_command(folder: Kits, json: common.Json = False) -> None:
    """Show which processes of some kits run on this machine, and on the server's how the training stands."""
    need_flare()
    _show(folder, _kits(folder), json)


@deploy_app.command("stop")
def stop_command(folder: Kits, json: common.Json = False) -> None:
    """End all processes of some kits on this machine; a training goes on from its checkpoint when it is begun again."""
    need_flare()
    kits = _kits(folder)
    fleet.end(kits)
    _show(folder, kits, json)


for name, command in members.COMMANDS.items():
    deploy_app.command(name)(command)


def _kits(folder: Path) -> list[Path]:
    """Return the kits that a folder means: one, or all of a folder, or those of a run directory while it runs here."""
    if (folder / "startup").is_dir():
        return [folder.resolve()]
    if (folder / "kits.json").exists():
        return kits_of(load_kits(folder))
    beside = fleet.fleet_folder(folder.resolve())
    if beside.is_dir():  # whether the run itself has begun or not
        return kits_of(load_kits(beside))
    return [] if (folder / SCENARIO).exists() else kits_of(load_kits(folder))


def _check_keys(kits: Sequence[Path]) -> None:
    """Make the keys that devices lack and print their fingerprints; warn of what is not protected."""
    servers, devices = ([kit for kit in kits if is_one(kit)] for is_one in (is_server, is_device))
    if servers and devices:
        common.warn(SHARED_MACHINE)
    for kit in servers:
        if read_pins(read_site(kit))[0] is None:
            common.warn(f"{kit}: {UNPINNED}")
    for kit in devices:
        key, made = device_key(kit)
        if made:
            sentence = f"a key was made; tell the owners of all other devices its print, {key.fingerprint}"
            common.errors.print(f"{kit}: {sentence}", soft_wrap=True)


def _show(folder: Path, kits: Sequence[Path], json: bool) -> None:
    found = kit_processes.status(kits)
    boards = [table for kit in kits if (table := read_board(kit / STATUS)) is not None]
    if json:
        rows = [{"kit": str(one.kit), "pid": one.pid, "jobs": list(one.jobs), "died": one.died} for one in found]
        common.print_json({"processes": rows, "training": boards[0] if boards else None})
        return
    if not kits:
        common.console.print(f"no processes run for '{folder}'", soft_wrap=True)
        return
    common.console.print(_processes(found))
    for table in boards:
        common.console.print(board(table))


def _processes(found: Sequence[Status]) -> Table:
    columns = ("kit", "state", "process", "working on a job")
    table = Table(*columns, title="processes on this machine", title_justify="left")
    for one in found:
        stopped = "does not run" if one.kit.is_dir() else "not on this machine"  # kits move to their hosts
        state = "runs" if one.pid else ("died" if one.died else stopped)
        table.add_row(one.kit.name, state, str(one.pid or ""), ", ".join(map(str, one.jobs)))
    return table
