"""The schemes: one file each, behind one contract. A new scheme is one file and one line in the list below."""

from typing import Any

from codedfl.errors import ScenarioError, UsageError
from codedfl.scenario import Scenario, register_options
from codedfl.schemes.code_based import CodeBased
from codedfl.schemes.contract import (
    SERVER,
    Device,
    Layout,
    Leakage,
    Message,
    PlacingServer,
    Public,
    Round,
    Scheme,
    Server,
    SharingDevice,
    SharingScheme,
    SharingServer,
    StandingServer,
    SummedServer,
    Transfer,
    Work,
    layout,
    message_bits,
)
from codedfl.schemes.conventional import Conventional
from codedfl.schemes.drop_slowest import DropSlowest
from codedfl.schemes.facts import Facts, agree, describe, known_delays
from codedfl.schemes.minibatch import Minibatch
from codedfl.schemes.sealed import Sealed
from codedfl.schemes.sealed_coded import SealedCoded
from codedfl.schemes.sharing import Decision, Handover, SharingPolicy
from codedfl.solvers import SOLVERS, Solver
from codedfl.task import Problem

__all__ = [
    "SCHEMES",
    "SERVER",
    "Decision",
    "Device",
    "Facts",
    "Handover",
    "Layout",
    "Leakage",
    "Message",
    "PlacingServer",
    "Public",
    "Round",
    "Scheme",
    "Server",
    "SharingDevice",
    "SharingPolicy",
    "SharingScheme",
    "SharingServer",
    "StandingServer",
    "SummedServer",
    "Transfer",
    "Work",
    "agree",
    "build",
    "check",
    "create",
    "describe",
    "known_delays",
    "layout",
    "message_bits",
    "register",
    "serves",
]

SCHEMES: dict[str, type[Scheme[Any]]] = {}


def register(scheme: type[Scheme[Any]]) -> None:
    """Make a scheme known by its name, to scenarios and to the command line."""
    if scheme.name in SCHEMES:
        raise UsageError(f"a scheme called '{scheme.name}' is registered already; choose another name")
    SCHEMES[scheme.name] = scheme
    register_options(scheme.name, scheme.options_type)


for _scheme in (Conventional, Minibatch, DropSlowest, CodeBased, Sealed, SealedCoded):
    register(_scheme)


def check(scenario: Scenario) -> None:
    """Refuse options that do not fit the fleet and a solver that the scheme cannot serve, before data is loaded."""
    scenario.options().check_fleet(scenario.fleet.size)
    scheme = SCHEMES[scenario.scheme]
    lacking = _lacking(scheme, SOLVERS[scenario.training.solver])
    if lacking is not None:
        served = [name for name, solver in SOLVERS.items() if _lacking(scheme, solver) is None]
        raise ScenarioError(
            f"training.solver = '{scenario.training.solver}' needs {lacking}, which scheme = '{scenario.scheme}' does "
            f"not give; choose another scheme or one of the solvers {', '.join(served)}"
        )


def serves(scheme: str, solver: str) -> bool:
    """Tell whether a scheme gives a solver what it needs."""
    return _lacking(SCHEMES[scheme], SOLVERS[solver]) is None


def _lacking(scheme: type[Scheme[Any]], solver: type[Solver]) -> str | None:
    """Say what the solver needs and the scheme does not give."""
    if solver.needs_sums and not scheme.sums:
        return "the sums over all data at the server"
    if solver.needs_exact and not scheme.exact:
        return "the gradient of all data in every epoch"
    return None


def create(scenario: Scenario, problem: Problem) -> Scheme[Any]:
    """Make the scheme of a scenario for the shards of a problem."""
    return build(scenario, agree(scenario, [describe(scenario, shard) for shard in problem.shards]))


def build(scenario: Scenario, public: Public) -> Scheme[Any]:
    """Make the scheme of a scenario from what every party knows."""
    check(scenario)
    return SCHEMES[scenario.scheme](public, scenario.options())
