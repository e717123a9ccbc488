"""Random sets of positions that a decoder can restore."""

import numpy as np

from codedfl.codes.erasure.contract import ErasureDecoder
from codedfl.codes.mdpc import MdpcCode
from codedfl.errors import UndecodableError


def draw_support(code: MdpcCode, size: int, rng: np.random.Generator, decoder: ErasureDecoder) -> np.ndarray:
    """Draw until the decoder restores the set: uniform among those that it can."""
    while True:
        positions = np.sort(rng.choice(code.n, size, replace=False))
        try:
            decoder.prepare(code, positions)
        except UndecodableError:
            continue
        return positions
