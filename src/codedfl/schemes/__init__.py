"""The schemes: one file each, behind one contract. A new scheme is one file and one line in the list below."""

from typing import Any

from codedfl.errors import ScenarioError, UsageError
from codedfl.scenario import Scenario, register_options
from codedfl.schemes.aggregated.one_shot import OneShot
from codedfl.schemes.aggregated.secagg import SecAgg, SecAggOptions, SecAggSettings, around
from codedfl.schemes.coded.coded_padded import CodedPadded
from codedfl.schemes.coded.parity import Parity
from codedfl.schemes.coded.sealed_coded import SealedCoded
from codedfl.schemes.contract import (
    SERVER,
    AddingScheme,
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
from codedfl.schemes.facts import Facts, agree, describe, known_delays
from codedfl.schemes.plain.asynchronous import Asynchronous
from codedfl.schemes.plain.conventional import Conventional
from codedfl.schemes.plain.deadline import Deadline
from codedfl.schemes.plain.drop_slowest import DropSlowest
from codedfl.schemes.plain.minibatch import Minibatch
from codedfl.schemes.sharing.code_based import CodeBased
from codedfl.schemes.sharing.he import Encrypted
from codedfl.schemes.sharing.policy import Decision, Handover, SharingPolicy
from codedfl.schemes.sharing.sealed import Sealed
from codedfl.solvers import SOLVERS, Solver
from codedfl.task import Problem

__all__ = [
    "SCHEMES",
    "SERVER",
    "AddingScheme",
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
    "kind",
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


for _scheme in (
    Conventional,
    Minibatch,
    DropSlowest,
    Deadline,
    Asynchronous,
    Parity,
    CodedPadded,
    CodeBased,
    Sealed,
    SealedCoded,
    Encrypted,
    SecAgg,
    OneShot,
):
    register(_scheme)


def kind(scenario: Scenario) -> type[Scheme[Any]]:
    """Return the class of the scheme of a scenario: that of a wrapper depends on what stands inside."""
    options = scenario.options()
    if not isinstance(options, SecAggOptions):
        return SCHEMES[scenario.scheme]
    inside = SCHEMES.get(options.inner)
    if inside is None or not issubclass(inside, AddingScheme):
        possible = [name for name, scheme in SCHEMES.items() if issubclass(scheme, AddingScheme)]
        raise ScenarioError(
            f"schemes.secagg.inner = '{options.inner}' must be a scheme whose replies add up to a sum of known size, "
            f"one of {', '.join(possible)}"
        )
    return around(inside)


def check(scenario: Scenario) -> None:
    """Refuse options that do not fit the fleet and a solver that the scheme cannot serve, before data is loaded."""
    scheme = kind(scenario)
    for name in (scenario.scheme, *scenario.options().others):
        scenario.options(name).check_fleet(scenario.fleet.size)
    lacking = _lacking(scheme, SOLVERS[scenario.training.solver])
    if lacking is not None:
        served = [name for name, solver in SOLVERS.items() if _lacking(scheme, solver) is None]
        raise ScenarioError(
            f"training.solver = '{scenario.training.solver}' needs {lacking}, which scheme = '{scenario.scheme}' does "
            f"not give; choose another scheme or one of the solvers {', '.join(served)}"
        )


def serves(scenario: Scenario, solver: str) -> bool:
    """Tell whether the scheme of a scenario gives a solver what it needs."""
    return _lacking(kind(scenario), SOLVERS[solver]) is None


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
    options = scenario.options()
    if isinstance(options, SecAggOptions):
        options = SecAggSettings(own=options, inside=scenario.options(options.inner))
    return kind(scenario)(public, options)
