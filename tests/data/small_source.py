"""A small data set in the shape of MNIST, with checksums of its own."""

import hashlib
import struct

import numpy as np

from codedfl.data.sources.download import DataFile
from codedfl.data.sources.known import FILE_NAMES, Source, obtain


def idx(array):
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


PIXELS = np.random.default_rng(0).integers(0, 256, (12, 3, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3
CONTENTS = dict(zip(FILE_NAMES, (idx(PIXELS), idx(LABELS), idx(PIXELS[:6]), idx(LABELS[:6])), strict=True))
FILES = tuple(DataFile(name, hashlib.sha256(content).hexdigest(), len(content)) for name, content in CONTENTS.items())


def small(*places):
    return Source("small", "a small data set", FILES, places, ("a", "b", "c"))


def get(source, said=None, progress=lambda done, total: None):
    def report(stage, done, total):
        if total:
            progress(done, total)
        elif said is not None:
            said.append(stage)

    return obtain(source, report)


def cached(cache):
    return {path.name: path.read_bytes() for path in cache.iterdir()} if cache.exists() else {}
