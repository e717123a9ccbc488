"""What a site reads from requests, and the sentences in which it answers those that it does not carry out."""

import hashlib
import importlib.util
import re
from typing import Any

from codedfl import schemes
from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.sums import SumOrder
from codedfl.deploy.protocol.wire import Frame
from codedfl.deploy.site.emulation import TransferEvent
from codedfl.errors import (
    CodedflError,
    DataError,
    EngineError,
    KeyFileError,
    MissingExtraError,
    RefusalError,
    RunDirectoryError,
)
from codedfl.runs.selection import fold_count
from codedfl.scenario import Scenario
from codedfl.schemes import Public
from codedfl.task import Shard
from codedfl.task.folds import RowChoice
from codedfl.task.preparing import COLUMNS, COUNTS, ERRORS, FEATURES

TRAINING = "training"
"""The part of a run that is neither a sum of columns nor a training on folds."""
_LONGEST = 64
"""Length of the longest session name."""

_RUN = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"
"""What a run may be called; it names a folder of records."""

_ACKNOWLEDGED = ("ping", "prepare", "absorb", "carry", "progress", "forget", "keep", "superseded", "repeated")
LEAVING = {"describe": "description of the data", "reply": "reply", "export": "parcels for the server, or none"}
LEAVING |= {"error": "refusal or error"} | dict.fromkeys(_ACKNOWLEDGED, "acknowledgement")
"""What leaves the site in answer to a request, or as an answer of another kind than ``answer``."""

_NOISE = ("numba", "scipy")
"""Libraries by which noise is drawn and accounted for."""

_PRIVATE = (DataError, KeyFileError, RunDirectoryError, MissingExtraError)
"""Errors whose sentences may hold paths, names of columns or cells."""


def told(site: str, error: CodedflError) -> str:
    """Return the sentence that leaves a site: about data and files only that there is something, not what."""
    if isinstance(error, _PRIVATE):
        return f"the data of {site} cannot be used for this run; its owner finds the reason in its log"
    return str(error)


def is_installed(library: str) -> bool:
    """Return whether a library can be imported here, without importing it."""
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:
        return False


def admit_libraries(site: str, scenario: Scenario) -> None:
    """Refuse a run whose devices use libraries that are not installed here."""
    names = (scenario.scheme, *scenario.options().others)
    needs = {library for name in names for library in schemes.SCHEMES[name].needs}
    needs |= set(_NOISE) if scenario.private else set()
    if missing := sorted(library for library in needs if not is_installed(library)):
        raise EngineError(
            f"{site} cannot take part in scheme '{scenario.scheme}'{' with noise' * scenario.private}: "
            f"{needs_study(' and '.join(missing))}"
        )


def needs_study(library: str) -> str:
    """Return what a site lacks, and what its owner can do."""
    return f"it needs {library}, which is not installed there; pip install 'codedfl[study]' at that site"


def run_of(frame: Frame) -> str:
    """Return the server's name of the run, which stays when the run is resumed."""
    name = fields.text(frame.fields, "run")
    if not re.fullmatch(_RUN, name):
        raise EngineError("the server's name of the run is invalid; check that versions agree")
    return name


def part_of(frame: Frame) -> str:
    """Return which part of a run a session is for; a resumed run repeats its parts."""
    sums, rows = frame.fields.get("sums"), frame.fields.get("rows")
    if isinstance(sums, dict):
        return f"sum-{sums.get('number')}"
    return TRAINING if rows is None else f"rows-{hashlib.sha256(repr(rows).encode()).hexdigest()[:16]}"


def admit_order(site: str, scenario: Scenario, order: SumOrder) -> None:
    """Refuse sums that the agreed scenario does not need, or over other rows than those of its folds."""
    chooses, scores = len(scenario.ridges) > 1, scenario.data.held_out > 0
    needed = {
        COLUMNS: scenario.prepared or chooses or scores,
        FEATURES: scenario.prepared or chooses,
        ERRORS: chooses,
        COUNTS: scores,
    }
    if not needed[order.request.kind]:
        raise RefusalError(f"{site} has agreed to a run without sums of {order.request.kind}; check the server")
    admit_rows(site, scenario, order.request.rows)


def admit_rows(site: str, scenario: Scenario, rows: RowChoice | None) -> None:
    """Refuse other folds than the agreed ones: small ones would show single rows."""
    agreed = fold_count(scenario), scenario.partition.seed
    if rows is not None and (len(scenario.ridges) < 2 or (rows.folds, rows.seed) != agreed):
        raise RefusalError(f"{site} has not agreed to a choice among {rows.folds} folds of its rows; check the server")


def admit_preparation(site: str, scenario: Scenario) -> None:
    """Refuse a preparation of columns where the agreed scenario has none."""
    if not scenario.prepared and len(scenario.ridges) < 2:
        raise RefusalError(f"{site} has agreed to columns as they are, and the server prepares them; check the server")


def admit_facts(site: str, scenario: Scenario, shard: Shard, public: Public) -> None:
    """Refuse other public bounds than the clips: number formats that follow from them round noisy sums.

    What the server says about the rows of others can make grid and noise coarser only.
    """
    own = schemes.describe(scenario, shard)
    bounds = own.largest_feature, own.largest_target
    told = {(public.largest_feature, public.largest_target), *public.claims}
    energies = {public.feature_energy, public.target_energy}
    if (told, energies, public.accuracy) != ({bounds}, {None}, scenario.accuracy):
        raise RefusalError(
            f"{site} is told other bounds than the agreed privacy.clip_features and privacy.clip_targets; check the "
            "server"
        )


def event_of(told: fields.Fields) -> TransferEvent | None:
    """Return the event whose delays are emulated, if any."""
    table = told.get("occasion")
    return None if table is None else TransferEvent.from_table(table)


def channel_turns_of(frame: Frame) -> dict[int, list[Any]]:
    """Return, by parcel, whether it waits for the shared channel, and the site and number of the one after it."""
    kinds: list[tuple[type, ...]] = [(int,), (bool,), (str, type(None)), (int, type(None))]
    rows = fields.rows(frame.fields, "channel_turns", kinds) if "channel_turns" in frame.fields else []
    return {parcel: turn for parcel, *turn in rows}


def echo_of(frame: Frame) -> dict[str, Any]:
    """Return session and number of a request, if they are valid."""
    found = {name: frame.fields.get(name) for name in ("session", "number")}
    return {name: value for name, value in found.items() if type(value) in (str, int) and len(str(value)) <= _LONGEST}
