"""The attacker that looks at nothing scores chance on every view."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.security.attacks.null import Null
from codedfl.security.scoring import Truth, score
from codedfl.security.views import kinds as views
from security.ciphertexts import gram_matrix

D, N, T = 12, 30, 6
RNG = np.random.default_rng(3)
A = gram_matrix(D, 20, RNG)
G = RNG.standard_normal((D, N))
WORDS = A @ G
CANDIDATES = RNG.standard_normal((200, D))
TRUTH = Truth(gram=A, support=np.arange(T), members=np.arange(200) < 80, length=N)
VIEWS = {
    "parcel": views.ParcelView(G, WORDS, T, 2),
    "row": views.RowView(G, WORDS[0], T),
    "forward": views.ForwardView(G, (WORDS, WORDS), 3 * WORDS),
    "shared": views.SharedSupportView(G, WORDS, np.arange(T)),
    "pair": views.PairView(A, A, 2.0**31 - 1, 1.0),
    "replies": views.RepliesView(np.ones((2, D, 3)), np.ones((2, D, 3))),
    "masked replies": views.MaskedRepliesView(np.ones((2, D, 3)), np.ones((2, D, 3))),
    "summed replies": views.SummedRepliesView(np.ones((2, D, 3)), np.ones((2, D, 3))),
    "known others": views.KnownOthersView(np.ones((2, D, 3)), np.ones((2, D, 3)), 0.01),
    "two runs": views.TwoRunsView(2 * A, A),
    "cohorts": views.CohortsView(np.ones((2, D, 3)), np.ones((2, D, 3)), np.eye(2, dtype=bool), np.array([4, 5])),
    "model": views.ModelView(A[:, :3], CANDIDATES, CANDIDATES[:, :3]),
    "membership": views.MembershipView(A, CANDIDATES),
    "parity": views.ParityView(WORDS[:, :D], WORDS[:, :2], 20, 20.0),
    "parity membership": views.ParityMembershipView(WORDS[:, :D], 20, CANDIDATES),
}


def truth_of(name: str) -> Truth:
    return Truth(gram=A[:1], support=TRUTH.support, length=N) if name == "row" else TRUTH


def test_every_view_is_there() -> None:
    known = {value for value in vars(views).values() if inspect.isclass(value) and issubclass(value, views.View)}
    known -= {views.View}
    assert {type(view) for view in VIEWS.values()} == known


@pytest.mark.parametrize("name", VIEWS)
def test_holds(name: str) -> None:
    # one draw in some 10^4 lies beyond four deviations, so twenty fixed draws do not
    for seed in range(20):
        found = score(Null().run(VIEWS[name], np.random.default_rng(seed)), truth_of(name))
        assert found.verdict == "holds"
        assert found.relative_error in (1.0, None)


@pytest.mark.parametrize("name", VIEWS)
def test_answers_whatever_the_view_was_made_for(name: str) -> None:
    finding = Null().run(VIEWS[name], np.random.default_rng(0))
    if name == "cohorts":
        assert finding.gradients is not None
        assert finding.gradients.shape == (2, D, 3)
    elif name in ("membership", "parity membership", "model"):
        assert finding.membership is not None
        assert finding.membership.shape == (200,)
    else:
        assert finding.gram is not None
        assert finding.gram.shape == truth_of(name).gram.shape  # type: ignore[union-attr]
    assert (finding.support is not None) == (name in ("parcel", "row"))


@given(secret=st.integers(0, 2**31), seed=st.integers(0, 2**31))
def test_secrets_make_no_difference(secret: int, seed: int) -> None:
    other = views.ParcelView(G, np.random.default_rng(secret).standard_normal(WORDS.shape), T, 2)
    one, two = (Null().run(view, np.random.default_rng(seed)) for view in (VIEWS["parcel"], other))
    np.testing.assert_array_equal(one.gram, two.gram)
    np.testing.assert_array_equal(one.support, two.support)
    assert np.unique(one.support).size == T


def test_an_unknown_view_gets_no_answer() -> None:
    finding = Null().run(views.View(), np.random.default_rng(0))
    assert finding.gram is finding.support is finding.membership is None
    assert "View" in finding.remark
