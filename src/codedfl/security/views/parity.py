"""Views of ``parity``: gradients of one device, and parity data of one batch."""

from collections.abc import Sequence

from codedfl.schemes.coded.parity import Parity, Secrets
from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.views.kinds import ParityView
from codedfl.security.views.replies import reply_series
from codedfl.task import Shard, gram


def parity_exposures(scheme: Parity, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the server's views of the first batch: gradients of one device, and the parity data of largest mass."""
    return [*_replies(scheme, transcript, shards), *_parity_data(scheme, transcript, shards)]


def _replies(scheme: Parity, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    for everything in transcript.series():
        entries = [entry for entry in everything if (entry.epoch - 1) % scheme.options.parts == 0]
        if entries:
            device = entries[0].device
            at_zero = transcript.first(device).reply["gradient"]
            view = reply_series(entries, lambda entry: entry.reply["gradient"], at_zero=at_zero)
            rows = Secrets(scheme.options.seed, device, 0, scheme.batches[0][device]).worked
            return [Exposure(view, device, gram(shards[device].x[rows]))]
    return []


def _parity_data(scheme: Parity, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    entries = [entry for entry in transcript.parcels if int(entry.parcel["batch"]) == 0]
    if not entries:
        return []
    entry = max(entries, key=lambda entry: scheme.batches[0][entry.sender].mass)
    batch, device = scheme.batches[0][entry.sender], entry.sender
    view = ParityView(entry.parcel["features"], entry.parcel["targets"], batch.weighted, batch.mass)
    points = shards[device].x[Secrets(scheme.options.seed, device, 0, batch).weighted]
    return [Exposure(view, device, gram(points), points=points)]
