"""The pytest plugin that records what tests reach, then judges mutants, all in forks of one process."""

import builtins
import contextlib
import functools
import importlib
import json
import sys
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mutation import compiled, places, reach
from mutation.changes import ROOT, Mutant, default_files
from mutation.forks import in_forks, run_tests
from mutation.places import Place


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: the test that failed or the way a fork died, or None if it survived."""

    mutant: Mutant
    place: str
    noticed_by: str | None
    tests: int
    left_out: int
    seconds: float


def _name(place: Place, block: int) -> str:
    return f"{place.file} {place.name} {place.number} {block}"


class Campaign:
    """Judges mutants with the tests that run their block, nearest and quickest first."""

    def __init__(
        self, mutants: list[Mutant], kept: Path, jobs: int, budget: float, log: Path | None, unchanged: bool
    ) -> None:
        self.mutants, self.jobs, self.budget, self.log = mutants, jobs, budget, log
        self.map = reach.Map(kept)
        self.outcomes: list[Outcome] = []
        self.wrong: list[str] = []
        self._unchanged = unchanged
        self._core = [str(file.relative_to(ROOT)) for file in default_files()]
        self._recording = False
        self._fixtures: dict[str, frozenset[int]] = {}
        self._good: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=8))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self._record(session)
        if not self.wrong:
            files = {test.split("::")[0] for test in self.items}
            self._import(name for file in files for name in self.map.modules.get(file, []))
            self._judge(session.config)
        return True

    def _import(self, modules: Iterable[str]) -> None:
        """Import once what every fork would import again."""
        for module in modules:
            with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
                importlib.import_module(module)

    # what tests reach

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if not self._recording or fixturedef.scope == "function":
            yield
            return
        with reach.Scope() as scope:
            yield
        self._fixtures[fixturedef.argname] = scope.hits
        reach.HITS.update(scope.hits)

    def _record(self, session: pytest.Session) -> None:
        by_file: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            by_file[item.nodeid.split("::")[0]].append(item)
        outdated = self.map.outdated(by_file)
        if not outdated:
            return
        began = time.monotonic()
        print(f"recording what the tests of {len(outdated)} files reach", flush=True)
        self._import(places.module_name(ROOT / file) for file in self._core)
        numbers: dict[tuple[Place, int], int] = {}
        restore = [*self._instrument(numbers), *self._watch_kernels(numbers)]
        names = {number: _name(place, block) for (place, block), number in numbers.items()}
        tasks = ((file, partial(self._recorded, by_file[file])) for file in outdated)
        for file, found in in_forks(session.config, iter(tasks), self.jobs):
            if not isinstance(found, dict):
                self.wrong.append(f"{file}: {found}")
                continue
            tests = {
                test: reach.Reached(seconds, frozenset(names[hit] for hit in hits))
                for test, (seconds, hits) in found["tests"].items()
            }
            self.map.put(file, tests, found["modules"])
        for undo in restore:
            undo()
        if not self.wrong:
            self.map.save()
        print(f"recorded in {time.monotonic() - began:.0f} s", flush=True)

    def _instrument(self, numbers: dict[tuple[Place, int], int]) -> Iterator[Callable[[], None]]:
        """Let blocks say that they run; yields what undoes it."""
        setattr(builtins, places.HIT, reach.HITS.add)
        files = [file for file in self._core if not file.endswith("kernels.py")]
        kernels, living = compiled.kernels(), places.living(files)
        for file in files:
            for place, code in places.instrumented(file, numbers).items():
                for function in living.get(place, []) if place not in kernels else []:
                    before = function.__code__
                    if places.put_in_place(function, code):
                        yield partial(setattr, function, "__code__", before)

    def _watch_kernels(self, numbers: dict[tuple[Place, int], int]) -> Iterator[Callable[[], None]]:
        """Let compiled functions that only Python calls say that they run."""
        known = self._lookups()
        for place, dispatcher in compiled.kernels().items():
            if compiled.callers(place, known) == {place}:
                number = numbers.setdefault((place, 0), len(numbers))

                @functools.wraps(dispatcher)
                def call(*arguments: Any, _kernel: Any = dispatcher, _number: int = number, **options: Any) -> Any:
                    reach.HITS.add(_number)
                    return _kernel(*arguments, **options)

                compiled.replace_everywhere(dispatcher, call)
                yield partial(compiled.replace_everywhere, call, dispatcher)

    def _lookups(self) -> dict[Place, set[str]]:
        files = {place.file for place in compiled.kernels()}
        return compiled.lookups(file for file in self._core if file in files or file.endswith("kernels.py"))

    def _recorded(self, items: list[pytest.Item]) -> dict[str, Any]:
        self._recording, known = True, set(sys.modules)
        found: dict[str, tuple[float, list[int]]] = {}

        def each(test: str, seconds: float) -> None:
            for fixture in self.items[test].fixturenames:
                reach.HITS.update(self._fixtures.get(fixture, ()))
            found[test] = seconds, sorted(reach.HITS)
            reach.HITS.clear()

        if failed := run_tests(items, {item.nodeid: 60.0 for item in items}, each):
            raise RuntimeError(f"{failed[0]} fails without a mutant: {failed[1]}")
        return {"tests": found, "modules": {name for name in sys.modules.keys() - known if places.is_library(name)}}

    # mutants

    def _judge(self, config: pytest.Config) -> None:
        self._seconds = {test: found.seconds for test, found in self.map.tests.items() if test in self.items}
        self._tests_of: dict[str, list[str]] = defaultdict(list)
        self._tests_of_function: dict[str, set[str]] = defaultdict(set)
        for test in self._seconds:
            for block in self.map.tests[test].blocks:
                self._tests_of[block].append(test)
                self._tests_of_function[block.rsplit(" ", 1)[0]].add(test)
        files = sorted({mutant.file for mutant in self.mutants})
        kernels = [file for file in self._core if file.endswith("kernels.py")]
        near = kernels if any(file in kernels for file in files) else []
        self._import(places.module_name(ROOT / file) for file in {*files, *near})
        self._living = places.living(files)
        self._kernels, self._lookups_of_kernels = compiled.kernels(), self._lookups()
        tasks = ((entry, partial(self._run, *entry)) for entry in map(self._planned, self.mutants))
        began = time.monotonic()
        for entry, found in in_forks(config, iter(tasks), self.jobs):
            mutant, place, tests, left_out, _ = entry
            if isinstance(found, tuple):
                failed, seconds = found
            else:
                failed, seconds = (str(found), 0.0)
            if failed in self._seconds:
                good = self._good[f"{place.file} {place.name}"] if place else deque()
                if failed in good:
                    good.remove(failed)
                good.appendleft(failed)
            name = place.name if place else ""
            self.outcomes.append(Outcome(mutant, name, failed, len(tests), left_out, seconds))
            self._print(began)
        sys.stdout.flush()

    def _print(self, began: float) -> None:
        last = self.outcomes[-1]
        if self.log:
            with self.log.open("a") as file:
                file.write(json.dumps(asdict(last)) + "\n")
        if last.noticed_by is None:
            mutant = last.mutant
            reached = f"{last.tests} tests" + (f", {last.left_out} left out" if last.left_out else "")
            change = f"{mutant.old[:70]} -> {mutant.new[:70]}"
            print(f"{mutant.file}:{mutant.line}: {change}: SURVIVED ({reached})", flush=True)
        elif "::" not in last.noticed_by:
            print(f"{last.mutant.file}:{last.mutant.line}: {last.noticed_by}", flush=True)
        if len(self.outcomes) % 100 == 0:
            noticed = sum(one.noticed_by is not None for one in self.outcomes)
            passed = time.monotonic() - began
            print(f"# {noticed} of {len(self.outcomes)} noticed, {passed:.0f} s", flush=True)

    def _planned(self, mutant: Mutant) -> tuple[Mutant, Place | None, list[str], int, set[Place]]:
        """The function of a mutant, the tests to run, how many the budget leaves out, and the kernels it changes."""
        found = places.block_of(mutant)
        if found is None:
            return mutant, None, [], 0, set()
        place, block = found
        changed: set[Place] = set()
        tests = set(self._tests_of[_name(place, block)])
        if place in self._kernels or place.file.endswith("kernels.py"):
            changed = compiled.callers(place, self._lookups_of_kernels)
            tests |= {
                test for one in changed for test in self._tests_of_function[f"{one.file} {one.name} {one.number}"]
            }
        chosen, left_out = self._ordered(place, tests)
        return mutant, place, chosen, left_out, changed

    def _ordered(self, place: Place, tests: set[str]) -> tuple[list[str], int]:
        parts = place.file.removesuffix(".py").split("/")[2:]
        folder = "tests/" + "/".join(parts[:-1])
        good = [test for test in self._good[f"{place.file} {place.name}"] if test in tests]

        def distance(test: str) -> int:
            file = test.split("::")[0]
            if parts[-1] in Path(file).stem:
                return 0
            return 1 if file.startswith(folder) else 2 if file.startswith(f"tests/{parts[0]}") else 3

        case = self._cases(tests)
        near = sorted(tests, key=lambda test: (distance(test), case[test], self._seconds[test]))
        quick = [test for test in near if self._seconds[test] <= 0.1][:20]
        first = list(dict.fromkeys([*good, *quick]))
        chosen, spent = [], 0.0
        for test in dict.fromkeys([*first, *near]):
            needed = self._seconds[test] + 0.002
            if spent + needed <= self.budget or len(chosen) < 3:
                chosen.append(test)
                spent += needed
        rank = {test: place for place, test in enumerate(first)}
        by_file: dict[str, int] = {}
        for test in chosen:
            by_file.setdefault(test.split("::")[0], len(by_file))
        chosen.sort(key=lambda test: (rank.get(test, len(rank)), by_file[test.split("::")[0]]))
        return chosen, len(tests) - len(chosen)

    def _cases(self, tests: set[str]) -> dict[str, int]:
        """A number for each test, so that the quickest cases of all functions come before the second ones."""
        seen: dict[str, int] = defaultdict(int)
        found = {}
        for test in sorted(tests, key=lambda test: self._seconds[test]):
            function = test.split("[")[0]
            found[test] = seen[function]
            seen[function] += 1
        return found

    def _run(
        self, mutant: Mutant, place: Place | None, tests: list[str], left_out: int, changed: set[Place]
    ) -> tuple[str | None, float]:
        began = time.monotonic()
        if place is None or not tests:
            return None, 0.0
        source = (ROOT / mutant.file).read_bytes()
        source = source if self._unchanged else mutant.written(source)
        code = places.compiled(mutant.file, source)[place]
        put = [places.put_in_place(function, code) for function in self._living.get(place, [])]
        if not any(put):
            return "cannot be put in place", 0.0
        compiled.compile_again(self._kernels[one] for one in changed if one in self._kernels)
        items = [self.items[test] for test in tests]
        failed = run_tests(items, self._seconds, lambda test, seconds: None, len(changed))
        return failed and failed[0], time.monotonic() - began


def run(campaign: Campaign, tests: list[str]) -> int:
    """Collect the tests that one process can do, but those of this tool, and let the campaign run."""
    reach.remember_caches()
    own = Path(__file__).parent
    options = ["-qq", "--no-summary", "-p", "no:cacheprovider", "-s", "-m", "not real", f"--ignore={own}"]
    return int(pytest.main([*options, *tests], plugins=[campaign]))
