"""Mutation testing: change one operator, constant or statement at random and see whether a test notices.

``make mutants`` runs this; it is no part of any test run. Mutants are written into a copy of the tree. Which tests a
mutant must fail follows from the imports: those named after the module, those that import it, and the contracts.

Some changes change nothing that a caller could see. Survivors that were judged so stand in equivalent_mutants.toml,
each with its reason, and are not drawn; whoever changes the line makes them mutants again.
"""

import argparse
import ast
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "codedfl"
CORE = (
    *("codes", "cipher", "privacy", "network", "solvers", "schemes", "engines", "task", "training", "runs"),
    *("security/audit.py", "security/scoring.py", "studies/epochs_to_target.py"),
)
"""Rooms and files that are mutated unless files are named."""
HAVE_CONTRACTS = ("codes", "cipher", "solvers", "schemes", "engines")
"""Rooms whose modules must also pass tests/contracts."""
LAWS = "properties"
"""Folder of tests that hold for several rooms; each counts as a room of a module that it depends on."""
REAL_PROCESSES = "flare"
"""Neither modules nor tests with this in their path, or in an import of theirs, take part."""
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
"""Mutants that no test can notice: file, text of the line, what stood there, what stands there now, and the reason."""
NOT_COPIED = (".git", ".venv", "out", "runs", "build", "*.egg-info", "*_cache", ".hypothesis", "__pycache__")

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
OPPOSITE = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: ``new`` stands where the node of lines and columns (in bytes) stood."""

    file: str
    line: int
    span: tuple[int, int, int, int]
    old: str
    new: str

    def written(self, source: bytes) -> bytes:
        lines = source.splitlines(keepends=True)
        first, start, last, end = self.span
        before = b"".join(lines[: first - 1]) + lines[first - 1][:start]
        return before + self.new.encode() + lines[last - 1][end:] + b"".join(lines[last:])


def replacements(node: ast.AST) -> Iterator[str]:
    """The source texts that may stand in a node's place."""
    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                yield _unparsed(
                    ast.Compare(node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators)
                )
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield _unparsed(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
    elif isinstance(node, ast.BoolOp):
        yield _unparsed(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield _unparsed(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from (f"({node.value + 1!r})", f"({node.value - 1!r})")
    elif isinstance(node, ast.Name) and node.id in OPPOSITE:
        yield OPPOSITE[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in OPPOSITE:
        yield f"{_unparsed(node.value)}.{OPPOSITE[node.attr]}"
    elif isinstance(node, ast.Return):
        says_nothing = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        yield "pass" if says_nothing else "return None"
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in ARITHMETIC:
            yield ast.unparse(ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value))
        yield "pass"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "pass"


def _unparsed(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def mutable(node: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Every node inside functions but annotations, defaults, decorators, texts, errors and ``__repr__``."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.arguments):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "cast"):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name not in ("__repr__", "__str__"):
            for child in node.body:
                yield from mutable(child, True)
        return
    if inside:
        yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "decorator_list", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from mutable(child, inside)


def mutants(file: Path) -> list[Mutant]:
    """All mutants of a file, in the order of its text."""
    text, found = file.read_text(), []
    for node in mutable(ast.parse(text)):
        for new in replacements(node):
            old = " ".join((ast.get_source_segment(text, node) or "").split())
            span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            found.append(Mutant(str(file.relative_to(ROOT)), node.lineno, span, old, new))
    return found


def module_name(file: Path) -> str:
    """``codedfl.codes.mds`` of src/codedfl/codes/mds.py, ``codes.test_mds`` of tests/codes/test_mds.py."""
    parts = file.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(file): file for folder in ("src", "tests") for file in (ROOT / folder).rglob("*.py")}


@cache
def names(module: str) -> dict[str, str]:
    """Where a module imports each name from; names of packages are followed to the module that defines them."""
    found = {}
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                found[alias.asname or alias.name] = _origin(node.module, alias.name, module)
    return found


def _origin(module: str, name: str, asking: str) -> str:
    if f"{module}.{name}" in modules():
        return f"{module}.{name}"
    is_package = module in modules() and modules()[module].name == "__init__.py"
    return names(module).get(name, module) if is_package and module != asking else module


def imported(module: str) -> set[str]:
    return set(names(module).values()) & modules().keys()


@cache
def distances(module: str) -> dict[str, int]:
    """How many imports each module that depends on this one is away from it."""
    users: dict[str, set[str]] = {}
    for user in modules():
        for used in imported(user):
            users.setdefault(used, set()).add(user)
    found, waiting = {module: 0}, deque([module])
    while waiting:
        current = waiting.popleft()
        for user in users.get(current, set()) - found.keys():
            found[user] = found[current] + 1
            waiting.append(user)
    return found


@cache
def tests_of(file: Path, reach: int) -> tuple[str, ...]:
    """The test files that a mutant must pass to survive, the most specific first."""
    module = module_name(file)
    stem, room = module.split(".")[-1], module.split(".")[1]
    mirror = f"{module.removeprefix(f'{PACKAGE}.').removesuffix(stem)}test_{stem}"
    far = {mirror: 0} | distances(module)  # a registry may import the module by its name
    ranks: dict[Path, tuple[int, int]] = {}
    for name, test in modules().items():
        if not test.name.startswith("test_") or any(REAL_PROCESSES in used for used in [name, *names(name).values()]):
            continue
        if name not in far:
            continue
        own, neighbour = test.stem == f"test_{stem}", name.split(".")[0] in (room, LAWS)
        held = reach > 0 and room in HAVE_CONTRACTS and name.startswith("contracts.")
        if own or held or far[name] <= reach + neighbour:
            ranks[test] = (0 if own else far[name], test.stat().st_size)
    if reach < max(far.values()) and all(test.parent.name == "contracts" for test in ranks):
        return tests_of(file, reach + 1)
    return tuple(str(test.relative_to(ROOT)) for test in sorted(ranks, key=lambda test: ranks[test]))


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: the test that failed, "time-out", or None if it survived."""

    mutant: Mutant
    noticed_by: str | None
    tests: int
    seconds: float


class Copy:
    """A copy of the tree in which one mutant at a time stands."""

    def __init__(self, folder: Path) -> None:
        self._tree, self._caches = folder / "tree", folder / "compiled"

        def ignored(place: str, names: list[str]) -> set[str]:
            found = shutil.ignore_patterns(*NOT_COPIED)(place, names)
            return found if Path(place) == ROOT else found - {"runs"}  # a room has the name of the root's results

        shutil.copytree(ROOT, self._tree, ignore=ignored)

    def judge(self, mutant: Mutant, tests: tuple[str, ...], limit: float) -> Outcome:
        began = time.monotonic()
        source = (ROOT / mutant.file).read_bytes()
        self._write(mutant.file, mutant.written(source))
        failed = self.run(tests, limit, compiled=b"numba" in source)
        self._write(mutant.file, source)
        return Outcome(mutant, failed, len(tests), time.monotonic() - began)

    def _write(self, file: str, source: bytes) -> None:
        path = self._tree / file
        path.write_bytes(source)
        # byte code is checked by second and size, which mutants share
        for old in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            old.unlink()

    def run(self, tests: tuple[str, ...], limit: float, *, compiled: bool = False) -> str | None:
        """The first test that fails, "time-out", or None if all pass."""
        # a caller's compiled code keeps what it called: a changed kernel needs an empty cache
        caches = Path(tempfile.mkdtemp(dir=self._caches.parent)) if compiled else self._caches
        variables = {"PYTHONPATH": str(self._tree / "src"), "NUMBA_CACHE_DIR": str(caches)}
        variables |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        options = ("-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", *options, *tests]
        process = subprocess.Popen(
            command,
            cwd=self._tree,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "time-out"
        finally:
            if compiled:
                shutil.rmtree(caches, ignore_errors=True)
        if process.returncode == 0:
            return None
        failures = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
        return failures[0] if failures else f"pytest: {said.strip().splitlines()[-1][:80] if said.strip() else 'crash'}"

    def check(self) -> None:
        """Make sure that tests import this copy: a module that raises must fail, and the same tree pass, one test."""
        file = f"src/{PACKAGE}/__init__.py"
        source = (ROOT / file).read_bytes()
        test = min((ROOT / "tests").glob("test_*.py"), key=lambda test: test.stat().st_size).name
        self._write(file, source + b"\nraise RuntimeError('mutant')\n")
        noticed = self.run((f"tests/{test}",), 300)
        self._write(file, source)
        if noticed in (None, "time-out") or self.run((f"tests/{test}",), 300) is not None:
            raise SystemExit("the tests do not run against the copy of the tree")


def judged_equivalent() -> set[tuple[str, str, str, str]]:
    """Return file, line, old and new text of the mutants that were judged to change nothing."""
    found = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {(one["file"], one["line"], one["old"], one["new"]) for one in found}


def drawn_from(files: list[Path], count: int, seed: int) -> tuple[list[Mutant], int]:
    """Draw mutants that are not judged equivalent, and return them with the number of all mutants.

    One more judgement leaves one mutant out and adds one at the end; the others stay.
    """
    every = [mutant for file in files for mutant in mutants(file)]
    random.Random(seed).shuffle(every)
    lines = {str(file.relative_to(ROOT)): file.read_text().splitlines() for file in files}
    known = judged_equivalent()
    told = (one for one in every if (one.file, lines[one.file][one.line - 1].strip(), one.old, one.new) not in known)
    return list(islice(told, count)), len(every)


def default_files() -> list[Path]:
    package = ROOT / "src" / PACKAGE
    places = [package / place for place in CORE]
    missing = [str(place) for place in places if not place.exists()]
    if missing:
        raise SystemExit(f"no such place: {', '.join(missing)}")
    return sorted({file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="source files; the core rooms if none are named")
    parser.add_argument("--count", type=int, default=100, help="mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="mutants of the draw that were judged before")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a mutant counts as noticed")
    parser.add_argument("--reach", type=int, default=1, help="imports that a test may be away; 0: own room only")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # copies are removed on the way out
    files = [file.resolve() for file in chosen.files] or default_files()
    if missing := [str(file) for file in chosen.files if not file.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    drawn, every = drawn_from(files, chosen.count, chosen.seed)
    drawn = drawn[chosen.skip :]
    print(f"{len(drawn)} of {every} mutants of {len(files)} files", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        copies: queue.Queue[Copy] = queue.Queue()
        for job in range(chosen.jobs):
            copies.put(Copy(Path(folder) / str(job)))
        first = copies.get()
        first.check()
        copies.put(first)
        passing: dict[str, bool] = {}

        def judge(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                outcome = copy.judge(mutant, tests_of(ROOT / mutant.file, chosen.reach), chosen.limit)
                test = outcome.noticed_by
                if test and "::" in test and test not in passing:
                    passing[test] = copy.run((test,), chosen.limit) is None
                    if not passing[test]:
                        raise SystemExit(f"{test} fails without a mutant, too")
                return outcome
            finally:
                copies.put(copy)

        outcomes = []
        for outcome in pool.map(judge, drawn):
            outcomes.append(outcome)
            mutant, verdict = outcome.mutant, outcome.noticed_by or "SURVIVED"
            print(f"{mutant.file}:{mutant.line}: {mutant.old[:60]} -> {mutant.new[:60]}: {verdict}", flush=True)
    noticed = sum(outcome.noticed_by is not None for outcome in outcomes)
    print(f"{noticed} of {len(outcomes)} noticed ({noticed / max(1, len(outcomes)):.0%})")
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))


if __name__ == "__main__":
    main()
