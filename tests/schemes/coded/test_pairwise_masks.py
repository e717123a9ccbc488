"""Masks under the seals: they change no bit of a training, look uniform, and a device refuses every wrong key."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from codedfl import schemes
from codedfl.cipher.masks import pairwise
from codedfl.cipher.masks.pairwise import AgreementKey
from codedfl.cipher.seals import FIELD_31
from codedfl.engines.virtual import move
from codedfl.errors import CipherError, LostDevicesError
from codedfl.schemes import Work
from codedfl.schemes.coded.pairwise_masks import PairwiseMasks
from codedfl.schemes.coded.placing.bands import Bands
from codedfl.schemes.coded.placing.block_layout import KEY, PIECE
from codedfl.schemes.messages import layout
from codedfl.schemes.sharing import sealed
from codedfl.schemes.sharing.sealed import pad_of
from codedfl.studies.plan import predict, probe
from codedfl.training import State
from schemes.residues import carry, set_up, wanted
from tiny import is_one_sentence, problem, spied, trained

OFF = {"schemes.sealed-coded.masks": False}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on seeds and keys are known ones; the pads of the first fleet do not depend on masks."""
    known_secrets(monkeypatch)


def known_secrets(patch: pytest.MonkeyPatch) -> None:
    seeds, keys = (np.random.default_rng(number) for number in (1, 2))
    patch.setattr(sealed, "fresh_seed", lambda given: seeds.bytes(32) if given is None else given)
    patch.setattr(pairwise.system, "token_bytes", keys.bytes)


def coded(devices: int, **changes: Any) -> Any:
    return wanted("sealed-coded", {"training.epochs": 5, **changes}, rates=(1e6,) * devices)


@settings(max_examples=25)
@given(
    devices=st.sampled_from([2, 3, 5]),
    features=st.integers(2, 9),
    ring=st.sampled_from(["GF(2^31-1)", "GF(2^48-59)", "GF(2^61-1)"]),
    solver=st.sampled_from(["gradient-descent", "conjugate-gradients"]),
    data=st.data(),
)
def test_masks_change_no_bit(devices: int, features: int, ring: str, solver: str, data: st.DataObject) -> None:
    """Of models, of all columns of the epochs but time and costs, and, under the same pads, of any reply."""
    workers = data.draw(st.integers(1, devices))
    options = {"workers": workers, "threshold": data.draw(st.integers(1, workers)), "ring": ring}
    told = problem([3, 5, 2, 4, 6][:devices], features=features, outputs=2)
    kept = []
    for masks in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            known_secrets(patch)
            options["masks"] = masks
            chosen = coded(devices, **{"schemes.sealed-coded": options, "training.solver": solver})
            seen = spied(patch, chosen)
            kept.append((trained(told, chosen), seen))
    (one, first), (other, second) = kept
    assert one.model.tobytes() == other.model.tobytes()
    for name in ("accuracy", "loss", "gradient_norm", "gradient_error", "replies", "server_macs"):
        assert one.history.columns[name] == other.history.columns[name]
    replied = [
        {(epoch.epoch, device, name): array.tobytes() for epoch in seen for device, reply in epoch.replies.items()
         for name, array in reply.items()} for seen in (first, second)
    ]  # fmt: skip
    both = replied[0].keys() & replied[1].keys()  # who replies first is chance, which a further stage shifts
    assert {epoch for epoch, _, _ in both} >= {1}
    assert all(replied[0][key] == replied[1][key] for key in both)


def masked(devices: int, features: int = 8) -> tuple[Any, list[Any], Any, Sequence[Any]]:
    """A server, devices before the set-up, the problem, and the transfers of keys."""
    told = problem([4] * devices, features=features, outputs=2)
    scheme: Any = schemes.create(coded(devices), told)
    made = [scheme.device(index, shard) for index, shard in enumerate(told.shards)]
    keys, *others = scheme.server().set_up()
    return scheme, made, [stage.transfers for stage in others], keys.transfers


def unexplained(
    bands: Bands, transfers: Sequence[Any], parcels: Sequence[Any], seeds: dict[int, Any]
) -> Iterator[np.ndarray]:
    """The pieces as the server opens them."""
    for transfer, parcel in zip(transfers, parcels, strict=True):
        if int(parcel["kind"]) == PIECE:
            chunk, own = int(parcel["band"]) // bands.adders, bands.within(int(parcel["band"]))
            pad = pad_of(FIELD_31, transfer.sender, seeds[transfer.sender], chunk).residues(bands.chunk_size(chunk))
            yield FIELD_31.subtract(FIELD_31.from_wire(parcel["piece"]), pad[own])


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("masks", [True, False])
def test_opened_pieces_look_uniform(masks: bool) -> None:
    """Residues in 64 equal ranges, two devices: without masks they are small numbers, near 0 and p."""
    told = problem([4] * 2, features=60, outputs=2)
    options = {"schemes.sealed-coded": {"masks": masks, "ring": "GF(2^31-1)"}}
    scheme: Any = schemes.create(coded(2, **options), told)
    _, _, transfers, parcels = set_up(scheme, told.shards)
    seeds = {transfer.sender: transfer.grant for transfer in transfers if "seed" in transfer.grant}
    opened = np.concatenate(list(unexplained(scheme.layout.bands, transfers, parcels, seeds)))
    assert len(opened) == 60 * 61 // 2 + 60 * 2
    counts = np.bincount((opened.astype(np.int64) * 64 >> 31), minlength=64)
    assert (chisquare(counts).pvalue > 1e-3) == masks


@pytest.mark.parametrize("devices", [2, 3, 5])
def test_masks_cancel_in_the_sum_over_all_devices_and_in_no_other(devices: int) -> None:
    public = schemes.create(coded(devices), problem([4] * devices)).public
    made = [PairwiseMasks(index, public, set(range(devices)) - {index}) for index in range(devices)]
    for one, other in itertools.permutations(range(devices), 2):
        made[other].absorb(one, {"key": made[one].export(Work())}, Work())
    alone = []
    for each in made:
        alone.append(np.zeros(20, FIELD_31.dtype))
        each.add_to(alone[-1], 3, FIELD_31, Work())
    for size in range(1, devices + 1):
        for some in itertools.combinations(alone, size):
            total = sum(array.astype(object) for array in some) % FIELD_31.modulus
            assert (total == 0).all() == (size == devices)


class TestKeys:
    """Every refusal is one sentence and changes nothing: the set-up goes on with the proper keys."""

    def refused(self, sender: int, parcel: Any, words: str, before: int) -> None:
        scheme, made, others, keys = masked(4)
        to_first = [transfer for transfer in keys if transfer.recipient == 1]
        sent = {transfer.sender: made[transfer.sender].export(transfer.grant, Work()) for transfer in to_first}
        for transfer in to_first[:before]:
            move(made, transfer, lambda *_: None)
        given_key = parcel(made, sent) if callable(parcel) else parcel
        with pytest.raises(CipherError, match=words) as error:
            made[1].absorb_from(sender, given_key, Work())
        assert is_one_sentence(str(error.value))
        carry(made, to_first[before:])
        carry(made, [transfer for transfer in keys if transfer.recipient != 1])
        for transfers in others:
            carry(made, transfers)
        assert made[1].reply(1, {}, Work())["moments"].shape == (2, 2)
        assert scheme.parcels(1), "sites enforce layouts, too"

    def test_a_second_key(self) -> None:
        fresh = np.frombuffer(AgreementKey().public, np.uint8)
        self.refused(
            0,
            {"kind": np.array(KEY, np.int8), "key": fresh},
            "first key of a device that it shares masks with",
            before=3,
        )

    def test_the_same_key_again(self) -> None:
        self.refused(0, lambda made, sent: sent[0], "first key of a device that it shares masks with", before=3)

    def test_the_own_key_reflected(self) -> None:
        own = lambda made, sent: made[1].export({"kind": np.array(KEY), "target": np.array(0)}, Work())  # noqa: E731
        self.refused(0, own, "is that of device 1 itself", before=0)

    def test_a_key_passed_on_as_that_of_another(self) -> None:
        self.refused(3, lambda made, sent: sent[0], "device 3, which is that of device 0 too", before=1)

    @pytest.mark.parametrize("key", [np.zeros(32, np.uint8), np.zeros(31, np.uint8), np.zeros(32, np.int8), None])
    def test_what_is_no_key(self, key: Any) -> None:
        parcel = {"kind": np.array(KEY, np.int8), **({} if key is None else {"key": key})}
        self.refused(0, parcel, "not one of 32 bytes|none of X25519", before=0)

    @pytest.mark.parametrize("missing", [0, 2, 3])
    def test_nothing_is_sealed_before_all_keys_are_there(self, missing: int) -> None:
        _, made, (pieces, *_), keys = masked(4)
        carry(made, [each for each in keys if (each.sender, each.recipient) != (missing, 1)])
        seal = next(transfer for transfer in pieces if transfer.sender == 1)
        work = Work()
        with pytest.raises(CipherError, match=f"before it has the mask key of device {missing}") as error:
            made[1].export(seal.grant, work)
        assert is_one_sentence(str(error.value))
        assert (work.macs, work.beforehand) == (0, 0)
        carry(made, [each for each in keys if (each.sender, each.recipient) == (missing, 1)])
        assert set(made[1].export(seal.grant, work)) == {"kind", "band", "piece"}

    def test_after_sealing_there_are_no_keys_any_more(self) -> None:
        _, made, (pieces, *_), keys = masked(3)
        carry(made, keys)
        move(made, pieces[0], lambda *_: None)
        sender = pieces[0].sender
        key = next(transfer for transfer in keys if transfer.sender == sender)
        with pytest.raises(CipherError, match="has no mask key to send"):
            made[sender].export(key.grant, Work())
        with pytest.raises(CipherError, match="expects no mask key of device"):
            made[sender].absorb_from(key.recipient, {"kind": np.array(KEY, np.int8)}, Work())

    @pytest.mark.parametrize("masks", [True, False])
    def test_layouts(self, masks: bool) -> None:
        """Sites accept a key exactly if the scheme has masks, and its layout is that of the parcel."""
        told = problem([4] * 4)
        scheme: Any = schemes.create(coded(4, **{"schemes.sealed-coded.masks": masks}), told)
        _, _, transfers, parcels = set_up(scheme, told.shards)
        for transfer, parcel in zip(transfers, parcels, strict=True):
            assert layout(parcel) in scheme.parcels(transfer.recipient)
        keys = [found for found in scheme.parcels(0) if "key" in found]
        assert keys == ([{"kind": (np.dtype(np.int8), ()), "key": (np.dtype(np.uint8), (32,))}] if masks else [])


class TestSecondSetUp:
    def keys_and_pads(self, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[bytes]]:
        """Every private key that is drawn and the tag of every mask that is expanded, from now on."""
        keys: list[bytes] = []
        tags: list[bytes] = []
        make, add = AgreementKey.__init__, PairwiseMasks.add_one

        def noted(self: AgreementKey, secret: bytes | None = None) -> None:
            make(self, secret)
            keys.append(self.public)

        def expanded(self: Any, other: int, pieces: Any, chunk: int, ring: Any) -> None:
            if self._index < other:  # the other one of the pair expands the same
                tags.append(self._seeds[other] + bytes([chunk]))
            add(self, other, pieces, chunk, ring)

        monkeypatch.setattr(AgreementKey, "__init__", noted)
        monkeypatch.setattr(PairwiseMasks, "add_one", expanded)
        return keys, tags

    def test_a_resumed_training_has_fresh_keys_and_the_same_bits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told, chosen = problem([4] * 5), coded(5, **{"training.epochs": 7})
        whole = trained(told, chosen)
        keys, tags = self.keys_and_pads(monkeypatch)
        saved: list[dict[str, Any]] = []
        trained(told, chosen, after_epoch=lambda state: saved.append(state.to_arrays()))
        resumed = trained(told, chosen, State.from_arrays(saved[3]))
        assert len(keys) == len(set(keys)) == 2 * 5
        assert len(tags) == len(set(tags)) == 2 * 10, "one chunk, ten pairs"
        assert resumed.model.tobytes() == whole.model.tobytes()
        assert resumed.history.columns == whole.history.columns

    def test_a_set_up_that_lost_a_device_begins_again_with_fresh_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told, chosen = problem([4] * 5), coded(5)
        whole = trained(told, chosen)
        keys, tags = self.keys_and_pads(monkeypatch)
        with pytest.raises(LostDevicesError, match="before the set-up was over"):
            trained(told, chosen, last_epochs={3: 0})
        again = trained(told, chosen)
        assert len(keys) == len(set(keys)) == 2 * 5
        assert len(tags) == len(set(tags)) == 10, "the first set-up ended before anything was sealed"
        assert again.model.tobytes() == whole.model.tobytes()


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("masks", [True, False])
def test_a_plan_is_the_run(masks: bool, offline: bool) -> None:
    told = problem([4] * 5)
    chosen = coded(5, **{"schemes.sealed-coded.masks": masks, "training.first_epoch_offline": offline})
    planned = predict(probe(chosen, told), chosen, epochs=5, draws=1)
    # a run adds stages to the clock one by one, a plan adds up the epoch first
    assert np.allclose(planned[0], trained(told, chosen).history.columns["time"], rtol=1e-12, atol=0)


def test_workers_do_not_depend_on_masks() -> None:
    found = {schemes.nominal(coded(6, **{"schemes.sealed-coded.masks": masks})).workers for masks in (True, False)}  # type: ignore[attr-defined]
    assert len(found) == 1


def neighbourhoods(devices: int, neighbours: int) -> tuple[Any, list[frozenset[int]]]:
    options = {"schemes.sealed-coded.neighbours": neighbours}
    scheme: Any = schemes.create(coded(devices, **options), problem([2] * devices, features=4, outputs=1))
    return scheme, [scheme.layout.sharing_masks(device) for device in range(devices)]


@pytest.mark.parametrize(("devices", "neighbours"), [(9, 2), (9, 4), (9, 5), (8, 6), (8, 7), (8, 256), (12, 4)])
def test_masks_of_neighbours_connect_all_but_any_harmless_pool(devices: int, neighbours: int) -> None:
    """And some pool of one device more is left with a device alone, or with two devices or fewer."""
    scheme, graph = neighbourhoods(devices, neighbours)
    assert all(one in graph[other] for one in range(devices) for other in graph[one]), "masks are shared"
    assert {len(each) for each in graph} == {min(neighbours + neighbours % 2, devices - 1)}

    def connected(pool: frozenset[int]) -> bool:
        others = set(range(devices)) - pool
        reached = {min(others)}
        for _ in others:
            reached |= {device for one in reached for device in graph[one]} & others
        return reached == others

    harmless = scheme.harmless_pool
    pools = [frozenset(each) for size in range(harmless + 2) for each in itertools.combinations(range(devices), size)]
    assert all(connected(pool) for pool in pools if len(pool) <= harmless)
    assert any(not connected(pool) or devices - len(pool) < 2 for pool in pools if len(pool) == harmless + 1)


def test_masks_of_neighbours_change_no_bit_and_pools_of_them_are_named() -> None:
    told = problem([3] * 9, features=6, outputs=2)
    few, every = (coded(9, **{"schemes.sealed-coded.neighbours": count}) for count in (4, 8))
    assert trained(told, few).model.tobytes() == trained(told, every).model.tobytes()
    scheme: Any = schemes.create(few, told)
    assert scheme.harmless_pool == 3
    assert "at most 3 devices collude" in scheme.allowed_if
    reasons = {cell.reason for cell in scheme.secrecy() if cell.adversary == "server and devices"}
    assert any("with up to 3 devices it learns the sum over the others only" in reason for reason in reasons)
    with pytest.raises(CipherError, match="first key of a device that it shares masks with"):
        scheme.device(0, told.shards[0]).absorb_from(
            1, {"kind": np.array(KEY, np.int8), "key": np.frombuffer(AgreementKey().public, np.uint8)}, Work()
        )
