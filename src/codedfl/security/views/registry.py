"""The view builder of each scheme: it turns the transcript of a run into what single parties saw."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from codedfl.errors import UsageError
from codedfl.schemes.contract import Scheme
from codedfl.security.transcript import Exposure, Transcript
from codedfl.task import Shard

ViewBuilder = Callable[[Any, Transcript, Sequence[Shard]], Sequence[Exposure]]
"""(scheme, transcript, shards) -> one exposure for each view that a party had; the shards give the truth only."""

_registered: dict[str, ViewBuilder] = {}


@cache
def _built_in() -> dict[str, ViewBuilder]:
    from codedfl.security.views import code_based, coded, he, parity, replies, sealed, secagg  # they load all schemes

    return {
        "minibatch": replies.minibatch_exposures,
        "parity": parity.parity_exposures,
        "coded-padded": coded.coded_padded_exposures,
        "sealed-coded": coded.sealed_coded_exposures,
        "code-based": code_based.code_based_exposures,
        "sealed": sealed.sealed_sharing_exposures,
        "he": he.encrypted_exposures,
        "secagg": secagg.secagg_exposures,
        "one-shot": secagg.one_shot_exposures,
    }


def register_views(name: str, builder: ViewBuilder) -> None:
    """Name the view builder of a scheme.

    A scheme without one gets ``codedfl.security.views.replies.reply_exposures``: the server's view of single replies.
    """
    if name in _registered or name in _built_in():
        raise UsageError(f"views of scheme '{name}' are registered already; choose another name")
    _registered[name] = builder


def build_exposures(scheme: Scheme[Any], transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
    """Return the views that parties had in a run, one of each kind, with the truth for the scorer."""
    from codedfl.security.views.replies import reply_exposures

    builder = _registered.get(scheme.name) or _built_in().get(scheme.name, reply_exposures)
    return builder(scheme, transcript, shards)
