"""Views of ``sealed``: sealed parcels, and the products that the server opens."""

from collections.abc import Sequence

import numpy as np

from codedfl.cipher.seals.triangles import unpack_upper
from codedfl.schemes.sharing.sealed import Sealed
from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.views.kinds import RepliesView
from codedfl.security.views.residues import as_seen, from_models, parcel_exposures
from codedfl.task import Shard


def sealed_sharing_exposures(scheme: Sealed, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return sealed parcels as an attacker reads them, and the server's view of a device's own data."""
    form = scheme.formats.gram
    parcels = [entry for entry in transcript.parcels if "gram" in entry.parcel]
    words = {id(entry): as_seen(form.ring, unpack_upper(entry.parcel["gram"])) for entry in parcels}
    entries = next(series for series in transcript.series() if len(series[0].contents) == 1)
    models = np.stack([as_seen(form.ring, entry.request["model"]).T for entry in entries])
    replies = np.stack([as_seen(form.ring, entry.reply["product"]).T for entry in entries]) * form.data_step
    device = entries[0].device
    found = [Exposure(RepliesView(models, replies), device, shards[device].gram)]
    found.append(from_models(form, models, device, shards[device].gram))
    return found + parcel_exposures(form, parcels, words, shards, float(form.ring.modulus))
