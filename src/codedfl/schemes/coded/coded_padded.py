"""CodedPaddedFL: padded data shared with alpha - 1 neighbours, and a gradient code over them.

(Schlegel, Kumar, Rosnes, Graell i Amat, "CodedPaddedFL and CodedSecAgg: Straggler mitigation and secure aggregation in
federated learning", 2023.) Set-up, before the first epoch: every device j pads its Gram matrix and moments once,
A_j + R_j, with a pad that only it and the server can make, and sends the same padded data to the alpha - 1 devices
whose windows contain it, through the server as published or over direct links. Device i keeps one matrix,
sum_j b_ij (A_j + R_j) over its window (``codedfl.codes.GradientCode``).

An epoch: each device replies theta^T times its matrix. Any N - alpha + 1 replies give theta^T sum_j (A_j + R_j), and
the server takes theta^T sum R away. Everything is computed modulo a prime of 48 bits, so that it is exact. Up to
alpha - 1 devices may be lost for good after the set-up.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt64

from codedfl.cipher.seals import FIELD_48, packed_size, unpack_upper
from codedfl.codes import GradientCode
from codedfl.errors import ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.coded.coded_padded_device import EVERYTHING, CodedPaddedDevice, split
from codedfl.schemes.coded.window_choice import choose_alpha
from codedfl.schemes.contract import (
    Device,
    Exposure,
    Leakage,
    Message,
    PlacingServer,
    Public,
    Round,
    Scheme,
    Server,
    Transcript,
    Transfer,
    Work,
    layout,
)
from codedfl.schemes.sealing import Formats, PointedProducts, check_bounds, product
from codedfl.schemes.sharing.sealed import SEALED_DEVICES, SEALED_EAVESDROPPER, fresh_grant, pad_of
from codedfl.security.transcript import Asked
from codedfl.security.views.kinds import RepliesView
from codedfl.security.views.sealed import as_seen, from_models, opened_parcel, sealed_exposures, sealed_pair
from codedfl.settings import setting
from codedfl.task import Shard

__all__ = ["CodedPadded"]

DATA_BITS = 24
"""Bits behind the point that are published: 24 of 48."""


class CodedPaddedOptions(SchemeOptions):
    """Alpha, how many devices hold the data of each; chosen by predicted time where it is not given.

    ``sharing`` says how padded data get there: by ``relay`` through the server or over ``direct`` links;
    ``expected_epochs`` is what the set-up is weighed against.
    """

    alpha: int | None = setting(
        default=None, low=1, help="Number of devices that hold the data of each; chosen by predicted time if unset."
    )
    sharing: str = setting(
        default="relay",
        choices=("relay", "direct"),
        help="How padded data reach other devices: by relay through the server, or over direct links.",
    )
    expected_epochs: int = setting(
        default=100, low=1, help="Number of epochs that the time of the set-up is weighed against."
    )

    @property
    def relayed(self) -> bool:
        """Whether parcels go through the server."""
        return self.sharing == "relay"

    def check_fleet(self, devices: int) -> None:
        """Nobody can hold the data of more devices than there are."""
        if devices < 2:
            raise ScenarioError("scheme = 'coded-padded' needs at least 2 devices: with one, the sum is its own data")
        if self.alpha is not None and self.alpha > devices:
            raise ScenarioError(
                f"schemes.coded-padded.alpha = {self.alpha} must be at most {devices}, the number of devices"
            )


@final
class CodedPaddedServer(PlacingServer):
    """Hands out seeds, decodes any N - alpha + 1 replies, and takes the pads away."""

    def __init__(self, public: Public, formats: Formats, code: GradientCode, *, relayed: bool) -> None:
        self._public = public
        self._formats = formats
        self._code = code
        self._relayed = relayed
        self._gone: set[int] = set()
        self._products = PointedProducts(formats.gram, public)
        d, c = public.features, public.outputs
        self._first = np.zeros((d, c))
        self._pads = np.zeros((d, d), FIELD_48.dtype)
        self._moment_pads = np.zeros((d, c), FIELD_48.dtype)

    def stages(self) -> Sequence[Sequence[Transfer]]:
        """Let everyone send its padded data to the devices before it, one turn after the other."""
        n, turns = self._public.devices, range(1, self._code.alpha)
        if not turns:
            return []
        grants: list[dict[str, Any]] = [fresh_grant(0) for _ in range(n)]
        self.add_pads(grants)
        transfers = []
        for turn in turns:
            for sender in range(n):
                grant, grants[sender] = grants[sender], {}
                transfers.append(Transfer(sender, (sender - turn) % n, None, grant, relayed=self._relayed))
        return [transfers]

    def add_pads(self, grants: Sequence[Message]) -> None:
        """Add up the pads of all devices."""
        d, c = self._public.features, self._public.outputs
        total = np.zeros(packed_size(d) + d * c, FIELD_48.dtype)
        for device, grant in enumerate(grants):
            pad_of(FIELD_48, device, grant, EVERYTHING).add_to(total)
        triangle, moments = split(total, d, c)
        self._pads, self._moment_pads = unpack_upper(triangle), moments.copy()

    def broadcast(self, epoch: int, model: Float[np.ndarray, "d c"]) -> Round:
        """Ask everyone who is there, for moments first, then for products."""
        present = [device for device in range(self._public.devices) if device not in self._gone]
        if epoch == 1:
            reply = layout({"moments": FIELD_48.to_wire(np.zeros(model.shape, FIELD_48.dtype))})
            expected = dict.fromkeys(present, reply)
            return Round(epoch, {device: {} for device in present}, np.zeros_like(model), expected=expected)
        message = {"model": FIELD_48.to_wire(self._products.ask(model))}
        reply = layout({"product": message["model"]})
        return Round(
            epoch,
            dict.fromkeys(present, message),
            self._products.point,
            expected=dict.fromkeys(present, reply),
        )

    @property
    def quorum(self) -> int:
        """Any N - alpha + 1."""
        return self._code.threshold

    def combine(self, epoch: int, replies: Mapping[int, Message], work: Work) -> Float[np.ndarray, "d c"]:
        """Decode any N - alpha + 1 replies and take the pads away."""
        samples = sum(self._public.samples)
        if epoch == 1:
            total = FIELD_48.subtract(self._decoded(replies, "moments", work), self._moment_pads)
            self._first = self._formats.moments.decode_sum(total)
            return np.asarray(self._first / samples)
        total = self.opened(self._products.asked, replies, work)
        return np.asarray((self._first + self._products.take(total)) / samples)

    def opened(
        self, model: UInt64[np.ndarray, "c d"], replies: Mapping[int, Message], work: Work
    ) -> UInt64[np.ndarray, "c d"]:
        """Decode the product of a model with the sum of all data from any N - alpha + 1 replies."""
        total = self._decoded(replies, "product", work)
        if self._code.alpha == 1:  # nothing was padded
            return total
        return FIELD_48.subtract(total, product(FIELD_48, model, self._pads, work))

    def _decoded(self, replies: Mapping[int, Message], name: str, work: Work) -> UInt64[np.ndarray, "..."]:
        which = sorted(replies)[: self._code.threshold]
        total = np.zeros(replies[which[0]][name].shape[:-1], FIELD_48.dtype)
        for device, factor in zip(which, self._code.decoder(which), strict=True):
            work.add(total.size)
            FIELD_48.add_multiple(total, factor, FIELD_48.from_wire(replies[device][name]))
        return total

    def repair(self, lost: Sequence[int]) -> Sequence[Transfer]:
        """Note who is gone; nothing is sent again, because the others hold enough."""
        self._gone |= set(lost)
        return ()

    def memory(self) -> Message:
        """Return the summed moments, where the newest product is known, and who is gone."""
        return {"first": self._first, "gone": np.array(sorted(self._gone), np.int64), **self._products.memory()}

    def recall(self, memory: Message) -> Sequence[Sequence[Transfer]]:
        """Take back what was remembered; nothing was sent beside the set-up."""
        self._first = memory["first"]
        self._gone = {int(device) for device in memory["gone"]}
        self._products.recall(memory)
        return ()


@final
class CodedPadded(Scheme[CodedPaddedOptions]):
    """Padded data shared with neighbours under a gradient code; any N - alpha + 1 replies finish an epoch."""

    name = "coded-padded"
    options_type = CodedPaddedOptions
    exact = True
    follows_timing = False
    verdict = "holds"
    because = (
        "What devices send each other looks uniform as long as AES-256 in counter mode is a pseudo-random function; "
        "the server knows the pads, so what it relays must be encrypted end to end, it must not collude with a device, "
        "and replies tell it N - alpha + 1 combinations of the gradients of N devices."
    )

    def check(self) -> None:
        """Refuse a fleet of one, more parts than devices, and data that the field cannot hold."""
        self.options.check_fleet(self.public.devices)
        _ = self.formats

    @cached_property
    def formats(self) -> Formats:
        """The number formats, which everybody can work out."""
        return Formats.choose(FIELD_48, self.public, data_bits=DATA_BITS)

    @cached_property
    def code(self) -> GradientCode:
        """Who holds whose data, with what coefficients."""
        alpha = self.options.alpha or choose_alpha(
            self.public, FIELD_48.bits, relayed=self.options.relayed, expected_epochs=self.options.expected_epochs
        )
        return GradientCode(self.public.devices, alpha, FIELD_48.modulus)

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device; it pads its data when it is granted a seed."""
        check_bounds(self.public, shard)
        return CodedPaddedDevice(index, shard, self.formats, self.code)

    def server(self) -> Server:
        """Prepare the server."""
        return self._server()

    def _server(self) -> CodedPaddedServer:
        return CodedPaddedServer(self.public, self.formats, self.code, relayed=self.options.relayed)

    @property
    def survives_losses(self) -> int:
        """All but as many as decode, after the set-up."""
        return self.code.alpha - 1

    def leakage(self) -> Leakage:
        """Say who sees what."""
        replies = (
            "the sum of all moments; from all replies, which it can open because it knows the pads, the products of "
            "the models with N - alpha + 1 known combinations of the data of N devices, none of a single one"
        )
        relay = "; the data themselves, if it can read the parcels that it relays: they must be encrypted end to end"
        if self.code.alpha == 1:
            return Leakage(
                server="the moments and the gradient of every single device",
                devices="nothing is sent to them but models, which tell sums over all devices, and so the gradients of "
                "a single device if all others collude",
                eavesdropper="nothing between devices; on links to the server everything, unless they are encrypted",
            )
        return Leakage(replies + (relay if self.options.relayed else ""), SEALED_DEVICES, SEALED_EAVESDROPPER)

    def exposures(self, transcript: Transcript, shards: Sequence[Shard]) -> Sequence[Exposure]:
        """Return the parcels of two devices, what the server makes of replies and parcels, and what models tell."""
        form, gram = self.formats.gram, shards[0].gram
        grants = {entry.sender: entry.grant for entry in transcript.sent if "seed" in entry.grant}
        models, sums = self._sums(transcript, grants)
        share = self.public.samples[0] / sum(self.public.samples)
        guess = RepliesView(models, self._best_guess(shards) @ models)
        found = [from_models(form, models, 0, gram)]
        if not grants:  # alpha = 1: the best guess is the truth
            return [Exposure(guess, 0, gram), *found]
        vectors = [self._sent(transcript, device) for device in (0, 1)]
        words = [self._words(vector) for vector in vectors]
        found += sealed_exposures(form, words[0], 0, gram)
        found.append(sealed_pair(form, (words[0], gram), (words[1], shards[1].gram)))
        found.append(Exposure(RepliesView(models, share * sums), 0, gram))
        found.append(Exposure(guess, 0, gram, assumption="all coded replies together, at best"))
        if self.options.relayed:
            pad = pad_of(FIELD_48, 0, grants[0], EVERYTHING).residues(vectors[0].size)
            clear = self._words(FIELD_48.subtract(vectors[0], pad))
            words_read = "a server that reads the parcel it relays, and knows its pad"
            found.append(opened_parcel(form, clear, 0, gram, words_read))
        return found

    def _sent(self, transcript: Transcript, device: int) -> UInt64[np.ndarray, "size"]:
        return FIELD_48.from_wire(next(e.parcel["words"] for e in transcript.sent if e.sender == device))

    def _words(self, vector: UInt64[np.ndarray, "size"]) -> Float[np.ndarray, "d d"]:
        return as_seen(FIELD_48, unpack_upper(split(vector, self.public.features, self.public.outputs)[0]))

    def _sums(
        self, transcript: Transcript, grants: Mapping[int, Message]
    ) -> tuple[Float[np.ndarray, "epochs d c"], Float[np.ndarray, "epochs d c"]]:
        """Return the models, and what the server decodes from the replies: products with the sum of all data."""
        server = self._server()
        if grants:
            server.add_pads([grants[device] for device in range(self.public.devices)])
        epochs: dict[int, dict[int, Asked]] = {}
        for entry in transcript.asked:
            if entry.epoch > 1:
                epochs.setdefault(entry.epoch, {})[entry.device] = entry
        models = [FIELD_48.from_wire(next(iter(entries.values())).request["model"]) for entries in epochs.values()]
        sums = [
            server.opened(model, {device: entry.reply for device, entry in entries.items()}, Work())
            for model, entries in zip(models, epochs.values(), strict=True)
        ]
        points, products = (np.stack([as_seen(FIELD_48, item).T for item in items]) for items in (models, sums))
        return points, products * self.formats.gram.data_step

    def _best_guess(self, shards: Sequence[Shard]) -> Float[np.ndarray, "d d"]:
        """Return what all coded replies together tell at best of the data of the first device, as rounded."""
        form = self.formats.gram
        weights = self.code.visible(0)
        parts = (as_seen(FIELD_48, form.encode(shard.gram)) for shard in shards)
        return np.asarray(sum(weight * part for weight, part in zip(weights, parts, strict=True)) * form.data_step)
