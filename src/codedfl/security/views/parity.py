"""Views of ``parity``: gradients, and parity data of one batch."""

from collections.abc import Iterable, Sequence

from codedfl.schemes.coded.parity import Parity, Secrets
from codedfl.security.transcript import Exposure, Transcript
from codedfl.security.views.kinds import ParityView
from codedfl.security.views.replies import Stacks, longest_of_each, reply_series
from codedfl.task import Shard, gram


def parity_exposures(scheme: Parity, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return the server's views of the first batch of every device: gradients, and parity data."""
    return [*_replies(scheme, transcript, shards), *_parity_data(scheme, transcript, shards)]


def _replies(scheme: Parity, transcript: Transcript, shards: Sequence[Shard]) -> Iterable[Exposure]:
    stacks = Stacks()
    for everything in longest_of_each(transcript.series()):
        entries = [entry for entry in everything if (entry.epoch - 1) % scheme.options.parts == 0]
        if entries:
            device = entries[0].device
            at_zero = transcript.first(device).reply["gradient"]
            view = reply_series(entries, lambda entry: entry.reply["gradient"], stacks, at_zero=at_zero)
            points = shards[device].x[Secrets(scheme.options.seed, device, 0, scheme.batches[0][device]).worked]
            yield Exposure(view, device, gram(points), points=points)


def _parity_data(scheme: Parity, transcript: Transcript, shards: Sequence[Shard]) -> Iterable[Exposure]:
    for entry in transcript.parcels:
        device, batch = entry.sender, scheme.batches[0][entry.sender]
        points = shards[device].x[Secrets(scheme.options.seed, device, 0, batch).weighted]
        if int(entry.parcel["batch"]) == 0 and len(points):
            view = ParityView(entry.parcel["features"], entry.parcel["targets"], batch.weighted, batch.mass)
            yield Exposure(view, device, gram(points), points=points)
