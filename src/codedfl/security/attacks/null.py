"""The null attacker, which ignores its view: it must score chance, or the scorer is wrong."""

from typing import final

import numpy as np
from jaxtyping import Int

from codedfl.security.contract import Attack, Finding
from codedfl.security.views import kinds


@final
class Null(Attack[kinds.View]):
    """Answer from the public sizes alone: the zero matrix, random positions, random scores."""

    name = "null"
    view_type = kinds.View
    aim = "nothing: the yardstick of chance"

    def run(self, view: kinds.View, rng: np.random.Generator) -> Finding:
        """Answer for any view from its public sizes."""
        match view:
            case kinds.ParcelView():
                return Finding(gram=np.zeros(view.G.shape[:1] * 2), support=_positions(view.G.shape[1], view.t, rng))
            case kinds.RowView():
                return Finding(gram=np.zeros((1, view.G.shape[0])), support=_positions(view.G.shape[1], view.t, rng))
            case kinds.ForwardView() | kinds.SharedSupportView():
                return Finding(gram=np.zeros(view.G.shape[:1] * 2))
            case kinds.PairView():
                return Finding(gram=np.zeros(view.first.shape))
            case kinds.RepliesView():
                return Finding(gram=np.zeros(view.models.shape[1:2] * 2))
            case kinds.ParityView():
                return Finding(gram=np.zeros(view.parity.shape[1:] * 2))
            case kinds.TwoRunsView():
                return Finding(gram=np.zeros(view.without.shape))
            case kinds.CohortsView():
                return Finding(gradients=np.zeros((view.points.size, *view.sums.shape[1:])))
            case kinds.MembershipView() | kinds.ParityMembershipView() | kinds.ModelView():
                return Finding(membership=rng.random(len(view.candidates)))
            case _:
                return Finding(remark=f"no answer for a {type(view).__name__}")


def _positions(n: int, t: int, rng: np.random.Generator) -> Int[np.ndarray, "t"]:
    return np.sort(rng.choice(n, t, replace=False))
