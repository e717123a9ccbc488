"""Which builder makes the views of a scheme: its own, one that a third party registered, or the generic one."""

from typing import Any

import numpy as np
import pytest

from codedfl.errors import UsageError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Public, Scheme
from codedfl.schemes.messages import Work
from codedfl.schemes.plain.conventional import AveragingServer, GradientDevice
from codedfl.security.transcript import Exposure, RecordedReply, Transcript
from codedfl.security.views import registry
from codedfl.security.views.kinds import RepliesView
from codedfl.security.views.registry import build_exposures, register_views
from codedfl.task import Shard
from tiny import is_one_sentence

SHARD = Shard(np.random.default_rng(0).random((5, 3)), np.random.default_rng(1).random((5, 2)))


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


class Halved(Scheme[SchemeOptions]):
    """Sends half of the gradient, in two arrays, which no generic reader can guess."""

    name = "halved"
    survives_losses = 0  # type: ignore[assignment]
    exact = True  # type: ignore[assignment]
    verdict = "not encrypted"  # type: ignore[assignment]
    verdict_reason = "It sends gradients."  # type: ignore[assignment]

    def check(self) -> None: ...

    def device(self, index: int, shard: Any) -> Any: ...

    def server(self) -> Any:
        return AveragingServer(self.public, quorum=1, read=lambda reply: 2 * reply["half"] + reply["rest"])

    def leakage(self) -> Any: ...


def scheme() -> Halved:
    return Halved(Public((5,), 3, 2, np.dtype("float64")), SchemeOptions())


def transcript(reply: Any) -> Transcript:
    """Three epochs of one device; the model of the first one is zero."""
    models = [np.zeros((3, 2)), np.ones((3, 2)), np.arange(6.0).reshape(3, 2)]
    device = GradientDevice(SHARD)
    asked = []
    for epoch, model in enumerate(models, 1):
        gradient = device.reply(epoch, {"model": model}, Work())["gradient"]
        asked.append(RecordedReply(0, epoch, frozenset({0}), {"model": model}, reply(gradient)))
    return Transcript(asked, [])


def read_replies(reply: Any) -> RepliesView:
    (exposure,) = build_exposures(scheme(), transcript(reply), [SHARD])
    assert exposure.gram is SHARD.gram
    assert isinstance(exposure.view, RepliesView)
    return exposure.view


@pytest.mark.parametrize(
    "reply",
    [lambda gradient: {"any": gradient}, lambda gradient: {"half": gradient / 2, "rest": np.zeros_like(gradient)}],
    ids=["gradient", "coded"],
)
def test_the_generic_view_is_what_the_server_reads_of_one_device(reply: Any) -> None:
    """Replies less that to the zero model are A Theta, whether they are gradients or only ``combine`` can read them."""
    view = read_replies(reply)
    assert len(view.models) == 2
    np.testing.assert_allclose(view.replies, SHARD.x.T @ SHARD.x @ view.models, rtol=1e-12)


def test_a_reply_that_the_server_cannot_read_alone_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="register_views") as error:
        read_replies(lambda gradient: {"other": gradient, "rest": gradient})
    assert is_one_sentence(str(error.value))


def test_a_run_without_replies_shows_nothing() -> None:
    assert list(build_exposures(scheme(), Transcript(), [SHARD])) == []


def test_a_registered_builder_is_asked_and_a_second_one_refused() -> None:
    wanted = [Exposure(RepliesView(np.zeros((1, 3, 2)), np.zeros((1, 3, 2))), 0, SHARD.gram)]
    register_views("halved", lambda *_: wanted)
    assert build_exposures(scheme(), Transcript(), [SHARD]) is wanted
    for name in ("halved", "sealed"):
        with pytest.raises(UsageError, match="registered already"):
            register_views(name, lambda *_: [])
