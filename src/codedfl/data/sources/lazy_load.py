"""Data frames of an R package: a lazy-load database, that is an index and compressed records."""

import zlib
from typing import Any

from codedfl.errors import DataError, MissingExtraError

LENGTH_BYTES = 4
RECORD_BYTES = 64 << 20


def read_data_frame(index: bytes, database: bytes, name: str) -> Any:
    """Return the data frame ``name`` of a database (``.rdb``) with its index (``.rdx``), as a pandas data frame."""
    try:
        import rdata
    except ImportError:
        raise MissingExtraError("R data need rdata; install it with: pip install 'codedfl[data]'") from None

    def value(serialised: bytes) -> Any:
        # R's own format, of which the parser makes plain objects; no R code is run
        return rdata.conversion.convert(rdata.parser.parse_data(serialised, extension=".rds"))

    places = value(index)["variables"]
    if name not in places:
        raise DataError(f"the R database has no data frame {name!r}; it has {', '.join(places)}.")
    start, length = (int(number) for number in places[name])
    record = database[start : start + length]
    try:
        content = zlib.decompressobj().decompress(record[LENGTH_BYTES:], RECORD_BYTES)
    except zlib.error:
        content = b""
    if not content or len(content) != int.from_bytes(record[:LENGTH_BYTES], "big"):
        raise DataError(f"the record of {name!r} in the R database is broken; fetch it again.")
    return value(content)
