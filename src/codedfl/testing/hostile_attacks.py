"""What a deviating server tries: the findings of a review, one attack each, and what it would learn by them.

The first device is the one attacked, unless it is the one left out of a sum: then it is the last. Scenarios have the
names ``one-shot``, ``secagg`` (of gradients), ``secagg-all`` (the same with all devices as threshold),
``secagg-sealed``, ``sealed-coded`` with one device that is no worker, and ``chosen-ridge`` (``secagg`` with a choice
among ridge weights).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.cipher.masks.pairwise import AgreementKey
from codedfl.data import Preparation
from codedfl.deploy.protocol.envelopes import DeviceKey, Member, SessionKey
from codedfl.deploy.protocol.sums import SumOrder
from codedfl.deploy.protocol.wire import Frame
from codedfl.schemes import Message, Work
from codedfl.schemes.contract import Stage
from codedfl.task.preparing import COLUMNS, SumRequest
from codedfl.testing.hostile import Change, HostileServer, HostileSession, Obtained

Like = Mapping[str, Any]
Act = Callable[[HostileServer, Like], Obtained | None]
VICTIM = 0


@final
@dataclasses.dataclass(frozen=True)
class Deviation:
    """An attack, the number of the finding that it belongs to, and the scenario whose sites it asks."""

    name: str
    finding: int
    scenario: str
    act: Act
    sentence: str
    """Part of the sentence with which sites refuse it."""


ATTACKS: list[Deviation] = []
"""What sites refuse."""
LEAKS: list[Deviation] = []
"""What sites cannot refuse, and the verdict table says so."""


def _attack(name: str, finding: int, scenario: str, sentence: str) -> Callable[[Act], Act]:
    def listed(act: Act) -> Act:
        ATTACKS.append(Deviation(name, finding, scenario, act, sentence))
        return act

    return listed


def _model(like: Like, seed: int = 1) -> Float[np.ndarray, "d c"]:
    """Return some model."""
    return np.random.default_rng(seed).normal(size=(like["features"], like["outputs"]))


def _unit(like: Like) -> Float[np.ndarray, "d c"]:
    """Return the first columns of the identity: the product of a Gram matrix with it are its first columns."""
    return np.eye(like["features"], like["outputs"])


def _with(frame: Frame, **fields: Any) -> Frame:
    return Frame(frame.kind, {**frame.fields, **fields}, frame.arrays)


@_attack("another cohort: the victim and invented devices with invented keys", 1, "one-shot", "another cohort")
def _invented_cohort(server: HostileServer, like: Like) -> Obtained:
    names = [f"invented-{number}" for number in range(1, len(server.sites))]
    cohort = (server.sites[VICTIM], *names)
    server.invent(names, cohort, like)
    return _opened(server.begin("one-shot", sites=cohort), like)


def _opened(session: HostileSession, like: Like) -> Obtained:
    session.epoch(1, _model(like))
    totals = session.server.totals()
    return Obtained("Gram matrix", VICTIM, None if totals is None else totals[0])


@_attack("fewer devices than the least cohort", 1, "one-shot", "another cohort (2 devices, not 5)")
def _few(server: HostileServer, like: Like) -> Obtained:
    changed = server.scenarios["one-shot"].with_settings({"fleet.devices": [{"count": 2, "mac_rate": 25e6}]})
    return _opened(server.begin(changed, sites=server.sites[:2]), like)


@_attack("the devices in another order", 1, "one-shot", "another cohort (device 4 is")
def _order(server: HostileServer, like: Like) -> Obtained:
    *first, one, other = server.sites

    def swapped(site: str, frame: Frame) -> Frame:
        return _with(frame, sites=[*first, other, one]) if site == server.sites[VICTIM] else frame

    return _opened(
        server.begin("one-shot", change=lambda site, f: swapped(site, f) if f.kind == "describe" else f), like
    )


@_attack("only the victim seals, then the identity as model", 1, "sealed-coded", "has no sealed piece of device")
def _only_victim(server: HostileServer, like: Like) -> Obtained:
    session = server.begin("sealed-coded")
    keys, pieces, *others = session.server.set_up()
    own = [transfer for transfer in pieces.transfers if transfer.sender == VICTIM]
    session.server.add_pads([own[0].grant])  # type: ignore[attr-defined]
    for stage in (keys, Stage(own), *others):
        session.carry(stage)
    zero = session.epoch(1, np.zeros_like(_unit(like)))
    return Obtained("columns of the Gram matrix", VICTIM, session.epoch(2, _unit(like)) - zero)


@_attack("a question without masks", 1, "secagg-sealed", "without masks")
def _unmasked(server: HostileServer, like: Like) -> Obtained | None:
    session = server.begin("secagg-sealed")
    request = session.scheme.wrapped[0].server().ask(2, _unit(like)).requests[VICTIM]
    session.replies(2, {VICTIM: request})
    return Obtained("columns of the Gram matrix", VICTIM)


@_attack("all five, then four in one epoch", 1, "secagg", "one sum per epoch")
def _five_then_four(server: HostileServer, like: Like) -> Obtained:
    session, model = server.begin("secagg"), _model(like)
    return _without_last(session, model, session.epoch(1, model))


def _without_last(
    session: HostileSession, model: Float[np.ndarray, "d c"], total: Float[np.ndarray, "d c"]
) -> Obtained:
    """Subtract the sum over all devices but the last from that over all."""
    *others, last = session.devices
    return Obtained("gradient", last, total - session.epoch(1, model, only=others), model)


@_attack("an epoch again without a device, in a new session of the run", 1, "secagg", "refuses one with 0,1,2,3")
def _resumed(server: HostileServer, like: Like) -> Obtained:
    model, run = _model(like), "a-resumed-run"
    total = server.begin("secagg", run=run).epoch(1, model)
    return _without_last(server.begin("secagg", run=run), model, total)


def _next_epoch(server: HostileServer, like: Like, scenario: str) -> Obtained:
    session, model = server.begin(scenario), _model(like)
    total, (*others, last) = session.epoch(1, model), session.devices
    return Obtained("gradient", last, total - session.epoch(2, model, only=others), model)


@_attack("a device called lost after an epoch, and the same model again", 1, "secagg-all", "the threshold of 5")
def _lost_of_all(server: HostileServer, like: Like) -> Obtained:
    return _next_epoch(server, like, "secagg-all")


LEAKS.append(
    Deviation(
        "a device called lost after an epoch, where the threshold allows for losses",
        *(10, "secagg", lambda server, like: _next_epoch(server, like, "secagg"), ""),
    )
)


@_attack("decreasing epochs", 1, "secagg", "rounds must follow each other")
def _decreasing(server: HostileServer, like: Like) -> None:
    session = server.begin("secagg")
    for epoch in (2, 1):
        session.epoch(epoch, _model(like))


@_attack("the threshold of two that the server dictates", 2, "secagg", "fewer than the threshold of 4")
def _dictated(server: HostileServer, like: Like) -> Obtained:
    def two(turn: int, device: int, request: Message) -> Message:
        return {"asked": np.array(2, np.int32)} if turn == 0 else request

    session, model = server.begin("secagg"), _model(like)
    return Obtained("gradient", VICTIM, session.epoch(1, model, only=[0, 1], change=two), model)


@_attack("keys of secure aggregation that the server invents", 2, "secagg", "not signed by its pinned key")
def _invented_keys(server: HostileServer, like: Like) -> None:
    made = [np.frombuffer(AgreementKey().public, np.uint8) for _ in range(2 * len(server.sites))]

    def invented(turn: int, device: int, request: Message) -> Message:
        if turn != 1:
            return request
        keys = np.stack(made).reshape(len(server.sites), 2, -1)
        keys[device] = request["keys"][device]
        return {**request, "keys": keys}

    server.begin("secagg").epoch(1, _model(like), change=invented)


@_attack("keys of devices that the server invents", 2, "secagg", "has pinned")
def _invented_members(server: HostileServer, like: Like) -> None:
    def invented(site: str, frame: Frame) -> Frame:
        if frame.kind != "prepare":
            return frame
        session = str(frame.fields["session"])
        others = [name for name in server.sites if name != site]
        made = {name: Member.of(DeviceKey(), SessionKey(), session, name).to_hex() for name in others}
        return _with(frame, members={**frame.fields["members"], **made})

    server.begin("secagg", change=invented)


@_attack("two devices told different survivors", 2, "secagg", "fewer than the threshold of 4")
def _two_lists(server: HostileServer, like: Like) -> None:
    session = server.begin("secagg")
    everyone = list(session.devices)
    question = session.server.ask(1, _model(like))
    replies: dict[int, Message] = {}
    for _ in range(3):
        replies = session.replies(1, question.requests)
        following = session.server.follow_up(1, replies, Work())
        if following is not None:
            question = following
    lists = {device: everyone[:-1] if device < 2 else everyone[1:] for device in everyone}
    signed = session.replies(1, {d: {"listed": np.array(lists[d], np.int32)} for d in everyone})
    requests: dict[int, Message] = {}
    for device, survivors in lists.items():
        signers = [each for each in everyone if lists[each] == survivors]
        requests[device] = {
            "survivors": np.array(survivors, np.int32),
            "dropped": np.array([each for each in everyone if each not in survivors], np.int32),
            "@signers": np.array(signers, np.int32),
            "@signatures": np.stack([signed[each]["@signature"] for each in signers]),
        }
    session.replies(1, requests)


@_attack("a model of another shape", 1, "secagg", "finite numbers of the agreed format")
def _shape(server: HostileServer, like: Like) -> None:
    def wide(turn: int, device: int, request: Message) -> Message:
        return {**request, "model": np.eye(like["features"])} if turn == 2 else request

    server.begin("secagg").epoch(1, _model(like), change=wide)


@_attack("residues outside the field", 5, "sealed-coded", "The model for device")
def _residues(server: HostileServer, like: Like) -> None:
    session = _set_up(server)
    session.epoch(1, _model(like))
    large = np.uint64(session.scheme.formats.field.modulus)  # type: ignore[attr-defined]
    session.epoch(2, _model(like), change=lambda turn, device, request: {"model": request["model"] * 0 + large})


def _set_up(server: HostileServer, change: Change | None = None, first: int = 0) -> HostileSession:
    session = server.begin("sealed-coded", change=change)
    for stage in session.server.set_up()[first:]:
        session.carry(stage)
    return session


@_attack("sealed data without masks", 1, "sealed-coded", "before it has the mask key of device")
def _without_masks(server: HostileServer, like: Like) -> None:
    _set_up(server, first=1)


@_attack("a reply that the site has no part in", 1, "sealed-coded", "is no worker")
def _no_part(server: HostileServer, like: Like) -> None:
    session = _set_up(server)
    session.epoch(1, _model(like))
    question = session.server.ask(2, _model(like))
    (other,) = set(session.devices) - set(question.requests)
    session.replies(2, {other: next(iter(question.requests.values()))})


@_attack("parcels addressed to the server", 1, "secagg-sealed", "to each other only")
def _to_server(server: HostileServer, like: Like) -> None:
    session = server.begin("secagg-sealed")
    ((transfer, *_),) = (stage.transfers for stage in session.server.set_up())
    session.ask(session.export(transfer.sender, None, transfer.grant))


@_attack("grants in clear", 1, "secagg-sealed", "not encrypted under its key")
def _clear_grants(server: HostileServer, like: Like) -> None:
    session = server.begin("secagg-sealed")
    ((transfer, *_),) = (stage.transfers for stage in session.server.set_up())
    session.ask(session.export(transfer.sender, server.sites[transfer.recipient], transfer.grant, sealed=False))


@_attack("a parcel without a seal", 1, "secagg-sealed", "sends no data in clear")
def _unsealed(server: HostileServer, like: Like) -> None:
    session = server.begin("secagg-sealed")
    session.ask(session.export(VICTIM, server.sites[1], {"moments": np.array(1, np.int8)}))


@_attack("more epochs than agreed", 1, "secagg", "refuses epoch")
def _more_epochs(server: HostileServer, like: Like) -> None:
    server.begin("secagg").epoch(server.scenarios["secagg"].training.epochs + 1, _model(like))


@_attack("minibatch with as many parts as rows", 3, "secagg", "has not agreed to scheme 'minibatch'")
def _single_rows(server: HostileServer, like: Like) -> None:
    changes = {"scheme": "minibatch", "schemes.minibatch.parts": like["rows"]}
    server.begin(server.scenarios["secagg"].with_settings(changes)).epoch(1, _model(like))


def _terms(name: str, finding: int, base: str, changes: Mapping[str, Any]) -> None:
    """List an attack that asks for other terms than the agreed ones."""

    def act(server: HostileServer, like: Like) -> Obtained:
        session, model = server.begin(server.scenarios[base].with_settings(dict(changes))), _model(like)
        return Obtained("gradient", VICTIM, session.replies(1, {VICTIM: {"model": model}})[VICTIM]["gradient"], model)

    ATTACKS.append(Deviation(name, finding, base, act, "has not agreed to scheme"))


_terms("another scheme", 3, "secagg", {"scheme": "conventional"})
_terms("a scenario with more epochs", 3, "secagg", {"training.epochs": 10_000})
_terms("another threshold in the scenario", 3, "secagg", {"schemes.secagg.threshold": 3})
_terms("another feature map", 3, "secagg", {"features.kind": "rbf", "features.dimension": 8, "features.gamma": 0.1})


@_attack("models of zeros for all devices but one", 1, "secagg", "An envelope does not open")
def _two_models(server: HostileServer, like: Like) -> Obtained:
    def zeros(device: int, request: Message) -> Message:
        return request if device == VICTIM else {**request, "model": 0 * request["model"]}

    session = server.begin("secagg")
    nothing = session.epoch(1, 0 * _unit(like))
    return Obtained("columns of the Gram matrix", VICTIM, session.epoch(2, _unit(like), inner=zeros) - nothing)


@_attack("a number format that rounds all replies but one to zero", 1, "secagg", "another request than the one")
def _two_forms(server: HostileServer, like: Like) -> Obtained:
    session, model = server.begin("secagg"), _model(like)

    def coarse(turn: int, device: int, request: Message) -> Message:
        form = {"form": np.array(-40, np.int16)}
        return {**request, **form} if turn == 2 and device != VICTIM else request

    return Obtained("gradient", VICTIM, session.epoch(1, model, change=coarse), model)


@_attack("bounds that round all data but one device's to zero", 1, "one-shot", "not signed by its pinned key")
def _two_bounds(server: HostileServer, like: Like) -> Obtained:
    return _opened(server.begin("one-shot", change=_coarse(server)), like)


def _coarse(server: HostileServer) -> Change:
    bounds = {"largest_feature": 1e9, "largest_target": 1e9, "feature_energy": None, "target_energy": None}

    def coarse(site: str, frame: Frame) -> Frame:
        if frame.kind != "prepare" or site == server.sites[VICTIM]:
            return frame
        kept = {name: value for name, value in frame.fields.items() if not name.endswith("_claims")}
        return Frame(frame.kind, kept | bounds, frame.arrays)

    return coarse


@_attack("the same bounds where sealed data are added", 1, "sealed-coded", "not encrypted by it for")
def _two_sealed_bounds(server: HostileServer, like: Like) -> None:
    _set_up(server, _coarse(server))


@_attack("columns divided by 1e12 at all devices but one", 3, "secagg", "agreed to columns as they are")
def _two_preparations(server: HostileServer, like: Like) -> Obtained:
    same = Preparation.identity(like["inputs"], like["outputs"])
    tiny = dataclasses.replace(same, unit=1e12 * same.unit, target_unit=1e12 * same.target_unit)

    def shrunk(site: str, frame: Frame) -> Frame:
        if frame.kind != "describe":
            return frame
        return _with(frame, preparation=(same if site == server.sites[VICTIM] else tiny).to_table())

    session, model = server.begin("secagg", change=shrunk), _model(like)
    return Obtained("gradient", VICTIM, session.epoch(1, model), model)


@_attack("one row of each device, in a fold that nobody agreed to", 3, "chosen-ridge", "choice among 300 folds")
def _one_row(server: HostileServer, like: Like) -> None:
    same = Preparation.identity(like["inputs"], like["outputs"]).to_table()
    rows = {"fold": 0, "folds": 300, "seed": 0, "held_out": True}

    def chosen(site: str, frame: Frame) -> Frame:
        return _with(frame, preparation=same, rows=rows) if frame.kind == "describe" else frame

    server.begin("chosen-ridge", change=chosen).epoch(1, _model(like))


@_attack("sums of columns where the scenario needs none", 3, "secagg", "agreed to a run without sums of columns")
def _sums(server: HostileServer, like: Like) -> None:
    order = {"kind": "columns", "number": 0, "preparation": None, "rows": None}

    def summing(site: str, frame: Frame) -> Frame:
        return _with(frame, sums=order) if frame.kind == "describe" else frame

    server.begin("secagg", change=summing)


@_attack("sums of columns of all five, then of four", 1, "chosen-ridge", "columns and folds over all 5 devices only")
def _sums_of_four(server: HostileServer, like: Like) -> Obtained:
    scales, totals = np.full(3 * like["inputs"] + 2 * like["outputs"] + 1, 1e9), []
    for number, devices in enumerate((5, 4)):
        session = server.begin("chosen-ridge", added=SumOrder(SumRequest(COLUMNS), number, scales))
        totals.append(session.epoch(1, np.zeros((2, len(scales))), only=range(devices))[0] * -scales)
    return Obtained("sums of columns", 4, (totals[0] - totals[1])[None, : like["inputs"]])
