"""Solvers at the server, one file each; they know neither data nor schemes."""

from codedfl.solvers.closed_form import ClosedForm
from codedfl.solvers.conjugate_gradients import ConjugateGradients
from codedfl.solvers.contract import Conditions, Ridge, Solver
from codedfl.solvers.gradient_descent import GradientDescent
from codedfl.solvers.nesterov import Nesterov

__all__ = [
    "SOLVERS",
    "ClosedForm",
    "Conditions",
    "ConjugateGradients",
    "GradientDescent",
    "Nesterov",
    "Ridge",
    "Solver",
]

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver for solver in (GradientDescent, Nesterov, ConjugateGradients, ClosedForm)
}
"""The solvers by name."""
