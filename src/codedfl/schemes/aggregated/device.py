"""Secure aggregation, the device's side: the replies of another scheme under masks, and their number format."""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, final

import numpy as np

from codedfl.cipher.seals import Z_64, FixedPoint, Ring
from codedfl.errors import CipherError, TrainingError
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.masker import Masker
from codedfl.schemes.aggregated.noisy import ExactReplies
from codedfl.schemes.aggregated.server import ENTRIES
from codedfl.schemes.contract import Device, ReplySum
from codedfl.schemes.identity import Identity
from codedfl.schemes.messages import Layout, Message, Work

FORM = "form"
"""Entry of a request with the number format: how many bits after the binary point devices round to."""
LARGEST = 1e250
"""Largest bound on a sum; a larger one means that training diverged. Its inverse replaces smaller bounds."""
SUM_BITS = 62
"""A sum is at most 2^62 steps in Z_2^64, plus one step of rounding per device."""
_OWN = (*ENTRIES, FORM)
_QUESTIONS = ("asked", "keys", "envelopes", "listed", "survivors")
"""Entries that identify the requests of the rounds of a sum, in order."""


def form_message(bits: int) -> dict[str, Any]:
    """Return the entry of a request with the number format."""
    return {FORM: np.array(bits, np.int16)}


def number_form(bits: int, summands: int) -> FixedPoint:
    """Return the format with steps of 2^-bits for sums of at most 2^62 steps before rounding."""
    bound = math.ldexp(1.0, SUM_BITS - bits)
    return FixedPoint(Z_64, bits, bound, summands, bound)


def proper_form(request: Message, summands: int) -> FixedPoint | None:
    """Return the number format that a request declares, for so many summands; None if replies are residues."""
    return number_form(int(request[FORM]), summands) if FORM in request else None


def proper_request(request: Message) -> dict[str, Any]:
    """Return the inner scheme's request, without the entries of the protocol."""
    return {name: array for name, array in request.items() if name not in _OWN}


def sum_format(kinds: Sequence[Ring | float], summands: int) -> tuple[Ring, FixedPoint | None]:
    """Return the ring of the sum, and the finest format whose sums fit it; None if replies are residues."""
    if isinstance(kinds[0], Ring):
        return kinds[0], None
    bound = max(float(kind) for kind in kinds if not isinstance(kind, Ring))
    if not bound <= LARGEST:
        raise TrainingError("training diverged: the model is no longer finite; lower training.learning_rate")
    _, exponent = math.frexp(max(bound, 1 / LARGEST))  # the bound is below 2^exponent
    return Z_64, number_form(SUM_BITS - exponent, summands)


def masked_layouts(expected: Mapping[int, Layout] | None, ring: Ring) -> dict[int, Layout] | None:
    """Return the layouts of replies under masks: residues of the ring, in the same shapes."""
    if expected is None:
        return None
    return {
        device: {name: (ring.dtype, shape) for name, (_, shape) in reply.items()} for device, reply in expected.items()
    }


@final
class MaskedDevice(Device):
    """Masks every reply of a device of the inner scheme; its parcels are those of the inner scheme.

    It refuses requests for a reply without masks. Where devices hand data over, a single one may remain: it then
    replies without masks, if it holds the data of all. With ``once`` it takes part in a single sum.
    """

    def __init__(
        self,
        index: int,
        inner: Device,
        reply_sum: ReplySum,
        share: float,
        cohort: Cohort,
        *,
        once: bool = False,
        spare: bytes | None = None,
        noisy: ExactReplies | None = None,
        coarsest: float = math.inf,
    ) -> None:
        """Take the device's share of all data points as ``share``, and the seed of its spare noise.

        Replies with noise are those of ``noisy``, in steps of at most ``coarsest``.
        """
        self._index = index
        self._inner = inner
        self._reply_sum = reply_sum
        self._share = share
        self._cohort = cohort
        self._noisy = noisy
        self._coarsest = coarsest
        self._masker = Masker(index, cohort, once=once, spare=spare)

    def identify(self, identity: Identity) -> None:
        """Sign keys and lists of survivors from now on."""
        self._masker.identify(identity)

    def opens(self, request: Message) -> Sequence[int] | None:
        """Return the survivors in the last round of a sum."""
        return [int(device) for device in request["survivors"]] if "survivors" in request else None

    def reply(self, epoch: int, request: Message, work: Work) -> Message:
        """Reply in a round of the protocol; in the third, the inner reply under masks."""
        held = self._inner.covers(epoch) if self._cohort.hands_over else frozenset()
        if not any(name in request for name in _QUESTIONS):
            if held != self._cohort.everyone:
                raise CipherError(
                    f"Device {self._index} was asked for a reply without masks and does not hold the data of all "
                    "devices: use secure aggregation."
                )
            return self._inner.reply(epoch, request, work)
        if "envelopes" not in request:
            return self._masker.answer(epoch, request, work, held)
        inner = proper_request(request)
        form = proper_form(request, 1)
        if self._noisy is not None:
            step = math.inf if form is None else form.data_step
            if form is None or step > self._coarsest:
                raise CipherError(
                    f"Device {self._index} was asked to round its noisy reply to steps of {step:.2g}, which shows more "
                    f"than its noise hides: ask for steps of at most {self._coarsest:.2g}."
                )
            reply = self._noisy.reply(inner["model"], form.data_bits, work)
            return self._masker.mask(epoch, request, reply, Z_64, work, held)
        kind = self._reply_sum(epoch, inner)
        reply = self._inner.reply(epoch, inner, work)
        if isinstance(kind, Ring) or form is None:
            return self._masker.mask(epoch, request, reply, kind if isinstance(kind, Ring) else Z_64, work, held)
        # refuse entries above the device's share of the bound: the sum could overflow the ring undetected
        bound = form.sum_bound * self._share
        rounded = {name: form.encode(array, bound=bound) for name, array in reply.items()}
        return self._masker.mask(epoch, request, rounded, Z_64, work, held)

    def export(self, grant: Message, work: Work) -> Message:
        """Return the parcel of the inner scheme."""
        return self._inner.export(grant, work)

    def absorb_from(self, sender: int, parcel: Message, work: Work, owners: Set[int] = frozenset()) -> None:
        """Receive a parcel as in the inner scheme."""
        self._inner.absorb_from(sender, parcel, work, owners)

    def owners(self, grant: Message) -> Set[int]:
        """Return whose data a parcel of the inner scheme contains."""
        return self._inner.owners(grant)
