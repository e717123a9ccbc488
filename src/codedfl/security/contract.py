"""The contract of an attack, and its result."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int

from codedfl.security.views.kinds import View

Seen = TypeVar("Seen", bound=View)


@dataclass(frozen=True, eq=False)
class Finding:
    """The result of an attack; what was not looked for or not found is None."""

    gram: Float[np.ndarray, "rows columns"] | None = field(default=None, repr=False)
    """The Gram matrix (d x d), or the row of it (1 x d) that was attacked."""
    support: Int[np.ndarray, "t"] | None = field(default=None, repr=False)
    """Supposed error positions, increasing."""
    membership: Float[np.ndarray, "m"] | None = field(default=None, repr=False)
    """One number for each candidate; larger means more likely a member."""
    reached: Float[np.ndarray, "d r"] | None = field(default=None, repr=False)
    """An orthonormal basis of the directions in which the Gram matrix is known; None: of all."""
    gradients: Float[np.ndarray, "devices d c"] | None = field(default=None, repr=False)
    """The gradient of every device."""
    remark: str = ""


class Attack(ABC, Generic[Seen]):
    """One attack: a deterministic function of the view and the generator.

    To add one, subclass this, set ``name``, ``view_type`` and ``aim``, implement ``run``, and list an instance in
    ``codedfl.security.attacks``.
    """

    name: ClassVar[str]
    view_type: ClassVar[type[View]]
    """The view that its threat model allows."""
    aim: ClassVar[str]
    """Its goal in a few words."""

    def suits(self, view: View) -> bool:
        """Tell whether the attack can be tried on a view; override it to require more than the type."""
        return isinstance(view, self.view_type)

    def informed(self, guess: Float[np.ndarray, "rows d"]) -> "Attack[Seen]":
        """Return the attack of someone who has a public guess of the Gram matrix; most attacks make no use of it."""
        return self

    @abstractmethod
    def run(self, view: Seen, rng: np.random.Generator) -> Finding:
        """Return the finding; to find nothing is a finding with None, not an error."""
