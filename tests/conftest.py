"""Shapes written in signatures are checked at run time while the tests run."""

import gc
import importlib.util
import pkgutil
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import shape_checker

NO_BROWSER = "pages are not tested in a browser"
"""The reason of tests/browser/conftest.py."""
LONG = (
    "deploy/flare",
    "studies/reproduce",
    "studies/test_what_if.py",
    "browser",
    "runs",
    "studies",
    "training/test_liars.py",
    "front/test_estimators.py",
    "cli/test_deploying.py",
    "security/views",
    "report",
)
"""Folders and files below tests/ that take longest, most of all first."""
KERNELS = (
    *("cipher/seals/test_fixed_point.py", "cipher/seals/test_portable.py", "codes/modular", "codes/test_graph.py"),
    *("codes/test_kernels.py", "data/test_features.py"),
    *("network/test_pipeline.py", "network/test_stages.py", "privacy/test_sampling.py"),
)
"""Tests that together call every compiled kernel: run first, they spare every other process the compiling."""
REAL = (
    *("browser", "cipher/mceliece/test_cipher_misuse.py", "cli/test_deploying.py", "cli/test_plugins.py"),
    *("deploy/flare", "deploy/site/test_small_site.py", "studies/test_cluster.py", "studies/test_processes.py"),
)
"""Files whose tests need processes beside their own, most of them fleets on NVIDIA FLARE, or a browser."""
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
    gc.disable()  # until everything is imported: all of it stays
    # walk_packages imports packages on its way; modules imported then are dropped so that the hook sees them
    names = checked_modules()
    for name in [loaded for loaded in importlib.sys.modules if loaded.split(".")[0] == "codedfl"]:
        del importlib.sys.modules[name]
    jaxtyping.jaxtyped = shape_checker.sampled(jaxtyping.jaxtyped)
    jaxtyping.install_import_hook(names, "shape_checker.check").__enter__()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start long files before short ones; one worker runs all tests of a file, which share what they read."""
    folder = Path(__file__).parent
    names = {item: item.path.relative_to(folder).as_posix() for item in items}

    def place(item: pytest.Item) -> int:
        return next((place for place, prefix in enumerate(LONG) if names[item].startswith(prefix)), len(LONG))

    for item, name in names.items():
        for kind, prefixes in (("kernels", KERNELS), ("real", REAL)):
            if name.startswith(prefixes):
                item.add_marker(kind)
    items.sort(key=place)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported and collected is not looked through again by every full collection of a test
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    shape_checker.begin(item.path)


@pytest.fixture
def rng() -> np.random.Generator:
    """The same draws whichever tests ran before."""
    return np.random.default_rng(0)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line that pages were not looked at, where there is no browser."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    if missing := [text for text in skipped if NO_BROWSER in text]:
        terminalreporter.write_line(f"{len(missing)} tests skipped: {NO_BROWSER}, because there is none here")


settings.register_profile("codedfl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("codedfl")
