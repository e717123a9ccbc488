"""Views of ``sealed``: sealed parcels, and the products that the server opens."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from codedfl.cipher.seals.triangles import unpack_upper
from codedfl.schemes.sharing.sealed import GRAM, Sealed, pad_of
from codedfl.security.transcript import Exposure, RecordedReply, Transcript
from codedfl.security.views.replies import Stacks, longest_of_each, reply_series
from codedfl.security.views.residues import as_seen, opened_parcel, parcel_exposures
from codedfl.task import Shard


def sealed_sharing_exposures(scheme: Sealed, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return sealed parcels as an attacker reads them, and the server's view of every device's own data."""
    form, ring = scheme.formats.gram, scheme.formats.ring
    parcels = [entry for entry in transcript.parcels if "gram" in entry.parcel]
    words = {id(entry): as_seen(ring, unpack_upper(entry.parcel["gram"])) for entry in parcels}
    stacks = Stacks(lambda entry: as_seen(ring, entry.request["model"]).T)

    def read(entry: RecordedReply) -> Float[np.ndarray, "d c"]:
        return as_seen(ring, entry.reply["product"]).T * form.data_step

    found = []
    for entries in longest_of_each(transcript.single()):
        device = entries[0].device
        found.append(Exposure(reply_series(entries, read, stacks), device, shards[device].gram))
    for entry in [entry for entry in parcels if len(entry.contents) == 1][:1]:
        pad = pad_of(ring, entry.sender, entry.grant, GRAM).residues(entry.parcel["gram"].size)
        clear = as_seen(ring, unpack_upper(ring.subtract(entry.parcel["gram"], pad)))
        found.append(opened_parcel(form, clear, entry.sender, shards[entry.sender].gram))
    return found + parcel_exposures(form, parcels, words, shards, float(ring.modulus))
