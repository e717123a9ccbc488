"""Solvers at the server, one file each; they know neither data nor schemes."""

from codedfl.solvers.closed_form import ClosedForm
from codedfl.solvers.conjugate_gradients import ConjugateGradients
from codedfl.solvers.contract import Conditions, Noise, Ridge, Solver, noise_ridge
from codedfl.solvers.gradient_descent import GradientDescent
from codedfl.solvers.nesterov import Nesterov
from codedfl.solvers.ridge_path import RidgePath

__all__ = [
    "PATH_SOLVERS",
    "SOLVERS",
    "ClosedForm",
    "Conditions",
    "ConjugateGradients",
    "GradientDescent",
    "Nesterov",
    "Noise",
    "Ridge",
    "RidgePath",
    "Solver",
    "noise_ridge",
]

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver for solver in (GradientDescent, Nesterov, ConjugateGradients, ClosedForm)
}
"""The solvers by name."""

PATH_SOLVERS: dict[str, type[Solver]] = {ConjugateGradients.name: RidgePath, ClosedForm.name: ClosedForm}
"""What a name stands for where several weights are solved for, or data of any condition."""
