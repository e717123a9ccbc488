"""``codedfl fer``: the frame error rate of peeling."""

from dataclasses import asdict
from typing import Annotated

import typer

from codedfl.cli import common
from codedfl.codes.frame_errors import frame_error_rate
from codedfl.codes.graph import configuration_model, progressive_edge_growth
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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the code and of the erasures.")] = 0,
    json: common.Json = False,
) -> None:
    """Estimate the frame error rate of peeling by Monte Carlo on all cores.

    The interval is Wilson's, at 95%.
    """
    if construction not in _CONSTRUCTIONS:
        raise UsageError(f"--construction '{construction}' must be one of {', '.join(_CONSTRUCTIONS)}")
    graph = _CONSTRUCTIONS[construction](n, n - k, degree, seed=seed)
    with common.bars() as progress:
        report = lambda done, failures: progress("sets of erasures", done, trials)  # noqa: E731
        rate = frame_error_rate(
            graph, erasures, trials=trials, seed=seed, relative_precision=precision, progress=report
        )
    if json:
        common.print_json(asdict(rate))
        return
    common.console.print(
        f"{rate.failures} failures in {rate.trials:,} sets of {rate.erasures} erasures: "
        f"frame error rate {rate.rate:.3g} (95%: {rate.low:.3g} to {rate.high:.3g})"
    )
