"""Law: the parts of a partition are disjoint, none is empty, and together they are all samples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data import partition
from codedfl.errors import DataError


@st.composite
def requests(draw):
    devices = draw(st.integers(1, 12))
    shards = draw(st.integers(1, 4))
    samples = draw(st.integers(devices * shards, 400))
    labels = np.array(draw(st.lists(st.integers(0, 5), min_size=samples, max_size=samples)), dtype=np.int64)
    weights = st.floats(0.5, 4.0)
    options = {
        "kind": draw(st.sampled_from(["iid", "shards", "dirichlet", "sizes"])),
        "seed": draw(st.integers(0, 2**63)),
        "shards_per_device": shards,
        "alpha": draw(st.floats(1e-3, 100)),
        "sizes": draw(st.lists(weights, min_size=devices, max_size=devices)),
    }
    return labels, devices, options


@given(requests())
def test_every_sample_is_held_exactly_once(request):
    labels, devices, options = request
    try:
        parts = partition(labels, len(labels), devices, **options)
    except DataError:
        # only these two kinds may be impossible once there are enough samples
        assert options["kind"] in ("dirichlet", "sizes")
        return
    assert len(parts) == devices
    assert all(part.size for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


@given(requests())
def test_the_seed_decides_everything(request):
    labels, devices, options = request
    try:
        first = partition(labels, len(labels), devices, **options)
    except DataError:
        return
    second = partition(labels, len(labels), devices, **options)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
