"""Whether a run in virtual time fits into memory, said before work begins; large arrays lie on disk if that helps."""

import os
import shutil
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import final

from codedfl import schemes
from codedfl.errors import ScenarioError
from codedfl.progress import Progress, silent
from codedfl.scenario import Scenario
from codedfl.storage import overflow_to
from codedfl.task import Problem, RawData

LIMIT = "CODEDFL_MEMORY"
"""Variable of the environment with the gigabytes that a run may use, where that is less than what is free."""
_SQUARES = 6
"""Matrices of d x d numbers of 8 bytes that server, reference and solver hold at once."""
_COPIED_ROWS = 1 << 15
_BASE = 1 << 28


@final
@dataclass(frozen=True)
class Memory:
    """Bytes that a run in virtual time needs in one process, as bounds: those that may lie in files, and all others."""

    features: int
    devices: int
    rest: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.features + self.devices + self.rest

    @classmethod
    def needed(cls, scenario: Scenario, data: Problem | RawData) -> "Memory":
        """Return what a run needs beside the data as they are given."""
        raw = data.raw if isinstance(data, Problem) else data
        if isinstance(data, Problem):
            (d, c), samples, tested = data.shape, tuple(shard.samples for shard in data.shards), len(data.x_test)
        else:
            d = data.features.dimension + int(scenario.intercept)
            samples, tested = tuple(map(len, data.parts)), len(data.loaded.x_test)
            c = data.loaded.outputs
        nominal = schemes.nominal(scenario)
        item = nominal.public.dtype.itemsize
        scheme = nominal.with_public(replace(nominal.public, samples=samples, features=d, outputs=c))
        kept = sum(item * d * d for rows in samples if 2 * rows >= d)
        features = (sum(samples) + tested) * d * item if raw is data else 0
        copied = min(sum(samples), _COPIED_ROWS) * d * item
        return cls(features, kept + scheme.memory, _BASE + copied + (8 * _SQUARES * d + 16 * c * len(samples)) * d)


def free_memory() -> int | None:
    """Return the bytes that this process may still use; None where the system does not tell."""
    found, told = list[float](), os.environ.get(LIMIT)
    if told:
        try:
            found = [1e9 * float(Fraction(told))]  # which knows neither nan nor inf
        except (ValueError, ZeroDivisionError):
            raise ScenarioError(f"{LIMIT} = '{told}' is no number of gigabytes; set it to one, such as 8") from None
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(float(lines["MemAvailable"].split()[0]) * 1024)
        group = Path("/sys/fs/cgroup")
        most, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        found.append(float("inf") if most == "max" else float(most) - float(used))
    except (OSError, KeyError, ValueError):  # another system, or no control group
        pass
    least = min(found, default=float("inf"))
    return int(least) if least < float("inf") else None


def make_room(
    scenario: Scenario, data: Problem | RawData, folder: Path | None = None, progress: Progress = silent
) -> None:
    """Let large arrays lie on the disk of a folder if memory is short; refuse a run that does not fit even so."""
    need, free = Memory.needed(scenario, data), free_memory()
    if free is None or need.total <= free:
        return
    moved = need.features + need.devices
    parts = f"{_gb(need.total)} GB of memory (features {_gb(need.features)}, what devices hold {_gb(need.devices)}"
    said = f"this run needs about {parts}, all else {_gb(need.rest)}), and {_gb(free)} GB are free"
    disk = 0 if folder is None else shutil.disk_usage(_existing(folder)).free
    if need.rest > free or moved > disk:
        lacking = "" if need.rest > free or folder is None else f", with {_gb(disk)} GB of disk at '{folder}'"
        raise ScenarioError(
            f"{said}{lacking}; lower features.dimension (now {scenario.features.dimension}), take fewer devices or "
            "another scheme (codedfl plan), or a machine with more memory"
        )
    assert folder is not None  # noqa: S101 - a missing folder has no disk
    progress(f"{said}: features and matrices of devices lie on disk, at '{_existing(folder)}'", 0, 0)
    overflow_to(_existing(folder))


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f}"


def _existing(folder: Path) -> Path:
    """Return the folder, or the next one above it that exists."""
    whole = folder.absolute()
    return next(each for each in (whole, *whole.parents) if each.is_dir())
