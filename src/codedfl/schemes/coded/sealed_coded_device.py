"""The device of the sealed and coded scheme: what it seals, adds up, passes on and replies, and what it refuses.

It seals nothing before it has a mask key of every other device (``codedfl.schemes.coded.pairwise_masks``). It passes
nothing on that is about fewer devices than all: no block, part or reply before it has exactly one sealed piece of every
other device, and no product before its coded block is complete.
"""

from collections.abc import Set
from typing import final

import numpy as np
from jaxtyping import UInt

from codedfl.cipher.masks.pairwise import KEY_BYTES
from codedfl.cipher.seals import PadLedger, PrimeField, seal, unpack_upper
from codedfl.codes.mds import MdsCode
from codedfl.errors import CipherError
from codedfl.schemes.coded.pairwise_masks import PairwiseMasks
from codedfl.schemes.coded.placement import Bands
from codedfl.schemes.contract import Device
from codedfl.schemes.messages import Layout, Message, Work
from codedfl.schemes.public import Public
from codedfl.schemes.sealing import Formats, taken
from codedfl.schemes.sharing.sealed import pad_of
from codedfl.task import Shard

Residues = UInt[np.ndarray, "..."]

PIECE, BLOCK, PART, REPAIR, KEY = range(5)
"""The kinds of parcels: a sealed piece, a block of a band, a part of a coded block, a whole coded block, a mask key."""


@final
class BlockLayout:
    """Public sizes: bands of rows, K column blocks of equal width (the last is padded with zeros), and the code.

    ``masked`` says whether devices put masks under their seals.
    """

    def __init__(self, public: Public, threshold: int, field: PrimeField, *, masked: bool) -> None:
        self.masked = masked
        self.bands = Bands(public.features, min(public.devices, public.features), public.outputs)
        self.code = MdsCode(public.devices, threshold, field.modulus)
        self.width = -(-public.features // threshold)

    def parcels(self, index: int, field: PrimeField) -> list[Layout]:
        """Return the layouts of parcels that a device may receive."""
        bands, wire = self.bands, field.wire_layout
        heights = sorted({bands.height(number) for number in range(bands.bands)})
        kind: Layout = {"kind": (np.dtype(np.int8), ())}
        named: Layout = {**kind, "band": (np.dtype(np.int32), ())}
        found: list[Layout] = [{**kind, "coded": wire(bands.rows, self.width)}]
        if self.masked:
            found.append({**kind, "key": (np.dtype(np.uint8), (KEY_BYTES,))})
        found += [{**named, "part": wire(height, self.width)} for height in heights]
        if index < bands.bands:
            found.append({**kind, "piece": wire(bands.size(index))})
            found += [{**named, "block": wire(height, bands.height(index))} for height in heights]
        return found

    def coded_rows(self, worker: int, rows: UInt[np.ndarray, "rows d"]) -> UInt[np.ndarray, "rows width"]:
        """Return rows of a worker's coded block, from the same rows of the full matrix."""
        padded = np.zeros((len(rows), self.width * self.code.K), rows.dtype)
        padded[:, : rows.shape[1]] = rows
        blocks = [padded[:, k * self.width : (k + 1) * self.width] for k in range(self.code.K)]
        return self.code.encode_block(worker, blocks)


@final
class SealedCodedDevice(Device):
    """Owns a shard, adds up one band, and may be a worker."""

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
        self._masks = PairwiseMasks(index, public) if layout.masked else None
        """Forgotten when the data is sealed."""
        self._pieces: dict[int, UInt[np.ndarray, "size"]] = {}
        self._missing = set(range(public.devices)) if index < layout.bands.bands else set()
        """Devices of which no piece is in its sum."""
        self._sum: UInt[np.ndarray, "size"] | None = None
        self._blocks: dict[int, UInt[np.ndarray, "rows columns"]] = {}
        self._moments: UInt[np.ndarray, "rows c"] | None = None
        self._coded: UInt[np.ndarray, "d width"] | None = None
        self._places: set[int] = set()
        """Bands whose part is in its coded block."""
        self._helpers: set[int] = set()
        """Workers whose multiples are in the coded block of a replacement."""

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply its band of the summed right-hand side in the first epoch, the coded product in every other."""
        if epoch == 1:
            self._unpack()
            return {} if self._moments is None else {"moments": self._field.to_wire(self._moments)}
        coded = self._complete()
        model = taken(self._field, request, "model", self._model_shape, f"The model for device {self._index}")
        work.macs += model.size * coded.shape[1]
        return {"product": self._field.to_wire(self._field.product(model, coded))}

    def export(self, grant: Message, work: Work) -> Message:
        """Return the parcel of the granted kind: sealed piece, block, part of a coded block, or coded block."""
        if not {"kind", "target"} <= set(grant):
            raise self._refusal("sends no data without a grant that names the kind of parcel and its target")
        kind, target, send = int(grant["kind"]), int(grant["target"]), self._field.to_wire
        own = {"band": np.array(self._index, np.int32)}
        if kind == KEY:
            if self._masks is None:
                raise self._refusal("has no mask key to send")
            return {"kind": grant["kind"], "key": self._masks.export(work)}
        if kind == PIECE:
            return {"kind": grant["kind"], "piece": send(self._piece(target, grant, work))}
        if kind == BLOCK:
            self._unpack()
            if target not in self._layout.bands.held_by(self._index):
                raise self._refusal(f"has no block for device {target}")
            return {"kind": grant["kind"], **own, "block": send(self._blocks[target])}
        if kind == PART:
            return {"kind": grant["kind"], **own, "part": send(self._part(target, work))}
        factor = taken(self._field, grant, "factor", (), f"The grant of device {self._index}")
        return {"kind": grant["kind"], "coded": send(self._scaled(factor, work))}

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Receive a parcel of any kind; its sender is the device whose piece, band or coded block it is."""
        if "kind" not in parcel or sender not in range(self._devices):
            raise self._refusal(f"cannot tell what device {sender} has sent")
        place = (self._add_piece, self._add_block, self._add_part, self._add_multiple, self._add_key)
        kind = int(parcel["kind"])
        if kind not in range(len(place)):
            raise self._refusal(f"knows no parcels of kind {kind}")
        place[kind](sender, parcel, work)

    def _add_piece(self, sender: int, parcel: Message, work: Work) -> None:
        if sender not in self._missing or sender == self._index:
            raise self._refusal(f"adds one piece of every other device, and none of device {sender} now")
        size = self._layout.bands.size(self._index)
        self._sum = self._added(self._sum, self._taken(sender, parcel, "piece", (size,)), work)
        self._missing.remove(sender)

    def _add_block(self, sender: int, parcel: Message, work: Work) -> None:
        bands = self._layout.bands
        self._unpack()
        known = sender in self._blocks
        if known or sender >= bands.bands or self._index not in bands.held_by(sender):
            raise self._refusal(f"expects no block of device {sender}")
        shape = bands.height(sender), bands.height(self._index)
        self._blocks[sender] = np.ascontiguousarray(self._taken(sender, parcel, "block", shape).T)

    def _add_part(self, sender: int, parcel: Message, work: Work) -> None:
        bands = self._layout.bands
        if sender >= bands.bands or sender in self._places | {self._index} or self._helpers:
            raise self._refusal(f"expects no part of a coded block of device {sender}")
        part = self._taken(sender, parcel, "part", (bands.height(sender), self._layout.width))
        if self._coded is None:
            coded = np.zeros((bands.rows, self._layout.width), self._field.dtype)
            if self._index < bands.bands:  # a device does not send its own band to itself
                coded[bands.band(self._index)] = self._part(self._index, work)
                self._places.add(self._index)
            self._coded = coded
        self._coded[bands.band(sender)] = part
        self._places.add(sender)

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
        return taken(self._field, parcel, name, shape, f"A parcel of device {sender}")

    def _added(self, total: Residues | None, more: Residues, work: Work) -> Residues:
        work.add(more.size)
        return more if total is None else self._field.add(total, more)

    def _piece(self, target: int, grant: Message, work: Work) -> Residues:
        """Return a sealed piece, once."""
        if not self._pieces:
            self._seal(grant, work)
        if target not in self._pieces:
            raise self._refusal(f"has no piece for device {target}, or sent it before")
        return self._pieces.pop(target)

    def _seal(self, grant: Message, work: Work) -> None:
        """Seal all pieces once, and add its own piece to its sum."""
        if self._shard is None:
            raise self._refusal("has sealed its data before")
        masks = self._masks
        if masks is not None and (missing := masks.missing):
            raise self._refusal(f"seals nothing before it has the mask key of device {min(missing)}")
        bands, shard = self._layout.bands, self._shard
        pads = [pad_of(self._field, self._index, grant, number, self._nonce) for number in range(bands.bands)]
        gram = unpack_upper(self._formats.gram.encode_symmetric(shard.gram))
        moments = self._formats.moments.encode(-shard.moments)
        self._shard, self._masks = None, None
        for number, pad in enumerate(pads):
            piece = bands.piece(number, gram, moments)
            work.add(piece.size)
            self._pieces[number] = seal(piece, pad, self._ledger)
            if masks is not None:
                masks.add_to(piece, number, self._field, work)
        if self._index in self._pieces:
            self._sum = self._added(self._sum, self._pieces.pop(self._index), Work())
            self._missing.remove(self._index)

    def _unpack(self) -> None:
        """Split the sum of pieces into blocks; refuse if it is about fewer devices than all."""
        if self._missing:
            others = len(self._missing) - 1
            more = f" and {others} more" if others else ""
            raise self._refusal(
                f"has no sealed piece of device {min(self._missing)}{more}, and sums over fewer devices than all stay "
                "where they are"
            )
        if self._sum is not None:
            blocks, self._moments = self._layout.bands.unpack(self._index, self._sum)
            self._blocks.update(blocks)
            self._sum = None

    def _part(self, worker: int, work: Work) -> UInt[np.ndarray, "rows width"]:
        self._unpack()
        bands = self._layout.bands.bands
        if worker not in range(self._devices) or self._index >= bands or len(self._blocks) < bands:
            raise self._refusal(f"has no part of a coded block for device {worker}")
        rows = self._layout.bands.joined(self._index, self._blocks)
        work.add(rows.size)
        return self._layout.coded_rows(worker, rows)

    def _complete(self) -> UInt[np.ndarray, "d width"]:
        """Return the coded block of a worker; refuse before all its parts are there."""
        whole = len(self._places) == self._layout.bands.bands or len(self._helpers) == self._layout.code.K
        if self._coded is None or not whole:
            raise self._refusal("is no worker, or its coded block is not complete")
        return self._coded

    def _scaled(self, factor: UInt[np.ndarray, ""], work: Work) -> UInt[np.ndarray, "d width"]:
        coded = self._complete()
        work.add(coded.size)
        scaled = np.zeros_like(coded)
        self._field.add_multiple(scaled, int(factor), coded)
        return scaled

    def _refusal(self, reason: str) -> CipherError:
        return CipherError(f"Device {self._index} {reason}: ask for what the scheme needs, in its order.")
