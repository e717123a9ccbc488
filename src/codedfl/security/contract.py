"""What an attack is, and what it returns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int

from codedfl.security.views.kinds import View

__all__ = ["Attack", "Finding"]

Seen = TypeVar("Seen", bound=View)


@dataclass(frozen=True, eq=False)
class Finding:
    """What an attacker believes; whatever it did not look for, or did not find, is None."""

    gram: Float[np.ndarray, "rows columns"] | None = field(default=None, repr=False)
    """The Gram matrix (d x d), or the row of it (1 x d) that was attacked."""
    support: Int[np.ndarray, "t"] | None = field(default=None, repr=False)
    """Positions believed to carry errors, increasing."""
    membership: Float[np.ndarray, "m"] | None = field(default=None, repr=False)
    """One number for each candidate; larger means more likely a member."""
    remark: str = ""


class Attack(ABC, Generic[Seen]):
    """One attack. It is deterministic given the view and the generator, and knows nothing but the view."""

    name: ClassVar[str]
    view_type: ClassVar[type[View]]
    """The view that its threat model allows."""
    aim: ClassVar[str]
    """What it is after, in a few words."""

    def suits(self, view: View) -> bool:
        """Tell whether the attack can be tried on a view; attacks that ask for more than the type say so."""
        return isinstance(view, self.view_type)

    @abstractmethod
    def run(self, view: Seen, rng: np.random.Generator) -> Finding:
        """Attack. Nothing found is a finding with None, not an error."""
