"""The difference of two sums is the device that was in one of them, and nothing where all data were others."""

import numpy as np

from codedfl.security.attacks.null import Null
from codedfl.security.attacks.two_runs import TwoRuns
from codedfl.security.scoring import Truth, score
from codedfl.security.views.kinds import TwoRunsView
from security.ciphertexts import gram_matrix

DEVICES = np.random.default_rng(5)
GRAMS = [gram_matrix(10, 15, DEVICES) for _ in range(5)]
TRUTH = Truth(gram=GRAMS[4])


def test_the_device_that_leaves_is_read(rng: np.random.Generator) -> None:
    found = TwoRuns().run(TwoRunsView(sum(GRAMS), sum(GRAMS[:4])), rng)
    assert score(found, TRUTH).verdict == "falls"
    np.testing.assert_allclose(found.gram, GRAMS[4], atol=1e-12)


def test_sums_over_other_data_tell_nothing(rng: np.random.Generator) -> None:
    """A second run on fresh data of the same kind: what is left is the noise of four devices."""
    other = sum(gram_matrix(10, 15, rng) for _ in range(4))
    assert score(TwoRuns().run(TwoRunsView(sum(GRAMS), other), rng), TRUTH).verdict == "holds"


def test_the_null_attacker_gets_the_zero_matrix(rng: np.random.Generator) -> None:
    assert score(Null().run(TwoRunsView(sum(GRAMS), sum(GRAMS[:4])), rng), TRUTH).relative_error == 1.0
