"""What secure aggregation adds to the errors of the scheme inside it, by formulas, and which of both it blames."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.schemes import Public
from codedfl.schemes.plain.conventional import Conventional
from codedfl.schemes.rounding import Rounding, relative_error
from schemes.aggregated.test_noisy import release
from schemes.residues import fleet
from tiny import scenario

SIZES = (4, 7, 3, 5, 9, 3)
N, M, D, C = 6, 31, 8, 2
F, T = 2.0, 0.5


def built(inner: str = "conventional", dtype: str = "float64", **changes: Any) -> Any:
    largest = {"largest_feature": F, "largest_target": T}
    public = Public(SIZES, D, C, np.dtype(dtype), **(largest | changes))
    chosen = scenario({"scheme": "secagg", "schemes.secagg.inner": inner, "fleet.devices": fleet(*[1e6] * N)})
    return schemes.build(chosen, public)


def test_replies_are_rounded_to_half_a_step_of_a_sum_of_two_to_the_62() -> None:
    """Sums are at most m F (F ||Theta_k||_1 + T) and a step at most 2^-61 of that; N devices round."""
    scheme = built()
    found, inner = scheme.rounding, scheme.inner.rounding
    moments, joint = N / 2 * 2.0**-61 * M * F * T, N / 2 * 2.0**-61 * M * F * F
    assert found.gram == inner.gram > 0
    assert found.moments - inner.moments == pytest.approx(moments, rel=1e-3, abs=0)
    assert found.joint == pytest.approx(joint, rel=1e-12, abs=0)
    assert found.uniform == (0.0, pytest.approx(moments, rel=1e-12, abs=0))


@pytest.mark.parametrize("noise", [{}, {"release": release()}], ids=["exact", "noisy"])
def test_errors_of_the_scheme_inside_stay(monkeypatch: pytest.MonkeyPatch, noise: dict[str, Any]) -> None:
    """A scheme of an author's own may round to steps, too; what masks add does not depend on them."""
    scheme = built(**noise)
    usual, inner = scheme.rounding, scheme.inner.rounding
    coarse = replace(inner, gram=inner.gram + 2.0, moments=inner.moments + 3.0, joint=5.0, uniform=(2.0, 3.0))
    monkeypatch.setattr(Conventional, "rounding", property(lambda self: coarse))
    found = scheme.rounding
    assert (found.gram - usual.gram, found.moments - usual.moments) == (pytest.approx(2), pytest.approx(3))
    assert found.joint == usual.joint + 5
    assert found.uniform == (usual.uniform[0] + 2, usual.uniform[1] + 3)


def test_an_outlier_that_the_scheme_inside_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 0.1 are far above a thousandth of sums of data up to 1, and far below sums of data up to 1000."""
    claims = ((1000.0, 1.0), *[(1.0, 1.0)] * 5)
    steps = Rounding(0.1, 0.1, uniform=(0.1, 0.1))
    monkeypatch.setattr(Conventional, "rounding", property(lambda self: steps))
    with pytest.raises(ScenarioError, match="bound"):
        built(largest_feature=1000.0, largest_target=1.0, claims=claims, bound_share=1e-3)


def test_residues_are_not_rounded_again() -> None:
    scheme = built("sealed")
    assert scheme.rounding == scheme.inner.rounding is not None


@pytest.mark.parametrize("ratio", [0.4, 0.6, 0.9, 1.1, 3.0])
def test_the_larger_error_is_blamed(ratio: float) -> None:
    """With s the share of its bound that the energy of the data has, masks round (1 + sqrt(d)) N 2^-62 / s of it.

    Arithmetic errs by a chain of n + d + 1 roundings, 9 + 8 + 1 of them, times 1 + sqrt(d).
    """
    share = N * 2.0**-62 / (ratio * relative_error(18, "float64"))
    scheme = built(feature_energy=share * M * F**2, target_energy=share * M * T**2)
    own, inner = scheme._mask_rounding.relative(scheme.public), scheme.inner.rounding.relative(scheme.public)
    assert own / inner == pytest.approx(ratio, rel=1e-6)
    found = scheme.rounding
    if ratio < 1:
        assert (found.cause, found.advice) == (scheme.inner.rounding.cause, scheme.inner.rounding.advice)
        assert found.cause == "float64 arithmetic on up to 9 rows"
    else:
        assert found.cause == "features up to 2 and targets up to 0.5, far above what is typical"
        assert found.advice == 'set features.scale = "standard", remove outliers or raise task.accuracy'
    assert found.relative(scheme.public) == pytest.approx(own + inner, rel=1e-9, abs=0)
