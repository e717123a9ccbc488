"""Which blocks each test runs, also through what is computed once for several tests."""

import functools
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation.changes import PACKAGE, ROOT

HITS: set[int] = set()
"""Numbers of the blocks that ran since the last clearing."""

_lru_cache = functools.lru_cache


class Scope:
    """Collects the blocks that run inside, and leaves what ran outside as it was."""

    def __enter__(self) -> "Scope":
        self._outside = set(HITS)
        HITS.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.hits = frozenset(HITS)
        HITS.update(self._outside)


def _is_ours(function: Any) -> bool:
    place = getattr(getattr(function, "__code__", None), "co_filename", "")
    return str(getattr(function, "__module__", "")).startswith(PACKAGE) or place.startswith(str(ROOT / "tests"))


def remembering_lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
    """``functools.lru_cache`` whose remembered results count as if they were computed for each test that reads them."""
    if callable(maxsize):
        return remembering_lru_cache()(maxsize)

    def decorate(function: Callable[..., Any]) -> Any:
        if not _is_ours(function):
            return _lru_cache(maxsize, typed)(function)

        @_lru_cache(maxsize, typed)
        def computed(*arguments: Any, **options: Any) -> tuple[Any, frozenset[int]]:
            with Scope() as scope:
                result = function(*arguments, **options)
            return result, scope.hits

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            result, hits = computed(*arguments, **options)
            HITS.update(hits)
            return result

        call.cache_clear, call.cache_info = computed.cache_clear, computed.cache_info  # type: ignore[attr-defined]
        return call

    return decorate


def remember_caches() -> None:
    """Replace the caches of functools; to be called before the package and its tests are imported."""
    functools.lru_cache = remembering_lru_cache  # type: ignore[assignment]
    functools.cache = remembering_lru_cache(None)  # type: ignore[assignment]


@dataclass
class Reached:
    """What a test took and which blocks it ran, as ``file name number block``."""

    seconds: float
    blocks: frozenset[str] = field(repr=False)


class Map:
    """Tests by the blocks they run, kept in a file; tests of a file that changed are recorded again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, Reached] = {}
        self.modules: dict[str, list[str]] = {}
        self._stamps: dict[str, str] = {}
        if path.exists():
            kept = json.loads(path.read_text())
            names = kept["blocks"]
            self._stamps = kept["stamps"]
            self.modules = kept["modules"]
            for test, (seconds, hits) in kept["tests"].items():
                self.tests[test] = Reached(seconds, frozenset(names[hit] for hit in hits))

    def outdated(self, files: Iterable[str]) -> list[str]:
        """The test files that were not recorded as they are now."""
        return [file for file in files if self._stamps.get(file) != _stamp(file)]

    def put(self, file: str, tests: dict[str, Reached], modules: Iterable[str]) -> None:
        """Replace all tests of a file, and the libraries that they import when they run."""
        self.modules[file] = sorted(modules)
        self.tests = {test: found for test, found in self.tests.items() if test.split("::")[0] != file} | tests
        self._stamps[file] = _stamp(file)

    def save(self) -> None:
        names = sorted({block for found in self.tests.values() for block in found.blocks})
        place = {name: number for number, name in enumerate(names)}
        tests = {
            test: (round(found.seconds, 4), sorted(place[block] for block in found.blocks))
            for test, found in self.tests.items()
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        kept = {"blocks": names, "tests": tests, "stamps": self._stamps, "modules": self.modules}
        temporary.write_text(json.dumps(kept))
        temporary.replace(self.path)


def _stamp(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]
