"""What mutants there are: every single change of the files, and those that were judged to change nothing."""

import ast
import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "codedfl"
CORE = (
    *("codes", "cipher", "privacy", "network", "solvers", "schemes", "engines", "task", "training", "runs"),
    *("security/audit.py", "security/scoring.py", "studies/epochs_to_target.py"),
)
"""Rooms and files that are mutated unless files are named."""
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
"""Mutants that no test can notice: file, text of the line, what stood there and what stands there now, the reason, and
``which`` of those alike on the line, from 1; without it, all of them."""

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
        yield "pass" if says_nothing else "return __class__ and None" if _calls_super(node) else "return None"
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in ARITHMETIC:
            yield ast.unparse(ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value))
        yield "pass"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "__class__" if _calls_super(node) else "pass"


def _calls_super(node: ast.AST) -> bool:
    """Whether the compiler gives the function a cell of its class, which other code put in its place needs, too."""
    return any(isinstance(one, ast.Name) and one.id == "super" for one in ast.walk(node))


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


def _between(lines: list[bytes], span: tuple[int, int, int, int]) -> str:
    first, start, last, end = span
    if first == last:
        return lines[first - 1][start:end].decode()
    return b"".join([lines[first - 1][start:], *lines[first : last - 1], lines[last - 1][:end]]).decode()


def mutants(file: Path) -> list[Mutant]:
    """All mutants of a file, in the order of its text."""
    text, found = file.read_text(), []
    lines = text.encode().splitlines(keepends=True)
    for node in mutable(ast.parse(text)):
        for new in replacements(node):
            span = (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
            old = " ".join(_between(lines, span).split())
            found.append(Mutant(str(file.relative_to(ROOT)), node.lineno, span, old, new))
    return found


Key = tuple[str, str, str, str]
"""File, text of the line, what stood there and what stands there now."""


def judged_equivalent() -> set[tuple[Key, int]]:
    """Return the mutants that were judged to change nothing, and which of those alike on a line: 0 for all of them."""
    found = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {((one["file"], one["line"], one["old"], one["new"]), one.get("which", 0)) for one in found}


def keyed(found: Iterable[Mutant]) -> Iterator[tuple[Mutant, Key, int]]:
    """Yield mutants with what judgements name them by: a key, and their number, from 1, among those alike on a line."""
    lines: dict[str, list[str]] = {}
    alike: Counter[tuple[Key, int]] = Counter()
    for one in sorted(found, key=lambda each: (each.file, each.span)):
        if one.file not in lines:
            lines[one.file] = (ROOT / one.file).read_text().splitlines()
        key = one.file, lines[one.file][one.line - 1].strip(), one.old, one.new
        alike[key, one.line] += 1
        yield one, key, alike[key, one.line]


def drawn_from(files: list[Path], count: int | None, seed: int) -> tuple[list[Mutant], int]:
    """Draw mutants that are not judged equivalent, and return them with the number of all mutants.

    One more judgement leaves one mutant out and adds one at the end; the others stay.
    """
    every = [mutant for file in files for mutant in mutants(file)]
    judged = judged_equivalent()
    known = {mutant for mutant, key, which in keyed(every) if judged & {(key, 0), (key, which)}}
    random.Random(seed).shuffle(every)
    return list(islice((one for one in every if one not in known), count)), len(every)


def default_files() -> list[Path]:
    package = ROOT / "src" / PACKAGE
    places = [package / place for place in CORE]
    missing = [str(place) for place in places if not place.exists()]
    if missing:
        raise SystemExit(f"no such place: {', '.join(missing)}")
    return sorted({file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))})
