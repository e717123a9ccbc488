"""Masks under the seals of sealed-coded at the paper's size: virtual time, wall time, and what a pool reads.

Trained with masks and without, to 95%, with both solvers; times are means of 250 draws. Where the first epoch is not
computed in advance, masks are not either: those times are planned for the epochs that the trainings took. The pool is
the server with one device, then with all but two, which tell it all their masks.
"""

import time
from typing import Any

import numpy as np

from benchmarks.lying_devices import trained
from benchmarks.measure import show
from codedfl import schemes
from codedfl.engines.virtual import move
from codedfl.network import DelayModel
from codedfl.scenario import Scenario, load
from codedfl.security.attempts import Range
from codedfl.security.scoring import relative_error
from codedfl.security.tap import tap
from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.views.coded import pooled_rows, pooled_view
from codedfl.studies.plan import predict, probe
from codedfl.task import Problem
from codedfl.training.timing import epoch_ends, first_epoch

TARGET, DRAWS = 0.95, 250
SOLVERS = {"gradient-descent": {}, "conjugate-gradients": {"training.solver": "conjugate-gradients"}}
WANTED = 1.02
"""Virtual time to the target with masks, relative to that without."""


def chosen(*, masks: bool, **changes: Any) -> Scenario:
    """The preset ``sealed-coded``, with or without masks."""
    settings = {"schemes.sealed-coded.masks": masks, "training.stop_at_last_target": True, **changes}
    return load("sealed-coded").with_settings(settings)


def main() -> dict[str, Any]:
    """Train, plan and attack with masks and without."""
    problem = Problem.build(chosen(masks=True))
    trained(chosen(masks=True, **{"training.epochs": 2, "training.targets": []}), problem)  # compiles
    results: dict[str, Any] = {name: _times(name, changes, problem) for name, changes in SOLVERS.items()}
    results["set-up"] = {masks: _set_up(problem, masks=masks == "on") for masks in ("on", "off")}
    return results


def _times(solver: str, changes: dict[str, Any], problem: Problem) -> dict[str, Any]:
    states, walls, computing, means = {}, {}, {}, {}
    for masks in (True, False):
        wanted = chosen(masks=masks, **changes)
        began = time.process_time()
        states[masks], walls[masks] = trained(wanted, problem)
        computing[masks] = time.process_time() - began
        history = states[masks].history
        epoch = first_epoch(history.columns["accuracy"], TARGET)
        if epoch is None:
            raise RuntimeError(f"{solver} never reaches {TARGET}")
        delays = DelayModel.create(wanted.fleet, wanted.links)
        ends = epoch_ends([history], delays, epochs=epoch, seed=wanted.timing.seed, draws=DRAWS)
        means["in advance", masks] = float(ends[0, :, -1].mean())
        in_time = wanted.with_settings({"training.first_epoch_offline": False})
        means["in time", masks] = float(
            predict(probe(in_time, problem), in_time, epochs=epoch, draws=DRAWS)[:, -1].mean()
        )
    same = states[True].model.tobytes() == states[False].model.tobytes()
    print(f"  {solver}: epoch {epoch}, models {'equal to the last bit' if same else 'NOT EQUAL'}", flush=True)
    for when, limit in {"in advance": WANTED, "in time": None}.items():
        show(f"{solver}, keys and masks {when}: seconds with masks", means[when, True])
        show(f"{solver}, keys and masks {when}: seconds without", means[when, False])
        show(f"{solver}, keys and masks {when}: ratio", means[when, True] / means[when, False], limit)
    for name, each in {"wall": walls, "CPU": computing}.items():
        show(f"{solver}: {name} seconds with masks", each[True])
        show(f"{solver}: {name} seconds without", each[False])
    macs = {masks: sum(state.history.columns["device_macs"]) for masks, state in states.items()}
    show(f"{solver}: multiplications of all devices, ratio", macs[True] / macs[False])
    seconds = {f"{when}, masks {'on' if masks else 'off'}": value for (when, masks), value in means.items()}
    return {
        "epoch": epoch,
        "equal": same,
        "seconds": seconds,
        "wall": [walls[True], walls[False]],
        "cpu": [computing[True], computing[False]],
        "macs": [*macs.values()],
    }


def _set_up(problem: Problem, *, masks: bool) -> dict[str, Any]:
    """Carry out the set-up with a tap, and let the server pool with one device, and with all but two."""
    scheme: Any = schemes.create(chosen(masks=masks), problem)
    made: list[Any] = [scheme.device(index, shard) for index, shard in enumerate(problem.shards)]
    held = {index: device._masks for index, device in enumerate(made) if masks}
    transcript, server, began = Transcript(), scheme.server(), time.process_time()
    tapped = tap(made, transcript)
    for stage in server.set_up():
        for transfer in stage.transfers:
            move(tapped, transfer, server.receive)
    word = "on" if masks else "off"
    result: dict[str, Any] = {"seconds": time.process_time() - began}
    show(f"masks {word}: CPU seconds of the set-up", result["seconds"])
    place, last = Range("", problem, 0), len(made) - 1
    for name, helpers in {"one device": [0], "all devices but two": list(range(last - 1))}.items():
        rows, pool = pooled_rows(scheme, helpers), {device: held[device] for device in helpers if masks}
        gram = problem.shards[last].gram[np.ix_(rows, rows)]
        view = pooled_view(scheme, transcript, last, helpers, pool)
        error = relative_error(view.words * scheme.formats.gram.data_step, gram)
        guess = place.guess(gram, Exposure(view, last, gram, columns=rows))
        result[name] = {"error": error, "guess": relative_error(guess, gram), "rows": len(rows)}
        show(f"masks {word}: server with {name}, error of {len(rows)} rows", error)
        show(f"masks {word}: server with {name}, error of the public guess", result[name]["guess"])
    return result


if __name__ == "__main__":
    main()
