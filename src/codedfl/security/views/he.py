"""Views of ``he``: CKKS ciphertexts, and the products that the server decrypts."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, UInt8

from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import PRIME_BITS, SCALE, Lattice
from codedfl.cipher.seals.triangles import unpack_upper
from codedfl.schemes.sharing.he import Encrypted
from codedfl.schemes.sharing.he_backends import RING, CkksBackend, CkksOpener
from codedfl.security.transcript import Exposure, RecordedParcel, Transcript
from codedfl.security.views.kinds import RepliesView
from codedfl.security.views.replies import Stacks, longest_of_each
from codedfl.security.views.residues import as_seen, opened_parcel, parcel_exposures, rounded, sealed_exposures
from codedfl.task import Shard


def encrypted_exposures(scheme: Encrypted, transcript: Transcript, shards: Sequence[Shard]) -> list[Exposure]:
    """Return ciphertexts as an attacker reads them, and the server's view of a device's own data."""
    form = scheme.formats.gram
    stacks, found = Stacks(lambda entry: as_seen(RING, entry.request["model"]).T), []
    for entries in longest_of_each(transcript.single()):
        device, models = entries[0].device, stacks.of(entries)
        # what the server decrypts is exact: the product of the model with the rounded data
        view = RepliesView(models, np.asarray(rounded(form, shards[device].gram) @ models))
        found.append(Exposure(view, device, shards[device].gram))
    parcels = [entry for entry in transcript.parcels if "gram" in entry.parcel]
    for entry in parcels[:1]:
        gram = shards[entry.sender].gram
        found.append(opened_parcel(form, rounded(form, gram) / form.data_step, entry.sender, gram))
    if not scheme.encrypts:
        return [*found, *_encrypted(scheme, parcels, shards)]
    words = {id(entry): _as_read(scheme.lattice, entry.parcel["gram"], scheme.public.features) for entry in parcels}
    return found + parcel_exposures(form, parcels, words, shards, 2.0**PRIME_BITS / SCALE)


def _encrypted(scheme: Encrypted, parcels: Sequence[RecordedParcel], shards: Sequence[Shard]) -> Iterable[Exposure]:
    """Encrypt one parcel for the attackers where the run models costs only, if TenSEAL is installed."""
    for entry in parcels[:1] if ckks.installed() else ():
        form, gram, lattice = scheme.formats.gram, shards[entry.sender].gram, scheme.lattice
        backend = CkksBackend(lattice)
        backend.take_key(CkksOpener(lattice, scheme.public.features).public_words)
        packed = backend.to_bytes(backend.hide(unpack_upper(form.encode_symmetric(gram))))
        for exposure in sealed_exposures(form, _as_read(lattice, packed, len(gram)), entry.sender, gram):
            yield dataclasses.replace(exposure, assumption="encrypted for the attack: the run models costs only")


def _as_read(lattice: Lattice, packed: UInt8[np.ndarray, "count bytes"], features: int) -> Float[np.ndarray, "d d"]:
    """Return the first polynomials of ciphertexts as signed numbers, half of one in place of each row."""
    first = lattice.from_bytes(packed)[:, : lattice.degree].reshape(-1, lattice.degree // 2)
    signed = (first[:features, :features] << np.uint64(4)).view(np.int64) >> 4
    return np.asarray(signed / SCALE)
