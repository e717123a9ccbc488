"""``codedfl fer``: the frame error rate of peeling or inactivation."""

from dataclasses import asdict
from typing import Annotated

import typer

from codedfl.cli import common
from codedfl.codes.frame_errors import FrameErrorRate, decoder_error_rates, frame_error_rate
from codedfl.codes.graph import configuration_model, progressive_edge_growth
from codedfl.codes.mdpc import draw_parity_check
from codedfl.errors import UsageError

_CONSTRUCTIONS = {"peg": progressive_edge_growth, "configuration": configuration_model}


def fer_command(
    erasures: Annotated[int, typer.Option(min=0, help="Erased positions.")] = 256,
    trials: Annotated[int, typer.Option(min=1, help="Random sets of erasures, at most.")] = 1_000_000,
    precision: Annotated[float | None, typer.Option(help="Stop at this relative half-width, e.g. 0.1.")] = None,
    n: Annotated[int, typer.Option("--n", min=2, help="Length of the code.")] = 4000,
    k: Annotated[int, typer.Option("--k", min=1, help="Dimension of the code.")] = 2000,
    degree: Annotated[int, typer.Option(min=1, help="Ones in a column of the parity checks.")] = 45,
    construction: Annotated[str, typer.Option(help="peg or configuration.")] = "peg",
    decoder: Annotated[str, typer.Option(help="peeling, or inactivation: how often no decoder succeeds.")] = "peeling",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the code and of the erasures.")] = 0,
    json: common.Json = False,
) -> None:
    """Estimate the frame error rate of a decoder by Monte Carlo on all cores.

    The interval is Wilson's, at 95%. Inactivation fails only where the erased columns are linearly dependent, which
    takes milliseconds to find out for every set that stops peeling; ask for fewer trials.
    """
    if construction not in _CONSTRUCTIONS:
        raise UsageError(f"--construction '{construction}' must be one of {', '.join(_CONSTRUCTIONS)}")
    if decoder not in ("peeling", "inactivation"):
        raise UsageError(f"--decoder '{decoder}' must be one of peeling, inactivation")
    if decoder == "inactivation":
        if precision is not None:
            raise UsageError("--precision is for peeling alone; leave it out or choose --decoder peeling")
        H = draw_parity_check(n, k, degree, seed=seed, construction=construction)
        _show(decoder_error_rates(H, erasures, trials=trials, seed=seed)["inactivation"], json=json)
        return
    graph = _CONSTRUCTIONS[construction](n, n - k, degree, seed=seed)
    with common.bars() as progress:
        report = lambda done, failures: progress("sets of erasures", done, trials)  # noqa: E731
        rate = frame_error_rate(
            graph, erasures, trials=trials, seed=seed, relative_precision=precision, progress=report
        )
    _show(rate, json=json)


def _show(rate: FrameErrorRate, *, json: bool) -> None:
    if json:
        common.print_json(asdict(rate))
        return
    common.console.print(
        f"{rate.failures} failures in {rate.trials:,} sets of {rate.erasures} erasures: "
        f"frame error rate {rate.rate:.3g} (95%: {rate.low:.3g} to {rate.high:.3g})"
    )
