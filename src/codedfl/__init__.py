"""Train one linear model over many unequal devices, quickly and privately, and know how quickly and how privately."""

from codedfl import schemes
from codedfl.errors import CodedflError
from codedfl.runs import Run
from codedfl.runs import execute as run
from codedfl.scenario import Scenario, load

__version__ = "0.1.0"

__all__ = ["CodedflError", "Run", "Scenario", "__version__", "load", "run", "schemes"]
