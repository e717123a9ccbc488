"""How a device signs for itself, and how it knows who it is dealing with."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True)
class Identity:
    """Signs for this device, and checks signatures of other devices by their pinned keys."""

    sign: Callable[[bytes], bytes] = field(repr=False)
    """Maps a message to this device's signature."""
    verify: Callable[[int, bytes, bytes], bool] = field(repr=False)
    """Takes a device's number, a message and a signature; returns whether the device has signed the message."""
    known: Set[int]
    """Numbers of the devices whose signatures it can check."""
