"""Devices and codec of the paper's scheme alone, at a size that can be counted: grants, operations, layouts, bounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.errors import CipherError
from codedfl.schemes import Public, Work
from codedfl.schemes.rounding import FLOAT64, OTHER, relative_error
from codedfl.schemes.sharing.code_based import CodeBased, CodeBasedDevice, CodeBasedOptions, granted_supports
from codedfl.task import Shard

D, C, N, T, T_TOT, BETA, SUPPORTS = 6, 2, 16, 2, 4, 1, 2
PUBLIC = Public((4, 9, 5), D, C, np.dtype("float64"), largest_feature=2.0, largest_target=3.0)
OPTIONS = CodeBasedOptions(n=N, degree=3, t_tot=T_TOT, t=T, M=SUPPORTS, beta=BETA)
RNG = np.random.default_rng(8)
SHARDS = [Shard(RNG.uniform(-1, 1, (count, D)), RNG.uniform(-1, 1, (count, C))) for count in PUBLIC.samples]
MODEL = RNG.uniform(-1, 1, (D, C))


@pytest.fixture(scope="module")
def scheme() -> CodeBased:
    return CodeBased(PUBLIC, OPTIONS)


def parties(scheme: CodeBased) -> tuple[Any, list[CodeBasedDevice]]:
    found: list[Any] = [scheme.device(index, shard) for index, shard in enumerate(SHARDS)]
    return scheme.codec(), found


class TestGrants:
    def test_name_no_support_one_or_two(self, scheme: CodeBased) -> None:
        codec, _ = parties(scheme)
        known = [scheme.keys.private.support(number).positions.tolist() for number in range(SUPPORTS)]
        assert codec.grant(1, ()) == {}
        assert granted_supports({}) == []
        one, two = codec.grant(1, (1,)), codec.grant(1, (1, 0))
        assert {name: (array.dtype, array.shape) for name, array in one.items()} == {
            "index": (np.dtype("int32"), ()),
            "positions": (np.dtype("int32"), (T,)),
        }
        assert {name: array.shape for name, array in two.items()} == {"index": (2,), "positions": (2, T)}
        found = [(number, positions.tolist()) for number, positions in granted_supports(one)]
        assert found == [(1, known[1])]
        found = [(number, positions.tolist()) for number, positions in granted_supports(two)]
        assert found == [(1, known[1]), (0, known[0])]
        with pytest.raises(ValueError, match="shorter"):
            granted_supports({"index": two["index"], "positions": two["positions"][:1]})


class TestDevices:
    def test_operations_of_replies(self, scheme: CodeBased) -> None:
        """d^2 c of a first gradient that is asked for; c d n of every other reply."""
        _, devices = parties(scheme)
        work = Work()
        assert np.array_equal(devices[1].reply(1, {}, work)["gradient"], -SHARDS[1].x.T @ SHARDS[1].y)
        assert work.macs == 0
        devices[1].reply(1, {"model": 0 * MODEL}, work)
        assert work.macs == D * D * C
        words = devices[1].reply(2, {"model": MODEL}, work)["words"]
        assert words == pytest.approx(MODEL.T @ SHARDS[1].gram @ scheme.public_key.G)
        assert work.macs == D * D * C + C * D * N

    @pytest.mark.parametrize("supports", [(0,), (1, 0)])
    def test_operations_and_errors_of_hand_overs(self, scheme: CodeBased, supports: tuple[int, ...]) -> None:
        """For each support d t (beta + 1); d n to add a parcel. Errors differ on supports only, and from each other."""
        codec, devices = parties(scheme)
        clean, mine = devices[2].held.words.copy(), devices[1].held.words.copy()
        work, receiving = Work(), Work()
        parcel = devices[2].export(codec.grant(2, supports), work)
        assert work.macs == len(supports) * D * T * (BETA + 1)
        columns = np.flatnonzero((parcel["words"] != clean).any(axis=0)).tolist()
        places = sorted(place for each in supports for place in scheme.keys.private.support(each).positions.tolist())
        assert columns == places
        devices[1].absorb(parcel, receiving)
        assert receiving.macs == D * N
        assert np.array_equal(devices[1].held.words, mine + parcel["words"])
        again = parties(scheme)[1][2].export(codec.grant(2, supports), Work())
        assert np.array_equal(again["words"], parcel["words"]), "errors of a study are repeatable"
        with pytest.raises(CipherError, match="Device 2 has handed over its data and retired"):
            devices[2].export({}, work)

    def test_both_errors_of_a_device_are_drawn_apart(self, scheme: CodeBased) -> None:
        """One support granted twice, once as the first and once as the second of two."""
        codec, devices = parties(scheme)
        clean = devices[2].held.words
        first = parties(scheme)[1][2].export(codec.grant(2, (0, 1)), Work())["words"] - clean
        second = parties(scheme)[1][2].export(codec.grant(2, (1, 0)), Work())["words"] - clean
        places = scheme.keys.private.support(0).positions
        assert (first[:, places] != second[:, places]).any()

    def test_what_has_an_error_may_go_on_without_one(self, scheme: CodeBased) -> None:
        codec, devices = parties(scheme)
        with pytest.raises(CipherError, match=r"Device 1 has received no errors .* it sends no data in clear"):
            devices[1].export({}, Work())
        devices[1].absorb(devices[2].export(codec.grant(2, (0,)), Work()), Work())
        held, work = devices[1].held.words.copy(), Work()
        assert np.array_equal(devices[1].export({}, work)["words"], held)
        assert work.macs == 0

    @pytest.mark.parametrize("parcel", [{}, {"words": np.zeros((D, N - 1))}, {"words": np.zeros((D + 1, N))}])
    def test_parcels_of_another_shape_are_refused(self, scheme: CodeBased, parcel: Any) -> None:
        _, devices = parties(scheme)
        before = devices[1].held.words.copy()
        with pytest.raises(CipherError, match="device 1 holds no data of its shape"):
            devices[1].absorb(parcel, Work())
        assert np.array_equal(devices[1].held.words, before)


class TestCodec:
    def test_first_gradients_are_added(self, scheme: CodeBased) -> None:
        codec, devices = parties(scheme)
        for everyone in (True, False):
            asked = codec.first_round(0 * MODEL, (0, 1, 2), everyone=everyone)
            assert list(asked.requests) == [0, 1, 2]
            assert asked.requests[0]["model"].dtype == np.float64
            assert asked.expected[1] == {"gradient": (np.dtype("float64"), (D, C))}
            assert asked.point is None
        replies = {number: devices[number].reply(1, {}, Work()) for number in (2, 0, 1)}
        found = codec.decode_first(replies, Work())
        assert found == pytest.approx(-sum(shard.x.T @ shard.y for shard in SHARDS))

    def test_products_are_decoded_from_the_sum(self, scheme: CodeBased) -> None:
        """Erased symbols from the known ones, t_tot (n - t_tot), and the inverse of S, d d: for each output."""
        codec, devices = parties(scheme)
        total = sum(shard.gram for shard in SHARDS) @ MODEL
        active = [0, 1, 2]
        for sender, supports in ((2, (0,)), (1, (1,)), (0, ())):
            request, reply, point = codec.encode(MODEL)
            assert reply == {"words": (np.dtype("float64"), (C, N))}
            assert point is None
            work = Work()
            replies = {each: devices[each].reply(2, request, Work()) for each in reversed(active)}
            assert codec.decode(replies, work) == pytest.approx(total, rel=1e-9)
            assert work.macs == C * (T_TOT * (N - T_TOT) + D * D)
            if sender:
                parcel = devices[sender].export(codec.grant(sender, supports), Work())
                devices[sender - 1].absorb(parcel, Work())
                active.remove(sender)


class TestScheme:
    def test_layouts(self, scheme: CodeBased) -> None:
        words = {"words": (np.dtype("float64"), (D, N))}
        assert scheme.parcels(1) == (words,)
        assert scheme.announcement_layout == {"generator": (np.dtype("float64"), (D, N))}
        assert np.array_equal(scheme.announcement()["generator"], scheme.public_key.G)
        assert (scheme.supports, scheme.odd_set) == ((SUPPORTS, "once"), "partner")

    @pytest.mark.parametrize(("dtype", "item"), [("float32", 4), ("float64", 8)])
    def test_memory_is_two_matrices_a_device_and_four_of_the_keys(self, dtype: str, item: int) -> None:
        """A Gram matrix and an encoded one of each device; four matrices d x n in float64 while keys are drawn."""
        made = CodeBased(replace(PUBLIC, dtype=np.dtype(dtype)), OPTIONS)
        assert made.memory == 3 * item * (D * D + D * N) + 4 * 8 * D * N

    @pytest.mark.parametrize(("dtype", "advice"), [("float32", FLOAT64), ("float64", OTHER)])
    def test_rounding_is_multiplied_by_the_decoder(self, dtype: str, advice: str) -> None:
        """Three products over d rows, n symbols and three devices; and Gram matrices of nine rows, negated sums.

        Sums of Gram matrices are up to 18 * 4, of right-hand sides up to 18 * 6.
        """
        made = CodeBased(replace(PUBLIC, dtype=np.dtype(dtype)), OPTIONS)
        gain = made.keys.private.plan("least-squares", dtype).error_gain
        found = made.rounding
        assert found is not None
        own = relative_error(10, dtype)
        decoded = gain * relative_error(3 * D + N + 3, dtype)
        assert found.gram == pytest.approx((decoded + own) * 72, rel=1e-12, abs=0)
        assert found.moments == pytest.approx(own * 108, rel=1e-12, abs=0)
        assert found.joint == 0
        assert found.cause.startswith("the decoder least-squares, which multiplies rounding errors of")
        assert found.advice == advice

    def test_a_site_states_no_rounding(self, scheme: CodeBased) -> None:
        made = CodeBased(replace(PUBLIC, announced=scheme.announcement()), OPTIONS)
        assert made.rounding is None
        assert made.public_key.fingerprint == scheme.public_key.fingerprint
        held = made.device(1, SHARDS[1]).held.words
        assert held == pytest.approx(SHARDS[1].gram @ scheme.public_key.G, rel=1e-12)

    def test_whoever_has_a_parcel_has_the_gram_matrix(self, scheme: CodeBased) -> None:
        found = {(cell.adversary, cell.asset): cell.verdict for cell in scheme.secrecy()}
        for adversary in ("eavesdropper", "device", "devices", "deviating device", "server and devices"):
            assert found[adversary, "gram"] == "falls"
        assert found["eavesdropper", "gradient"] == "leaks"
        assert found["server", "gradient"] == "not protected"

    def test_keys_come_from_the_seed_of_a_study_or_are_fresh(self, scheme: CodeBased) -> None:
        seeds = [replace_seed(seed).public_key.fingerprint for seed in (0, 1)]
        fresh = [CodeBased(replace(PUBLIC, fresh_keys=True), OPTIONS).public_key.fingerprint for _ in range(2)]
        assert seeds[0] == scheme.public_key.fingerprint
        assert len({*seeds, *fresh}) == 4
        assert replace_seed(1).keys is not scheme.keys


def replace_seed(seed: int) -> CodeBased:
    return CodeBased(PUBLIC, replace(OPTIONS, key_seed=seed))
