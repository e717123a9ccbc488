"""A server that pools with devices of ``sealed-coded``, on the real parcels of a run: masks leave it the sum only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.engines import VirtualEngine
from codedfl.network import DelayModel
from codedfl.schemes.coded.pairwise_masks import PairwiseMasks
from codedfl.schemes.coded.placing.block_layout import PIECE
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.attempts import Range
from codedfl.security.audit import exposures
from codedfl.security.tap import tap
from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.views.coded import pooled_rows, pooled_view
from codedfl.task import Problem, Shard
from codedfl.training import State, train
from schemes.coded.test_pairwise_masks import known_secrets
from schemes.residues import wanted
from tiny import problem

DEVICES, FEATURES = 5, 30


@dataclass(frozen=True)
class Recorded:
    """A run with a tap on all devices, and the masks that each device has to itself."""

    scheme: Any
    transcript: Transcript
    masks: dict[int, PairwiseMasks]
    model: np.ndarray


def recorded(given: Problem, *, masks: bool, neighbours: int = 256) -> Recorded:
    own = {"masks": masks, "neighbours": neighbours, "workers": 4, "threshold": 3, "ring": "GF(2^61-1)"}
    options = {"schemes.sealed-coded": own}
    chosen = wanted("sealed-coded", {**options, "training.epochs": 4}, rates=(1e6,) * len(given.shards))
    scheme: Any = schemes.create(chosen, given)
    made = [scheme.device(index, shard) for index, shard in enumerate(given.shards)]
    held = {index: device._masks for index, device in enumerate(made) if device._masks is not None}
    transcript = Transcript()
    engine = VirtualEngine(tap(made, transcript), DelayModel.create(chosen.fleet, chosen.links), seed=0, draw=0)
    model = train(given, chosen, scheme, engine, State.fresh(given)).model
    return Recorded(scheme, transcript, held, model)


def given() -> Problem:
    return problem([40] * DEVICES, features=FEATURES, outputs=2)


def read(run: Recorded, told: Problem, helpers: Sequence[int]) -> Iterable[tuple[float, float]]:
    """For every other device: the error of the band that the pool reads, and that of the public guess."""
    rows, place = pooled_rows(run.scheme, helpers), Range("", told, 4)
    pool = {device: run.masks[device] for device in helpers if device in run.masks}
    for device in set(range(DEVICES)) - set(helpers):
        view = pooled_view(run.scheme, run.transcript, device, helpers, pool)
        exposure = Exposure(view, device, told.shards[device].gram[np.ix_(rows, rows)], columns=rows)
        (attempt,) = place.least_hidden(LeftKernel(), [exposure])
        score = attempt.outcome.score
        assert score.relative_error is not None
        assert score.guess_error is not None
        yield score.relative_error, score.guess_error


POOLS = [*combinations(range(DEVICES), 1), *combinations(range(DEVICES), DEVICES - 2)]


class TestBands:
    def test_masks_hide_every_device_from_every_single_helper_and_from_every_n_minus_2(self) -> None:
        told = given()
        run = recorded(told, masks=True)
        for helpers in POOLS:
            for error, guess in read(run, told, helpers):
                assert error > 1e3 * guess, (helpers, "residues of a field of 61 bits")

    def test_without_masks_the_same_attack_reads_the_band(self) -> None:
        """The positive control. Residues are of 2^-bits steps: half a step an entry."""
        told = given()
        run = recorded(told, masks=False)
        for helpers in POOLS:
            for error, guess in read(run, told, helpers):
                assert error < 1e-9 < guess

    def test_helpers_know_all_masks_of_a_device_that_is_alone(self) -> None:
        """So the attack takes off the masks of its helpers rightly: with N - 1 of them none is left."""
        told = given()
        run = recorded(told, masks=True)
        for helpers in combinations(range(DEVICES), DEVICES - 1):
            ((error, guess),) = read(run, told, helpers)
            assert error < 1e-9 < guess


def with_grams(told: Problem, changes: dict[int, tuple[np.ndarray, np.ndarray]]) -> Problem:
    """The same data with other Gram matrices and right-hand sides at some devices."""
    shards = []
    for index, shard in enumerate(told.shards):
        copy = Shard(shard.x, shard.y)
        gram, moments = changes.get(index, (0.0, 0.0))
        vars(copy).update(gram=shard.gram + gram, moments=shard.moments + moments)
        shards.append(copy)
    return Problem(tuple(shards), told.x_test, told.y_test, told.kind, told.ridge)


def everything(run: Recorded) -> list[tuple[Any, ...]]:
    """All that is ever sent: grants, parcels, requests and replies, byte by byte."""
    sent = [(each.sender, _bytes(each.grant), _bytes(each.parcel)) for each in run.transcript.parcels]
    return sent + [
        (each.device, each.epoch, _bytes(each.request), _bytes(each.reply)) for each in run.transcript.replies
    ]


def _bytes(message: Any) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, array.tobytes()) for name, array in message.items())


@pytest.mark.parametrize(("devices", "neighbours"), [(4, 256), (5, 256), (5, 2)])
def test_other_data_with_the_same_sum_explain_every_message(
    devices: int, neighbours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact simulation: move E from one honest device to another, and their mask by minus E.

    No message changes by a bit, between whomever it is. The pool of the server with all other devices has the seeds,
    its own keys and its own masks, none of which changes. The mask of the pair is uniform to it, so both data are
    equally likely, whatever E is: it learns the sum only. Without masks the pieces change. Where devices share masks
    with neighbours only, E moves between neighbours, and along them from any device to any other.
    """
    told = problem([8] * devices, features=9, outputs=2)
    scheme = recorded(told, masks=True, neighbours=neighbours).scheme
    step, formats, bands = 2.0**-16, scheme.formats, scheme.layout.bands
    assert min(formats.gram.data_bits, formats.moments.data_bits) >= 16, "E has no fractions of a step"
    rng = np.random.default_rng(3)
    move = rng.integers(-1000, 1000, (9, 9))
    gram, moments = step * (move + move.T), step * rng.integers(-1000, 1000, (9, 2))
    whole = [
        np.round(matrix * 2.0**form.data_bits).astype(np.int64)
        for matrix, form in ((gram, formats.gram), (-moments, formats.moments))
    ]
    sent = whole[0][np.triu_indices(9)], whole[1]
    shift = [formats.ring.residues(bands.pieces(chunk, *sent)) for chunk in range(bands.chunks)]
    base = with_grams(
        told,
        {
            index: (_rounded(shard.gram, step) - shard.gram, _rounded(shard.moments, step) - shard.moments)
            for index, shard in enumerate(told.shards)
        },
    )
    pairs = [pair for pair in combinations(range(devices), 2) if pair[1] in scheme.layout.sharing_masks(pair[0])]
    assert len(pairs) == devices * min(neighbours, devices - 1) // 2
    for one, other in pairs:
        changed = with_grams(base, {one: (gram, moments), other: (-gram, -moments)})
        seen = {}
        for name, data in {"base": base, "changed": changed}.items():
            for masks in (True, False):
                with monkeypatch.context() as patch:
                    known_secrets(patch)
                    if masks and name == "changed":
                        _shift(patch, one, other, shift)
                    run = recorded(data, masks=masks, neighbours=neighbours)
                    seen[name, masks] = everything(run), run.model.tobytes()
        assert seen["base", True] == seen["changed", True]
        different = [
            first[0] for first, second in zip(*(seen[name, False][0] for name in ("base", "changed")), strict=True)
            if first != second
        ]  # fmt: skip
        assert set(different) == {one, other}, "without masks, pieces of these two tell"
        assert seen["base", False][1] == seen["base", True][1]


def _rounded(matrix: np.ndarray, step: float) -> np.ndarray:
    return np.round(matrix / step) * step


def _shift(patch: Any, one: int, other: int, shift: Sequence[np.ndarray]) -> None:
    """Let the mask of each chunk that two devices share be less by E than the one that they agreed on."""
    add = PairwiseMasks.add_one

    def shifted(self: PairwiseMasks, peer: int, pieces: np.ndarray, chunk: int, ring: Any) -> None:
        add(self, peer, pieces, chunk, ring)
        if {self._index, peer} == {one, other}:
            (ring.subtract if self._index == one else ring.add)(pieces, shift[chunk], out=pieces)

    patch.setattr(PairwiseMasks, "add_one", shifted)


class TestAudit:
    def test_with_masks_the_pool_is_shown_the_sum_over_the_others(self) -> None:
        told = given()
        options = {"schemes.sealed-coded": {"workers": 4, "threshold": 3}, "training.epochs": 4}
        chosen = wanted("sealed-coded", options, rates=(1e6,) * DEVICES)
        pooled = [each for each in exposures(chosen, told, 4) if each.party == "server and devices"]
        assert [sorted(each.parts) for each in pooled] == [[1, 2, 3, 4], [2, 3, 4]]
        for each in pooled:
            exact = np.array([each.gram @ model for model in each.view.models])  # type: ignore[attr-defined]
            steps = DEVICES * 2.0**-20 * np.abs(each.view.models).sum(axis=1).max()  # type: ignore[attr-defined]
            assert np.allclose(each.view.replies, exact, rtol=0, atol=steps)  # type: ignore[attr-defined]

    def test_without_masks_it_is_shown_bands(self) -> None:
        told = given()
        options = {"schemes.sealed-coded": {"workers": 4, "threshold": 3, "masks": False}, "training.epochs": 4}
        chosen = wanted("sealed-coded", options, rates=(1e6,) * DEVICES)
        pooled = [each for each in exposures(chosen, told, 4) if each.party == "server and devices"]
        assert [each.subject for each in pooled] == [1, 2, 3, 4, 2, 3, 4]


def test_a_piece_is_recorded_for_every_pair() -> None:
    """What the attacks above start from: N (N - 1) pieces of each chunk, those to any device."""
    run = recorded(given(), masks=True)
    pieces = [each for each in run.transcript.parcels if int(each.parcel["kind"]) == PIECE]
    assert len(pieces) == DEVICES * (DEVICES - 1) * run.scheme.layout.bands.chunks
