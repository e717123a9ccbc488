"""Bytes that others make raise nothing but a ``CodedflError`` in one sentence: mutations by structure and by bytes.

``python -m benchmarks fuzz`` is the longer campaign.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codedfl.testing.mutations import FuzzTarget, fuzz_targets, mutated

NAMES = (
    *("frame", "parcel", "envelope", "description of a site", "scenario", "rows.parquet", "rows.csv", "rows.npz"),
    *("site.toml", "run/summary.json", "run/epochs.parquet", "run/timings.npy", "run/scenario.toml"),
    *("model/model.json", "model/model.npz", "site-record.json", "device.key"),
)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, FuzzTarget]]:
    yield {target.name: target for target in fuzz_targets(tmp_path_factory.mktemp("fuzz"))}


def test_every_reader_is_fuzzed(targets: dict[str, FuzzTarget]) -> None:
    assert tuple(targets) == NAMES
    for target in targets.values():
        assert target.refusal(target.valid) is None, target.name


@pytest.mark.parametrize("name", NAMES)
def test_mutated_bytes_are_read_or_refused_in_words(name: str, targets: dict[str, FuzzTarget]) -> None:
    target = targets[name]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32 - 1), st.integers(1, 3))
    def holds(seed: int, times: int) -> None:
        rng, changed = np.random.default_rng(seed), target.valid
        for _ in range(times):
            changed = mutated(changed, rng)
        sentence = target.refusal(changed)
        assert sentence is None or sentence.replace("\n", " ").isprintable()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=200))
    def holds_for_anything(given: bytes) -> None:
        target.refusal(given)
        target.refusal(target.valid[:8] + given)

    try:
        holds()
        holds_for_anything()
    finally:
        target.refusal(target.valid)
