"""What the tests of sealed schemes share: integer arithmetic on Python's own integers, and who was granted what."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from codedfl.cipher.seals import FixedPoint
from codedfl.engines.virtual import move
from codedfl.scenario import Scenario
from codedfl.schemes import Message, Scheme, Server, Transfer
from codedfl.schemes.sealing import PointedProducts
from codedfl.task import Shard
from tiny import scenario


def fleet(*rates: float) -> list[dict[str, float]]:
    """One group for each device."""
    return [{"count": 1, "mac_rate": rate} for rate in rates]


def wanted(name: str, changes: Mapping[str, Any] | None = None, *, rates: Sequence[float] = (1e6,) * 6) -> Scenario:
    """A scheme on a fleet with the given speeds."""
    settings = {"scheme": name, "fleet.devices": fleet(*rates), "training.learning_rate": 0.1}
    return scenario({**settings, **(changes or {})})


def integers(matrix: np.ndarray, bits: int) -> np.ndarray:
    """Every entry in steps of 2^-bits, rounded to the nearest (to even in the middle), as Python integers."""
    scale = Fraction(2) ** bits
    rounded = [round(Fraction(float(entry)) * scale) for entry in matrix.reshape(-1)]
    return np.array(rounded, dtype=object).reshape(matrix.shape)


def summed(matrices: Sequence[np.ndarray], form: FixedPoint) -> np.ndarray:
    """The sum of the rounded matrices, as Python integers."""
    return sum(integers(matrix, form.data_bits) for matrix in matrices)


def centred(residues: np.ndarray, modulus: int) -> np.ndarray:
    """The integers of least magnitude that are congruent to residues, as Python integers."""
    lifted = [int(entry) - modulus if 2 * int(entry) >= modulus else int(entry) for entry in residues.reshape(-1)]
    return np.array(lifted, dtype=object).reshape(residues.shape)


def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, np.ndarray]]:
    """From now on, what servers sent and the product that they decoded from the replies, both as residues."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    take = PointedProducts.take

    def watched(self: PointedProducts, residues: np.ndarray) -> np.ndarray:
        found.append((self.asked.copy(), residues.copy()))
        return take(self, residues)

    monkeypatch.setattr(PointedProducts, "take", watched)
    return found


def is_exact(sent: np.ndarray, product: np.ndarray, scheme: Any, shards: Sequence[Shard]) -> bool:
    """Whether a decoded product is that of the sent integers with the summed rounded Gram matrices."""
    form = scheme.formats.gram
    modulus = form.ring.modulus
    expected = centred(sent, modulus) @ summed([shard.gram for shard in shards], form)
    assert max(abs(expected.reshape(-1))) <= modulus // 2, "the true result fits, so it can be told from others"
    return np.array_equal(centred(product, modulus), expected)


def carry(devices: Sequence[Any], transfers: Sequence[Transfer]) -> list[Any]:
    """Move data as told; return the parcels."""
    parcels = []
    for transfer in transfers:
        recipient = devices[transfer.recipient]
        absorb = recipient.absorb_from

        def note(sender: int, parcel: Any, work: Any, owners: Any, absorb: Any = absorb) -> None:
            parcels.append({key: array.copy() for key, array in parcel.items()})
            absorb(sender, parcel, work, owners)

        recipient.absorb_from = note
        move(devices, transfer, _nobody)
        recipient.absorb_from = absorb
    return parcels


def _nobody(sender: int, parcel: Message) -> None:
    raise AssertionError("nothing is sent to the server")


def set_up(scheme: Scheme[Any], shards: Sequence[Shard]) -> tuple[Server, list[Any], list[Transfer], list[Any]]:
    """Server and devices before the first epoch, the transfers that led there, and their parcels."""
    server: Any = scheme.server()
    devices = [scheme.device(index, shard) for index, shard in enumerate(shards)]
    transfers = [transfer for stage in server.set_up() for transfer in stage.transfers]
    return server, devices, transfers, carry(devices, transfers)
