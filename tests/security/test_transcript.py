"""The tap changes nothing, knows whose data lies under a message, and every exposure says the truth."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.mceliece.messages import Ciphertext
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES
from codedfl.schemes.coded.coded_padded import CodedPadded
from codedfl.schemes.coded.sealed_coded import SealedCoded
from codedfl.schemes.messages import Work
from codedfl.security.audit import exposures
from codedfl.security.tap import tap
from codedfl.security.transcript import RecordedParcel, RecordedReply, Transcript
from codedfl.security.views.code_based import code_based_exposures
from codedfl.security.views.kinds import (
    ForwardView,
    MaskedRepliesView,
    ParcelView,
    RepliesView,
    RowView,
    SharedSupportView,
    SummedRepliesView,
)
from codedfl.task import Problem
from codedfl.training import State, train
from tiny import SEALED, problem, scenario, trained

SMALL = {
    "minibatch": {"parts": 2},
    "parity": {"parts": 2},
    "code-based": {"n": 24, "degree": 3, "t_tot": 8, "t": 4, "M": 4, "beta": 2, "delta": 1e-3, "supply": "reissued"},
}
EPOCHS = 12


def wanted(name: str, **options: Any) -> Scenario:
    epochs = 3 if name == "secagg" else EPOCHS  # each has its own key agreements, of all with all
    settings = {"scheme": name, "training.epochs": epochs, "training.learning_rate": 0.1}
    return scenario({**settings, f"schemes.{name}": SMALL.get(name, {}) | options})


def tiny() -> Problem:
    return problem([10] * 25, features=12)


def tapped(chosen: Scenario, given: Problem) -> tuple[State, Transcript]:
    scheme = schemes.create(chosen, given)
    transcript = Transcript()
    devices = tap([scheme.device(index, shard) for index, shard in enumerate(given.shards)], transcript)
    engine = VirtualEngine(devices, DelayModel.create(chosen.fleet, chosen.links), seed=0, draw=0)
    return train(given, chosen, scheme, engine, State.fresh(given)), transcript


@pytest.mark.parametrize("name", SCHEMES)
def test_a_tapped_run_is_the_same_run(name: str) -> None:
    chosen, given = wanted(name), tiny()
    state, transcript = tapped(chosen, given)
    alone = trained(given, chosen)
    assert np.array_equal(state.model, alone.model)
    for column, values in alone.history.columns.items():
        assert np.array_equal(state.history.columns[column], values, equal_nan=True), column
    assert len(transcript.parcels) == sum(len(stage.costs) for stage in alone.history.stages)


def test_the_tap_knows_whose_data_lies_under_a_parcel() -> None:
    """The private key reads every parcel: it must be the sum over ``contents``."""
    chosen, given = wanted("code-based"), tiny()
    scheme: Any = schemes.create(chosen, given)
    _, transcript = tapped(chosen, given)
    assert any(len(entry.contents) > 1 for entry in transcript.parcels)
    for entry in transcript.parcels:
        message = Ciphertext(scheme.keys.public.fingerprint, entry.parcel["words"])
        total = sum(given.shards[device].gram for device in entry.contents)
        assert np.allclose(scheme.keys.private.decrypt(message), total, rtol=1e-9, atol=1e-9)


NARROW = {"sealed": "Z_2^32", "sealed-coded": "GF(2^31-1)", "coded-padded": "GF(2^48-59)"}
"""Rings whose products float64 holds exactly."""


@pytest.mark.parametrize("name", SCHEMES)
def test_the_servers_view_is_that_of_the_true_gram_matrix(name: str) -> None:
    """Differences of replies are A times differences of models, whatever scheme carried them.

    Residues show A as it was rounded to steps, and then exactly: all integers are below 2^53. Where the server sees
    sums alone, A is the rounded sum over all devices.
    """
    given, chosen = tiny(), wanted(name, **({"ring": NARROW[name]} if name in NARROW else {}))
    shown = exposures(chosen, given, chosen.training.epochs)
    seen = [entry for entry in shown if isinstance(entry.view, RepliesView)]
    found = [entry for entry in seen if not entry.assumption and not isinstance(entry.view, MaskedRepliesView)]
    view = found[0].view
    if isinstance(view, SummedRepliesView) and not isinstance(schemes.create(chosen, given), SEALED):
        assert len(found) == 1
        sums = np.einsum("ij,ejc->eic", given.total_gram, view.models)
        # both ways round numbers to steps of 2^-40 of their bound or finer
        assert np.linalg.norm(view.replies - sums) <= 1e-9 * (np.linalg.norm(sums) + np.linalg.norm(view.models))
        return
    scheme: Any = schemes.create(chosen, given)
    if isinstance(scheme, SEALED):
        step = scheme.formats.gram.data_step
        coded = isinstance(scheme, SealedCoded | CodedPadded)
        subjects = given.shards if coded else [given.shards[found[0].subject]]
        rounded = sum(np.rint(shard.gram / step) for shard in subjects)
        assert len(found) == 1 or not coded
        assert np.allclose(found[0].gram, sum(shard.gram for shard in subjects), rtol=1e-12)
        assert len(view.models) >= 3
        assert np.array_equal(view.models, np.rint(view.models))
        assert np.array_equal(view.replies, rounded @ view.models * step)
        return
    devices = [entry.subject for entry in found]
    assert len(set(devices)) == len(devices) > 1, "every device that replies alone"
    for entry in found:
        expected = np.einsum("ij,ejc->eic", entry.gram, entry.view.models)
        scale = np.linalg.norm(expected) + np.linalg.norm(entry.view.models)
        assert np.linalg.norm(entry.view.replies - expected) <= 1e-9 * scale
    assert max(len(entry.view.models) for entry in found) >= 3


def test_what_the_papers_scheme_exposes_is_what_its_threat_model_says() -> None:
    given = tiny()
    shown = [entry for entry in exposures(wanted("code-based"), given, EPOCHS) if "models" not in entry.assumption]
    found = {type(entry.view): entry for entry in reversed(shown)}
    assert set(found) == {ParcelView, RowView, ForwardView, SharedSupportView, RepliesView}
    for kind in (ParcelView, RowView, SharedSupportView):
        entry = found[kind]
        words = np.atleast_2d(entry.view.words if kind is not RowView else entry.view.word)
        clean = np.setdiff1d(np.arange(24), entry.support)
        assert np.allclose(words[:, clean], (entry.gram @ entry.view.G)[:, clean], rtol=1e-9, atol=1e-9)
        assert np.all(np.abs(words - entry.gram @ entry.view.G)[:, entry.support].max(axis=0) > 1e-6)


def test_a_support_used_once_is_not_known_to_anybody_else() -> None:
    found = exposures(wanted("code-based", supply="once"), tiny(), EPOCHS)
    assert not any(isinstance(entry.view, SharedSupportView) for entry in found)


def test_errors_on_two_supports_are_shown_on_their_union() -> None:
    """Device 1 hands over with two supports: its parcel differs from A G exactly there, by twice the rank."""
    given = tiny()
    scheme: Any = schemes.create(wanted("code-based", odd_set="two-errors"), given)
    device, server = scheme.device(1, given.shards[1]), scheme.server()
    (stage,) = server.restore({"moved": np.array([(2, 1, 0, 0), (2, 1, 0, 1)])}).stages
    (transfer,) = stage.transfers
    parcel = device.export(transfer.grant, Work())
    entry = RecordedParcel(1, frozenset({1}), transfer.grant, parcel, ())
    private, G = scheme.keys.private, scheme.keys.public.G
    both = np.union1d(private.support(0).positions, private.support(1).positions)
    reply = RecordedReply(0, 2, frozenset({0}), {"model": np.ones(given.shape)}, {"words": np.ones(given.shape).T @ G})
    found = code_based_exposures(scheme, Transcript([reply], [entry]), given.shards)
    shown = next(each for each in found if isinstance(each.view, ParcelView))
    assert shown.support.tolist() == both.tolist()
    assert (shown.view.t, shown.view.beta) == (both.size, 2 * scheme.options.beta)
    error = shown.view.words - given.shards[1].gram @ G
    scale = np.abs(error).max()
    assert np.flatnonzero(np.abs(error).max(axis=0) > 1e-9 * scale).tolist() == both.tolist()
    assert np.linalg.matrix_rank(error, tol=1e-9 * scale) == min(2 * scheme.options.beta, both.size)
    assert np.array_equal(server.state()["moved"], [(2, 1, 0, 0), (2, 1, 0, 1)])
