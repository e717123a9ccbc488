"""Small problems and fleets, trainings that can be watched, and the rounding bounds that gradients are held to."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.engines.virtual import move
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, Message, Round, Scheme, Server, Work
from codedfl.task import Problem, Shard
from codedfl.training import State, train

PAPER_FLEET = [
    {"count": 10, "mac_rate": 25e6},
    {"count": 5, "mac_rate": 5e6},
    {"count": 5, "mac_rate": 2.5e6},
    {"count": 5, "mac_rate": 1.25e6},
]


def scenario(changes: Mapping[str, Any] | None = None) -> Scenario:
    """Return the paper's fleet and a few epochs of gradient descent; ``changes`` are dotted keys.

    The data are digits as they are, or mapped where the changes are about ``features``.
    """
    training = {"epochs": 5, "learning_rate": 0.05}
    base = Scenario.from_table({"data": {"source": "digits"}, "fleet": {"devices": PAPER_FLEET}, "training": training})
    mapped = any(key.startswith("features.") for key in changes or {})
    direct = {} if mapped else {"features.kind": "none"}
    return base.with_settings({"training.solver": "gradient-descent", **direct, **(changes or {})})


def problem(
    sizes: Sequence[int],
    *,
    features: int = 6,
    outputs: int = 3,
    dtype: str = "float64",
    ridge: float = 0.01,
    kind: str = "classification",
    seed: int = 0,
) -> Problem:
    """Make random shards of these sizes; classes can be told apart, regression targets are linear in the features."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((features, outputs))

    def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((count, features)).astype(dtype)
        scores = x @ truth + 0.1 * rng.standard_normal((count, outputs))
        return x, np.argmax(scores, axis=1) if kind == "classification" else scores.astype(dtype)

    shards = []
    for count in sizes:
        x, y = samples(count)
        shards.append(Shard(x, np.eye(outputs, dtype=dtype)[y] if kind == "classification" else y))
    x_test, y_test = samples(32)
    return Problem(tuple(shards), x_test, y_test, kind, ridge)


def trained(
    given: Problem,
    wanted: Scenario,
    state: State | None = None,
    after_epoch: Callable[[State], None] = lambda state: None,
    last_epochs: Mapping[int, int] | None = None,
) -> State:
    """Train in virtual time, from the start or from a state; devices leave as the fleet says, or as told."""
    scheme = schemes.create(wanted, given)
    state = state or State.fresh(given)
    devices = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    delays = DelayModel.create(wanted.fleet, wanted.links)
    leaving = wanted.fleet.last_epochs if last_epochs is None else last_epochs
    timing = wanted.timing
    engine = VirtualEngine(devices, delays, seed=timing.seed, draw=timing.draw, now=state.now, last_epochs=leaving)
    return train(given, wanted, scheme, engine, state, after_epoch)


@dataclass(frozen=True)
class Seen:
    """What went through the server in one epoch: the first question, the replies to the last, and all of both."""

    epoch: int
    model: np.ndarray
    round: Round
    replies: Mapping[int, Message]
    gradient: np.ndarray
    questions: Sequence[tuple[Round, Mapping[int, Message]]]


def spied(monkeypatch: Any, wanted: Scenario) -> list[Seen]:
    """Let every server of the scenario's scheme be watched from now on; the list fills up as epochs pass."""
    seen: list[Seen] = []
    scheme = SCHEMES[wanted.scheme]
    make = scheme.server

    def watched(self: Scheme[Any]) -> Server:
        server = make(self)
        asked: dict[int, tuple[np.ndarray, list[Round]]] = {}
        answered: dict[int, list[Mapping[int, Message]]] = {}
        ask, follow_up, combine = server.ask, server.follow_up, server.combine

        def spy_ask(epoch: int, model: np.ndarray) -> Round:
            asked[epoch], answered[epoch] = (model, [ask(epoch, model)]), []
            return asked[epoch][1][0]

        def spy_follow_up(epoch: int, replies: Mapping[int, Message], work: Work) -> Round | None:
            answered[epoch].append(dict(replies))
            further = follow_up(epoch, replies, work)
            asked[epoch][1].extend([] if further is None else [further])
            return further

        def spy_combine(epoch: int, replies: Mapping[int, Message], work: Work) -> np.ndarray:
            gradient = combine(epoch, replies, work)
            model, rounds = asked[epoch]
            questions = list(zip(rounds, answered[epoch], strict=True))
            seen.append(Seen(epoch, model, rounds[0], dict(replies), gradient, questions))
            return gradient

        server.ask, server.combine = spy_ask, spy_combine  # type: ignore[method-assign]
        server.follow_up = spy_follow_up  # type: ignore[method-assign]
        return server

    monkeypatch.setattr(scheme, "server", watched)
    return seen


def gamma(operations: int, dtype: Any) -> float:
    """Return the bound k u / (1 - k u) on the relative error of k roundings in a chain, u = eps / 2 (Higham, 3.1).

    It holds for a sum of products in whatever order BLAS adds, relative to the sum of absolute values.
    """
    unit = float(np.finfo(dtype).eps) / 2
    assert operations * unit < 0.5
    return operations * unit / (1 - operations * unit)


def plain_gradient(
    shards: Sequence[Shard], model: np.ndarray, rows: Sequence[slice] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean gradient of the data term from the samples themselves, and how far a scheme may be from it.

    Reference: 1/m * sum X^T (X Theta - Y) in float64. A device that works in ``dtype`` with n rows and d features
    makes at most d + n + 1 roundings on the way to any entry: a product with X (d), the subtraction (1), a product
    with X^T (n); or a Gram matrix (n), its product with Theta (d), the subtraction. Each is relative to the same
    expression in absolute values. The server's float64 sum over N devices and its division add N + 1 more, and the
    reference has as many roundings of its own: hence twice gamma of them all.
    """
    rows = rows or [slice(None)] * len(shards)
    parts = [(shard.x[cut].astype(float), shard.y[cut].astype(float)) for shard, cut in zip(shards, rows, strict=True)]
    samples = sum(len(x) for x, _ in parts)
    theta = model.astype(shards[0].x.dtype).astype(float)
    value = sum(x.T @ (x @ theta - y) for x, y in parts) / samples
    size = sum(abs(x).T @ (abs(x) @ abs(theta) + abs(y)) for x, y in parts) / samples
    roundings = model.shape[0] + max(len(x) for x, _ in parts) + len(shards) + 2
    return value, 2 * gamma(roundings, shards[0].x.dtype) * size


def placed(scheme: Scheme[Any], shards: Sequence[Shard]) -> tuple[Server, list[Any]]:
    """Return the server and the devices of a scheme as they stand before the first epoch."""
    server, devices = scheme.server(), [scheme.device(index, shard) for index, shard in enumerate(shards)]
    for stage in server.set_up():
        for transfer in stage.transfers:
            move(devices, transfer, server.receive)
    return server, devices


def conversed(
    server: Server,
    devices: Sequence[Any],
    epoch: int,
    model: np.ndarray,
    answers: Callable[[int, int], bool] = lambda device, question: True,
) -> np.ndarray | None:
    """Return the gradient of an epoch; ``answers`` says who replies to which question (from 0). None if too few do.

    Who has not replied is not there any more, whatever it is asked.
    """
    following: Round | None = server.ask(epoch, model)
    number, replies = 0, {}
    while following is not None:
        present = {device: asked for device, asked in following.requests.items() if answers(device, number)}
        replies = {device: devices[device].reply(epoch, asked, Work()) for device, asked in present.items()}
        if len(replies) < following.least:
            return None
        following, number = server.follow_up(epoch, replies, Work()), number + 1
    return server.combine(epoch, replies, Work())


def is_one_sentence(text: str) -> bool:
    """Tell whether there is no line break, and no full stop that another sentence follows."""
    return bool(text.strip()) and "\n" not in text and re.search(r"[.!?]\s+[A-Z]", text) is None
