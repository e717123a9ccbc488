"""Shapes written in signatures are checked at run time while the tests run."""

import importlib.util
import pkgutil
from pathlib import Path

import jaxtyping
from hypothesis import HealthCheck, settings

import shape_checker

SOURCE = Path(__file__).parent.parent / "src" / "codedfl"


def checked_modules() -> list[str]:
    """Every module but numba kernels, which stay plain functions; settings and estimators, which judge raw values
    themselves; and the front door, whose annotations name classes that it does not import.
    """
    found = pkgutil.walk_packages([str(SOURCE)], prefix="codedfl.")
    names = (module.name for module in found if not module.ispkg and not module.name.endswith("kernels"))
    plain = ("codedfl.settings", "codedfl.front.", "codedfl.scenario.")
    return [name for name in names if not name.startswith(plain)]


def pytest_configure() -> None:
    # walk_packages imports packages on its way; modules imported then are dropped so that the hook sees them
    names = checked_modules()
    for name in [loaded for loaded in importlib.sys.modules if loaded.split(".")[0] == "codedfl"]:
        del importlib.sys.modules[name]
    jaxtyping.jaxtyped = shape_checker.sampled(jaxtyping.jaxtyped)
    jaxtyping.install_import_hook(names, "shape_checker.check").__enter__()


def pytest_runtest_setup() -> None:
    shape_checker.begin()


settings.register_profile("codedfl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("codedfl")
