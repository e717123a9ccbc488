"""The device of the sealed and coded scheme: what it seals, adds up, passes on and replies, and what it refuses.

It seals nothing before it has a mask key of every device that shares a mask with it
(``codedfl.schemes.coded.pairwise_masks``). It passes nothing on that is about fewer devices than it adds up: no sum,
block, part or reply before it has exactly one sealed piece of every other member of its group and one sum of every
child group (``codedfl.schemes.coded.placing.groups``), which keep to the same rule. It multiplies nothing before its
coded block is complete.
"""

from collections.abc import Set
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import UInt

from codedfl.cipher.seals import PadLedger, seal
from codedfl.errors import CipherError
from codedfl.schemes.coded.pairwise_masks import PairwiseMasks
from codedfl.schemes.coded.placing.block_layout import BLOCK, KEY, PART, PIECE, REPAIR, SUM, BlockLayout
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.sealing import Formats
from codedfl.schemes.sharing.sealed import pad_of
from codedfl.task import Shard

Residues = UInt[np.ndarray, "..."]


@final
class SealedCodedDevice(Device):
    """Owns a shard, may add up bands, and may be a worker."""

    def __init__(self, index: int, shard: Shard, formats: Formats, layout: BlockLayout, public: Public) -> None:
        self._index = index
        self._devices = public.devices
        self._nonce = public.nonce(index)
        self._model_shape = public.outputs, public.features
        self._formats = formats
        self._field = formats.field
        self._layout = layout
        self._shard: Shard | None = shard
        self._ledger = PadLedger()
        self._masks = PairwiseMasks(index, public, layout.sharing_masks(index)) if layout.masked else None
        """Forgotten when the data is sealed."""
        self._pieces: dict[int, UInt[np.ndarray, "size"]] = {}
        groups = layout.groups
        parts = {*groups.members(index % groups.count), *groups.children(index)}
        self._owned, self._bands = layout.owned_by(index), layout.bands.count
        self._missing = {number: set(parts) for number in layout.added_by(index)}
        """Devices of which nothing is in the sum of a band."""
        self._sums: dict[int, UInt[np.ndarray, "size"]] = {}
        self._blocks: dict[int, dict[int, UInt[np.ndarray, "rows columns"]]] = {}
        self._early_blocks: dict[int, dict[int, UInt[np.ndarray, "rows columns"]]] = {}
        """Blocks that came before the sum of the own band was complete."""
        self._moments: dict[int, UInt[np.ndarray, "rows c"]] = {}
        self._spread: dict[int, list[UInt[np.ndarray, "..."]]] = {}
        self._coded: UInt[np.ndarray, "d width"] | None = None
        self._places: set[int] = set()
        """Bands whose part is in its coded block."""
        self._charged: set[int] = set()
        """Own bands whose part was counted as work before it could be placed."""
        self._helpers: set[int] = set()
        """Workers whose multiples are in the coded block of a replacement."""

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply its bands of the summed right-hand side in the first epoch, the coded product in every other."""
        if epoch == 1:
            moments = [self._opened(number)[1] for number in self._owned]
            return {"moments": self._field.to_wire(np.concatenate(moments))} if moments else {}
        coded = self._complete
        model = self._field.read(request, "model", self._model_shape, f"The model for device {self._index}")
        work.macs += model.size * coded.shape[1]
        return {"product": self._field.wire_product(model, coded)}

    def export(self, grant: Message, work: Work) -> Message:
        """Return the parcel of the granted kind: sealed piece, sum, block, part of a coded block, or coded block."""
        if not {"kind", "target"} <= set(grant):
            raise self._refusal("sends no data without a grant that names the kind of parcel and its target")
        kind, target, send = int(grant["kind"]), int(grant["target"]), self._field.to_wire
        if kind == KEY:
            if self._masks is None:
                raise self._refusal("has no mask key to send")
            return {"kind": grant["kind"], "key": self._masks.export(work)}
        if kind == REPAIR:
            factor = self._field.read(grant, "factor", (), f"The grant of device {self._index}")
            return {"kind": grant["kind"], "coded": send(self._scaled(factor, work))}
        makers = {PIECE: self._piece, SUM: self._sum, BLOCK: self._block, PART: self._part}
        if kind not in makers or "band" not in grant:
            raise self._refusal(f"sends no parcels of kind {kind} without the band")
        names = {PIECE: "piece", SUM: "piece", BLOCK: "block", PART: "part"}
        made = makers[kind](target, int(grant["band"]), grant, work)
        return {"kind": grant["kind"], "band": grant["band"], names[kind]: send(made)}

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Receive a parcel of any kind; its sender is the device whose piece, sum, band or coded block it is."""
        if "kind" not in parcel or sender not in range(self._devices):
            raise self._refusal(f"cannot tell what device {sender} has sent")
        kind = int(parcel["kind"])
        whole = {REPAIR: self._add_multiple, KEY: self._add_key}
        if kind in whole:
            whole[kind](sender, parcel, work)
            return
        banded = {PIECE: self._add_piece, SUM: self._add_sum, BLOCK: self._add_block, PART: self._add_part}
        if kind not in banded or "band" not in parcel:
            raise self._refusal(f"knows no parcels of kind {kind} without a band")
        banded[kind](sender, int(parcel["band"]), parcel, work)

    def keep(self) -> Message | None:
        """Return its coded block, if it is complete: a combination of sealed sums over all devices."""
        return {"coded": self._field.to_wire(self._coded)} if self._whole and self._coded is not None else None

    def recall(self, kept: Message) -> None:
        """Take its coded block again; it then seals nothing any more."""
        if self._shard is None or self._coded is not None:
            raise self._refusal("takes no kept block after it has sealed its data or received others'")
        shape = self._layout.bands.rows, self._layout.width
        self._coded = self._field.read(kept, "coded", shape, f"What device {self._index} has kept")
        self._shard, self._masks, self._places = None, None, set(range(self._bands))

    def _add_piece(self, sender: int, number: int, parcel: Message, work: Work) -> None:
        groups = self._layout.groups
        if (sender - self._index) % groups.count or sender == self._index:
            raise self._refusal(f"adds pieces of the other members of its group, and none of device {sender}")
        self._add(sender, number, parcel, work)

    def _add_sum(self, sender: int, number: int, parcel: Message, work: Work) -> None:
        if sender not in self._layout.groups.children(self._index):
            raise self._refusal(f"adds sums of its child groups, and none of device {sender}")
        self._add(sender, number, parcel, work)

    def _add(self, sender: int, number: int, parcel: Message, work: Work) -> None:
        if sender not in self._missing.get(number, ()):
            raise self._refusal(f"adds one piece of every other device, and none of device {sender} now")
        more = self._taken(sender, parcel, "piece", (self._layout.bands.size(number),))
        self._sums[number] = self._added(self._sums.get(number), more, work)
        self._missing[number].remove(sender)

    def _add_block(self, sender: int, number: int, parcel: Message, work: Work) -> None:
        """Take the block of the sender's band with the own band of the same chunk."""
        bands = self._layout.bands
        own = self._band_beside(number)
        if own is None or number not in self._layout.owned_by(sender) or own not in bands.held_by(number):
            raise self._refusal(f"expects no block of device {sender}")
        early = self._early_blocks.setdefault(own, {})
        blocks = self._blocks.get(own, early)
        if number in blocks:
            raise self._refusal(f"expects no block of device {sender}")
        shape = bands.height(number), bands.height(own)
        blocks[number] = np.ascontiguousarray(self._taken(sender, parcel, "block", shape).T)

    def _add_part(self, sender: int, number: int, parcel: Message, work: Work) -> None:
        layout, bands = self._layout, self._layout.bands
        known = number in self._places or self._helpers
        if number not in layout.owned_by(sender) or sender == self._index or known:
            raise self._refusal(f"expects no part of a coded block of device {sender}")
        part = self._taken(sender, parcel, "part", (layout.part_size(number),))
        if self._coded is None:
            self._coded = np.zeros((bands.rows, layout.width), self._field.dtype)
        own = self._band_beside(number)
        if own is not None and own not in self._places | self._charged:
            if self._joinable(own):
                self._place_own(own, work)
            else:  # its own blocks are still on their way: placed later, but the work of this stage in any case
                work.add(layout.part_operations(own))
                self._charged.add(own)
        layout.place(self._coded, number, part)
        self._places.add(number)

    def _place_own(self, number: int, work: Work) -> None:
        """Write the part of an own band into the own coded block: a device does not send it to itself."""
        coded, part = self._coded, self._part(self._index, number, {}, work)
        if coded is not None:
            self._layout.place(coded, number, part)
            self._places.add(number)

    def _band_beside(self, number: int) -> int | None:
        """Return the own band in the chunk of another one; None if there is none, or no such chunk."""
        chunk = self._layout.bands.chunk(number)
        return next((each for each in self._owned if each in chunk), None)

    def _add_multiple(self, sender: int, parcel: Message, work: Work) -> None:
        if sender in self._helpers or self._places or len(self._helpers) == self._layout.code.K:
            raise self._refusal(f"expects no coded block of device {sender}")
        shape = self._layout.bands.rows, self._layout.width
        self._coded = self._added(self._coded, self._taken(sender, parcel, "coded", shape), work)
        self._helpers.add(sender)

    def _add_key(self, sender: int, parcel: Message, work: Work) -> None:
        if self._masks is None:
            raise self._refusal(f"expects no mask key of device {sender}")
        self._masks.absorb(sender, parcel, work)

    def _taken(self, sender: int, parcel: Message, name: str, shape: tuple[int, ...]) -> Residues:
        return self._field.read(parcel, name, shape, f"A parcel of device {sender}")

    def _added(self, total: Residues | None, more: Residues, work: Work) -> Residues:
        work.add(more.size)
        return more if total is None else self._field.add(total, more)

    def _piece(self, target: int, number: int, grant: Message, work: Work) -> Residues:
        """Return a sealed piece, once."""
        if not self._pieces:
            self._seal(grant, work)
        bands, groups = self._layout.bands, self._layout.groups
        adder = groups.device(number % bands.adders, self._index % groups.count)
        if number not in self._pieces or target != adder or adder == self._index:
            raise self._refusal(f"has no piece of band {number} for device {target}, or sent it before")
        work.add(self._pieces[number].size)
        return self._pieces.pop(number)

    def _seal(self, grant: Message, work: Work) -> None:
        """Seal all pieces once, and add its own to its sums; what is sent counts as work when it is sent."""
        if self._shard is None:
            raise self._refusal("has sealed its data before")
        masks = self._masks
        if masks is not None and (missing := masks.missing):
            raise self._refusal(f"seals nothing before it has the mask key of device {min(missing)}")
        bands, shard = self._layout.bands, self._shard
        pads = [pad_of(self._field, self._index, grant, chunk, self._nonce) for chunk in range(bands.chunks)]
        gram = self._formats.gram.encode_symmetric(shard.gram_once())
        moments = self._formats.moments.encode(-shard.moments)
        self._shard, self._masks = None, None
        for chunk, pad in enumerate(pads):
            pieces = seal(bands.pieces(chunk, gram, moments), pad, self._ledger)
            if masks is not None:
                masks.add_to(pieces, chunk, self._field, work)
            self._pieces |= {number: pieces[bands.within(number)] for number in bands.chunk(chunk * bands.adders)}
        for number in self._layout.added_by(self._index):
            work.add(self._pieces[number].size)
            self._sums[number] = self._added(self._sums.get(number), self._pieces.pop(number), Work())
            self._missing[number].remove(self._index)

    def _check_sum(self, number: int) -> None:
        """Refuse if the sum of a band is about fewer devices than it should be."""
        missing = self._missing.get(number)
        if missing is None:
            raise self._refusal(f"does not add up band {number}")
        if missing:
            others = len(missing) - 1
            more = f" and {others} more" if others else ""
            raise self._refusal(
                f"has no sealed piece of device {min(missing)}{more}, and sums over fewer devices than all stay "
                "where they are"
            )

    def _sum(self, target: int, number: int, grant: Message, work: Work) -> Residues:
        """Return the sum of a band over its group and those below, once, for the parent group."""
        self._check_sum(number)
        if target != self._layout.groups.parent(self._index) or number not in self._sums:
            raise self._refusal(f"has no sum of band {number} for device {target}, or sent it before")
        return self._sums.pop(number)

    def _opened(self, number: int) -> tuple[dict[int, Residues], Residues]:
        """Split the sum of a band into blocks and right-hand side; refuse if it is about fewer devices than all."""
        self._check_sum(number)
        if number not in self._owned:
            raise self._refusal(f"has not the sum of band {number} over all devices")
        if number in self._sums:
            self._blocks[number], self._moments[number] = self._layout.bands.unpack(number, self._sums.pop(number))
            self._blocks[number] |= self._early_blocks.pop(number, {})
        return self._blocks[number], self._moments[number]

    def _block(self, target: int, number: int, grant: Message, work: Work) -> Residues:
        """Return the block of an own band with the target's band of the same chunk."""
        blocks, _ = self._opened(number)
        found = [other for other in self._layout.bands.held_by(number) if self._layout.owner(other) == target]
        if not found:
            raise self._refusal(f"has no block for device {target}")
        return blocks[found[0]]

    def _joinable(self, number: int) -> bool:
        """Whether an own band is over all devices and has its blocks with all bands up to its chunk."""
        whole = number in self._missing and not self._missing[number]
        return whole and len(self._opened(number)[0]) == self._layout.bands.chunk(number).stop

    def _part(self, worker: int, number: int, grant: Message, work: Work) -> Residues:
        """Return the part of a worker's coded block that follows from an own band."""
        self._check_sum(number)
        if worker not in range(self._devices) or not self._joinable(number):
            raise self._refusal(f"has no part of a coded block for device {worker}")
        if number not in self._spread:
            rows = self._layout.bands.joined(number, self._blocks[number])
            self._spread[number] = self._layout.spread(number, rows)
        work.add(self._layout.part_operations(number))
        return self._layout.part(worker, self._spread[number])

    @property
    def _whole(self) -> bool:
        """Whether its coded block has all parts; own ones that came after those of others are added now."""
        for own in self._owned if self._places else ():
            if own not in self._places and self._joinable(own):
                self._place_own(own, Work())
        return len(self._places) == self._bands or len(self._helpers) == self._layout.code.K

    @cached_property
    def _complete(self) -> UInt[np.ndarray, "d width"]:
        """The coded block of a worker, which then stays as it is; refuse before all its parts are there."""
        if not self._whole or self._coded is None:
            raise self._refusal("is no worker, or its coded block is not complete")
        return self._coded

    def _scaled(self, factor: UInt[np.ndarray, ""], work: Work) -> UInt[np.ndarray, "d width"]:
        coded = self._complete
        work.add(coded.size)
        scaled = np.zeros_like(coded)
        self._field.add_multiple(scaled, int(factor), coded)
        return scaled

    def _refusal(self, reason: str) -> CipherError:
        return CipherError(f"Device {self._index} {reason}: ask for what the scheme needs, in its order.")
