"""Verdicts on a Gram matrix that was found, against what could be guessed without any message."""

import numpy as np
import pytest

from codedfl.security.contract import Finding
from codedfl.security.scoring import Truth, score

TRUE = np.diag([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("error", "guess", "verdict"),
    [
        (2**-7, 1.0, "falls"),
        (2**-7, 2**-6, "falls"),
        (2**-7, 2**-7, "holds"),
        (2**-7, 2**-8, "holds"),
        (0.0, 0.0, "holds"),
        (2**-6, 1.0, "leaks"),
        (0.5, 0.53, "leaks"),
        (0.5, 0.52, "holds"),
        (0.5, 0.25, "holds"),
    ],
)
def test_an_attack_no_better_than_the_guess_holds(error: float, guess: float, verdict: str) -> None:
    """Below 1e-2 the matrix falls, if that is news; else it leaks if the error is below 95% of the guess's."""
    found = score(Finding(gram=(1 + error) * TRUE), Truth(gram=TRUE, guess_error=guess))
    assert (found.relative_error, found.verdict) == (error, verdict)
