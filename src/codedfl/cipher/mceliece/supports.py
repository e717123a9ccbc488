"""An error support: the secret that the server hands to one device over a secure channel."""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Int64

from codedfl.errors import CipherError


@final
@dataclass(frozen=True, eq=False, repr=False)
class Support:
    """Positions where one device adds errors. ``index`` numbers it among the supports of the key ``key``."""

    key: str
    index: int
    positions: Int64[np.ndarray, "t"]

    def __post_init__(self) -> None:
        positions = self.positions
        distinct = positions.ndim == 1 and np.unique(positions).size == positions.size
        if not distinct or positions.size == 0 or positions.min() < 0:
            raise CipherError(
                f"Support {self.index} does not list distinct positions: take it from PrivateKey.support."
            )
        frozen = positions.view()
        frozen.flags.writeable = False
        object.__setattr__(self, "positions", frozen)

    @property
    def size(self) -> int:
        """The number of positions, t."""
        return int(self.positions.size)

    def __repr__(self) -> str:
        return f"Support({self.index}, {self.size} secret positions, key {self.key[:12]})"
