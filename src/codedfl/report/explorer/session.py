"""What the explorer knows: costs that are counted in the background, plans that are made on demand, runs on disk."""

import os
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from threadpoolctl import threadpool_limits

from codedfl.errors import CodedflError, ScenarioError, UsageError
from codedfl.report.explorer.parameters import Values, initial_values, scenario_of, sliders, told_epochs
from codedfl.runs import Run
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, nominal
from codedfl.schemes.secrecy import CLEAR
from codedfl.security.verdicts import secrecy_rank
from codedfl.studies.epochs_to_target import EpochsToTarget
from codedfl.studies.plan import DRAWS, PRIVACY, Shapes, plan
from codedfl.studies.plan.what_if import KeptCosts, changed_settings
from codedfl.task import Problem

QUICK, _FEWEST, _DEVICES = 20, 4, 5000
"""Timing draws of a first answer; with many devices so few that draws times devices are at most this, but no fewer."""
_UNASKED_DEVICES, _UNASKED_BYTES = 150, 4e9
"""Devices and memory up to which costs are counted without being asked for."""
_WORD_BYTES = 4
"""Of an entry of a Gram matrix that a device has sealed or encrypted, at least."""
_QUIET = 0.8
"""Seconds without a question after which counting begins, so that it does not slow down answers."""
_MOST_DRAWS = 1000
_PAGES, _LONGEST_NAME = 1000, 64
"""Upper bounds; protect against memory exhaustion."""
Todo = tuple[Scenario, Problem]


@final
class ExplorerSession:
    """Answers "what if" for one scenario; ``close`` ends the thread that counts costs.

    What would take minutes or gigabytes is counted only when asked for.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        names: Sequence[str] = (),
        samples: int | None = None,
        outputs: int | None = None,
        runs: Mapping[str, Run] | None = None,
        more_runs: Mapping[str, Run] | None = None,
        origin: str = "",
        plugins: Sequence[str] = (),
    ) -> None:
        self.scenario, self.names, self.origin = scenario, list(names or SCHEMES), origin
        self.initial = initial_values(scenario)
        self.runs = [*_laid_over(runs or {}, given=True), *_laid_over(more_runs or {}, given=False)]
        self._told, self._plugins = (samples, outputs), list(plugins)
        self._counter = KeptCosts()
        self._shapes: tuple[Any, Shapes] | None = None
        self._answering, self._changed = threading.Lock(), threading.Condition()
        self._newest: dict[str, int] = {}
        """By page, the number of its newest question."""
        self._todo: list[Todo] = []
        self._quiet_from = 0.0
        self._moved: Values | None = None
        """The positions of the newest question."""
        self._working: str | None = None
        self._failed: dict[str, str] = {}
        self._asked: set[str] = set()
        self._closed = False
        self._shapes_of(scenario)  # refuses what cannot be planned before anybody asks
        self._thread = threading.Thread(target=self._count, name="counting costs", daemon=True)
        self._thread.start()

    def describe(self) -> dict[str, Any]:
        """Return what the page needs before its first question."""
        return {
            "scenario": self.scenario.name,
            "sliders": [each.to_table() for each in sliders(self.initial)],
            "initial": self.initial,
            "privacy": {name: words for name, (words, _) in PRIVACY.items()},
            "runs": self.runs,
            "draws": DRAWS,
        }

    @staticmethod
    def quick_draws(devices: Any) -> int:
        """Return the timing draws of a first answer."""
        if not isinstance(devices, int) or devices < 1:
            return QUICK
        return max(_FEWEST, min(QUICK, _DEVICES // devices))

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plan for some positions of the sliders, with what is still being counted.

        A question has ``values``, ``draws`` (few if None), the name of a ``page`` and a ``number`` that grows; one
        that is overtaken by the next of its page is not answered.
        """
        values, draws, number = question.get("values", {}), question.get("draws"), question.get("number", 0)
        page = str(question.get("page", ""))[:_LONGEST_NAME]
        count = question.get("count", [])
        if not isinstance(values, dict) or not isinstance(number, int):
            raise UsageError("a question needs values and a number; send an object with both")
        if not isinstance(count, list) or not all(isinstance(name, str) for name in count):
            raise UsageError(f"count = {count!r} must be a list of names of schemes")
        if draws is None:
            draws = self.quick_draws(values.get("devices", self.scenario.fleet.size))
        if not isinstance(draws, int) or isinstance(draws, bool) or not 2 <= draws <= _MOST_DRAWS:
            raise UsageError(f"draws = {draws!r} must be a whole number from 2 to {_MOST_DRAWS}")
        if len(self._newest) > _PAGES:
            self._newest.clear()
        self._newest[page] = max(self._newest.get(page, number), number)
        with self._answering:
            if number < self._newest.get(page, number):
                return {"number": number, "overtaken": True}
            began = time.perf_counter()
            found = self._planned(values, draws, asked=count)
            return found | {"number": number, "overtaken": False, "took": time.perf_counter() - began}

    def _planned(self, values: Values, draws: int, asked: Sequence[str]) -> dict[str, Any]:
        scenario = scenario_of(self.scenario, self.initial, values)
        told = told_epochs(self.initial, values)
        privacy = str(values.get("privacy", self.initial["privacy"]))
        shapes = self._shapes_of(scenario)
        problem = self._counter.problem(scenario, shapes)
        self._asked |= set(asked) & set(self.names)
        cases = {name: scenario.with_settings({"scheme": name}) for name in self.names}
        known = [name for name, case in cases.items() if self._counter.known(case, problem)]
        missing = [name for name in self.names if name not in known]
        asleep = {name: why for name in missing if (why := self._too_much(name, cases[name], problem)) is not None}
        made = None
        if known:
            epochs = EpochsToTarget(told)
            made = plan(
                scenario, shapes, names=known, epochs=epochs, draws=draws, privacy=privacy, counter=self._counter
            )
        waiting = [name for name in missing if name not in asleep]
        self._schedule([(cases[name], problem) for name in waiting], values)
        return {
            "plan": None if made is None else made.to_table(),
            "ranks": {} if made is None else {o.scheme.name: rank for rank, o in enumerate(_by_secrecy(made.offers))},
            "counting": [name for name in waiting if name not in self._failed],
            "working": self._working,
            "asleep": asleep,
            "failed": {name: self._failed[name] for name in waiting if name in self._failed},
            "command": self._command(scenario, told, draws, privacy),
            "toml": scenario.to_toml(),
        }

    def _shapes_of(self, scenario: Scenario) -> Shapes:
        """Return shapes, which are read from the data again only where something moves them."""
        sizes = (scenario.fleet.size, scenario.features, scenario.partition, scenario.private)
        if self._shapes is None or self._shapes[0] != sizes:
            self._shapes = sizes, Shapes.of(scenario, *self._told)
        return self._shapes[1]

    def _too_much(self, name: str, case: Scenario, problem: Problem) -> str | None:
        """Say why costs are not counted unasked, or not at all; None if they are."""
        try:
            scheme = nominal(case)
        except ScenarioError:
            return None
        devices, features = len(problem.shards), problem.shards[0].x.shape[1]
        plain = scheme.verdict == CLEAR and scheme.sharing is None
        needed = 0 if plain else devices * features**2 * _WORD_BYTES
        if needed > _memory():
            return f"needs about {needed / 1e9:.0f} GB of memory to be counted, more than is free"
        if name in self._asked:
            return None
        if needed > _UNASKED_BYTES:
            return f"needs about {needed / 1e9:.0f} GB of memory to be counted"
        if devices > _UNASKED_DEVICES and (scheme.opens_sums or scheme.repeats_epochs):
            return "its set-up grows with the square of the number of devices, so counting may take minutes"
        return None

    def _command(self, scenario: Scenario, told: Mapping[str, int], draws: int, privacy: str) -> str:
        """Return the command whose answer is the same."""
        words = ["codedfl", "plan", *([] if len(self.names) == len(SCHEMES) else self.names)]
        again = self.scenario.with_settings(changes := changed_settings(scenario, self.scenario))
        if self.origin and again == scenario:
            words += ["--scenario", self.origin]
            words += [word for key, value in changes.items() for word in ("--set", f"{key}={_toml_value(value)}")]
        else:  # a setting was taken away, or the scenario is in no file: the one that can be saved
            words += ["--scenario", "scenario.toml"]
        words += [word for path in self._plugins for word in ("--plugin", path)]
        samples, outputs = self._told
        words += [] if samples is None else ["--samples", str(samples), "--outputs", str(outputs)]
        for solver, count in told.items():
            words += ["--epochs", f"{solver}={count}"]
        words += [] if draws == DRAWS else ["--draws", str(draws)]
        words += [] if privacy == "encrypted" else ["--privacy", privacy]
        return shlex.join(words)

    def _schedule(self, todo: list[Todo], values: Values) -> None:
        with self._changed:
            if values != self._moved:  # a page that only waits does not keep counting from beginning
                self._moved, self._quiet_from = dict(values), time.monotonic()
                self._failed = {}
            self._todo = todo
            self._changed.notify_all()

    def _wait_for_quiet(self) -> float | None:
        """Return for how long to wait: None until something is to be counted, 0 if it is time."""
        return max(0.0, self._quiet_from + _QUIET - time.monotonic()) if self._todo else None

    def _let_answers_pass(self) -> None:
        """Wait while a question is answered: two threads of one interpreter slow each other down."""
        with self._answering:
            pass

    def _count(self) -> None:
        """Count what is missing, one scheme at a time, until the session is closed."""
        while True:
            with self._changed:
                while not self._closed and (wait := self._wait_for_quiet()) != 0:
                    self._changed.wait(wait)
                if self._closed:
                    return
                case, problem = self._todo.pop(0)
                self._working = case.scheme
            failure = self._counted(case, problem)
            with self._changed:
                self._working = None
                if failure is not None:
                    self._failed[case.scheme] = failure

    def _counted(self, case: Scenario, problem: Problem) -> str | None:
        """Count the costs of a scheme; return why that is not possible, else None."""
        try:
            if not self._counter.known(case, problem):
                with threadpool_limits(1):  # the other core answers meanwhile
                    self._counter.learn(case, problem, self._let_answers_pass)
        except MemoryError:
            return "it needs more memory than there is"
        except CodedflError as error:
            return str(error)
        except Exception as error:  # a scheme from elsewhere may fail in any way, and must not end the thread
            return f"it failed with {type(error).__name__}: {error}"
        return None

    def close(self) -> None:
        """End the counting thread after the scheme that it counts."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _memory() -> float:
    """Return the bytes of memory that are free."""
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _by_secrecy(offers: Sequence[Any]) -> list[Any]:
    return sorted(offers, key=lambda offer: secrecy_rank(offer.scheme))


def _toml_value(value: Any) -> str:
    """Write a value as ``--set`` reads it."""
    import tomli_w

    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        tables = ("{" + ", ".join(f"{key} = {_toml_value(each)}" for key, each in row.items()) + "}" for row in value)
        return f"[{', '.join(tables)}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip()


def _laid_over(runs: Mapping[str, Run], *, given: bool) -> list[dict[str, Any]]:
    """Return the measured times of runs to their last target; those that did not reach it are left out."""
    found = []
    for label, run in runs.items():
        times, bands = run.summary.get("time_to_accuracy") or {}, run.summary.get("time_to_accuracy_band") or {}
        target = next(reversed(times), None)
        if target is None or times[target] is None:
            continue
        limits = bands.get(target)
        low, high = limits if limits and None not in limits else (times[target],) * 2
        scheme, solver, devices = run.scenario.scheme, run.scenario.training.solver, run.scenario.fleet.size
        facts = {"label": label, "given": given, "scheme": scheme, "solver": solver, "devices": devices}
        found.append(facts | {"target": target, "seconds": times[target], "low": low, "high": high})
    return found


def runs_below(folder: Path, most: int = 50) -> list[Path]:
    """Return finished runs in a folder, newest first."""
    found = [path.parent for path in folder.glob("*/summary.json") if (path.parent / "scenario.toml").is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:most]
