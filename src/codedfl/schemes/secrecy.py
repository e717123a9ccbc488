"""What each adversary may learn of each asset under a scheme: one verdict and one reason a cell.

The statements hold for real sites that run this package; SECURITY.md explains adversaries, assets and verdicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

ADVERSARIES = {
    "eavesdropper": "reads every parcel on the links between devices",
    "device": "one curious device: follows the protocol and keeps what it sees",
    "devices": "all devices but one, which pool what they see",
    "server": "the curious server: follows the protocol and keeps what it sees",
    "server and devices": "the curious server and some devices, which pool what they see",
    "deviating server": "asks what it likes of sites that run this package",
    "deviating device": "replies and claims what it likes",
    "model reader": "sees the released model only",
}
ASSETS = {
    "gram": "Gram matrix or rows of a device",
    "gradient": "gradient of a device",
    "membership of a device": "membership of a record in the data of one device",
    "membership in the union": "membership of a record in the data of all devices",
}
PROVEN, BOUNDED, LEAKS, FALLS = "proven", "bounded", "leaks", "falls"
NOT_PROTECTED, NOT_EXAMINED = "not protected", "not examined"
WORST_FIRST = (FALLS, NOT_PROTECTED, LEAKS, NOT_EXAMINED, BOUNDED, PROVEN)

SUMS, COMBINATIONS, REPLIES = "server sees sums", "server sees combinations", "server sees replies"
NO_NOISE = ", and no noise is added"
CLEAR, COSTS_ONLY, BROKEN = "not encrypted", "models costs only", "broken"
ENCRYPTED = (SUMS, COMBINATIONS, REPLIES)
"""Summaries of a scheme's secrecy whose parcels are proven to hide data."""


@dataclass(frozen=True)
class Leakage:
    """One sentence per party: what it sees beyond the model and the sizes of the shards."""

    server: str
    devices: str
    eavesdropper: str

    def to_table(self) -> dict[str, str]:
        """Return the sentences by party."""
        return {"server": self.server, "devices": self.devices, "eavesdropper": self.eavesdropper}


@dataclass(frozen=True)
class Secrecy:
    """One cell: the verdict on an asset against an adversary, and its reason."""

    adversary: str
    asset: str
    verdict: str
    reason: str

    def to_table(self) -> dict[str, str]:
        """Return plain values."""
        return dict(vars(self))


class Cell(NamedTuple):
    """A verdict and its reason."""

    verdict: str
    reason: str


class Learned(NamedTuple):
    """What an adversary learns of the four assets, in the order of ``ASSETS``."""

    gram: Cell
    gradient: Cell
    own: Cell
    union: Cell


def all_cells(views: Mapping[str, Learned]) -> tuple[Secrecy, ...]:
    """Return the cells of all adversaries and assets; an adversary without a view is not examined.

    >>> cells = all_cells({"eavesdropper": nothing("devices send each other nothing")})
    >>> len(cells), cells[0].verdict, cells[-1].verdict
    (32, 'proven', 'not examined')
    """
    unknown = alike(NOT_EXAMINED, "its author has not said what it tells this adversary")
    rows = ((name, views.get(name, unknown)) for name in ADVERSARIES)
    return tuple(Secrecy(name, asset, *cell) for name, seen in rows for asset, cell in zip(ASSETS, seen, strict=True))


def alike(verdict: str, reason: str) -> Learned:
    """Return one verdict on all assets."""
    return Learned(*(Cell(verdict, reason),) * len(ASSETS))


def nothing(reason: str) -> Learned:
    """Return the view of an adversary that learns nothing."""
    return alike(PROVEN, reason)


def sums(reason: str, over: str = "all devices") -> Learned:
    """Return the view of sums over devices: they hide a single device, and tell whose records are in them."""
    hidden = Cell(PROVEN, f"{reason} (of one run: two runs that differ by a device tell its part)")
    record = f"sums over {over} tell that a record is in them"
    return Learned(hidden, hidden, Cell(LEAKS, f"{record}, not at which device"), Cell(LEAKS, record))


def replies(reason: str) -> Learned:
    """Return the view of the products of single devices' data with the models, one an epoch."""
    matrix = Cell(LEAKS, f"{reason}: its Gram matrix on the span of the models, all of it after d/c epochs")
    member = Cell(LEAKS, "what is known of a Gram matrix tells who is in it")
    return Learned(matrix, Cell(NOT_PROTECTED, reason), member, member)


def whole(reason: str) -> Learned:
    """Return the view of single devices' Gram matrices."""
    member = Cell(FALLS, "a Gram matrix tells who is in the data")
    return Learned(Cell(FALLS, reason), Cell(FALLS, "the Gram matrix and the models give it"), member, member)


def from_models(devices: int, others: Learned | None = None) -> dict[str, Learned]:
    """Return the views of those who get the models of gradient descent: devices, and readers of the last one.

    ``others`` is what a device learns from parcels, if that is more.
    """
    pooled = "models in a row tell the summed gradient, from which all others subtract theirs"
    together = replies(pooled)._replace(gradient=Cell(LEAKS, pooled))
    one = together if devices < 3 else sums("models tell sums over the other devices only", "the other devices")
    own = one if others is None else others
    return {"device": own, "devices": together if others is None else others, "deviating device": own} | released()


def released() -> dict[str, Learned]:
    """Return the view of the released model."""
    unclear = Cell(NOT_EXAMINED, "the model is one function of sums over all devices")
    member = Cell(LEAKS, f"a model fits the records that it was trained on better than others{NO_NOISE}")
    return {"model reader": Learned(unclear, unclear, member, member)}


SEALED_PARCELS = "parcels look uniform if AES-256 in counter mode is a pseudo-random function"


REPLIES_ALLOWED = (
    "the server may read the replies of every device, as in ordinary federated learning, and colludes with no device"
)


def clear_views(devices: int, reason: str) -> dict[str, Learned]:
    """Return the views where the server reads single replies, and devices send each other nothing."""
    server = replies(reason)
    return {
        "eavesdropper": nothing("devices send each other nothing"),
        "server": server,
        "server and devices": server,
        "deviating server": server,
        **from_models(devices),
    }


def sealed_views(devices: int, parcels: str) -> dict[str, Learned]:
    """Return the views of all but the server where parcels between devices tell nothing."""
    return {"eavesdropper": nothing(parcels), **from_models(devices)}


def sharing_views(devices: int, parcels: str) -> dict[str, Learned]:
    """Return the views where stragglers hand over data that only the server could open."""
    server = replies("it reads the reply of every active device: of its own data until it receives a parcel")
    pooled = whole("a device that received a parcel gives it to the server, which can open it")
    views = {"server": server, "deviating server": server, "server and devices": pooled}
    return sealed_views(devices, parcels) | views


def summed_views(devices: int, neighbours: int) -> dict[str, Learned]:
    """Return the views where all devices add up sealed data before the server asks anything.

    Every device shares masks under the seals with so many ``neighbours``, which cancel in the sum over all devices.
    """
    seen = "all replies are computed from the sealed sum over all devices"
    refused = "sites give it nothing before each has the sealed data of all others exactly once"
    pooled = whole("device a adds up band a of every Gram matrix, whose pads the server knows: c devices tell c bands")
    if neighbours and devices < 3:
        pooled = whole("of two devices, one knows all masks and subtracts its own data from the sum")
    elif neighbours == devices - 1:
        pooled = sums(
            "with up to N - 2 devices it learns the sum over the others only, whose masks cancel in no other sum, if "
            "X25519 and AES-256 hold; with N - 1 it subtracts their data from the sum and has the last device's",
            "the other devices",
        )
    elif neighbours:
        pooled = sums(
            f"with up to {neighbours - 1} devices it learns the sum over the others only, whose masks cancel in no "
            f"other sum, if X25519 and AES-256 hold; with the {neighbours} devices that share masks with one, its data",
            "the other devices",
        )
    server = {"server": sums(seen), "deviating server": sums(f"{seen}; {refused}"), "server and devices": pooled}
    return sealed_views(devices, SEALED_PARCELS) | server
