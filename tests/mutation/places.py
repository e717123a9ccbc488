"""Functions of the package: which mutant lies in which, which blocks ran, and how to put other code in place."""

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

from mutation.changes import ROOT, Mutant

HIT = "__block_ran__"
"""Name of the builtin that instrumented blocks call."""


@dataclass(frozen=True)
class Place:
    """A function of a module or class; those inside it are parts of it. Properties may share a name: ``number``."""

    file: str
    name: str
    number: int


def _outermost(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _outermost(child, f"{prefix}{child.name}.")
        else:
            yield from _outermost(child, prefix)


def functions(file: str, tree: ast.AST) -> Iterator[tuple[Place, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function that is inside no other one."""
    seen: dict[str, int] = defaultdict(int)
    for name, node in _outermost(tree):
        yield Place(file, name, seen[name]), node
        seen[name] += 1


def _suites(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements of a function, outer ones first."""
    for child in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            found = getattr(child, field, None)
            if isinstance(found, list) and found:
                yield found


def blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The lists of statements that run or do not: a block's number is its place here."""
    return [suite for suite in _suites(node) if all(isinstance(one, ast.stmt) for one in suite)]


@cache
def _parsed(file: str) -> dict[Place, ast.AST]:
    return dict(functions(file, ast.parse((ROOT / file).read_text())))


def block_of(mutant: Mutant) -> tuple[Place, int] | None:
    """The innermost block that holds a mutant, None outside of functions."""
    first, start, last, end = mutant.span
    for place, node in _parsed(mutant.file).items():
        inner = None
        for number, suite in enumerate(blocks(node)):
            head, tail = suite[0], suite[-1]
            begins, ends = (head.lineno, head.col_offset), (tail.end_lineno or 0, tail.end_col_offset or 0)
            if begins <= (first, start) and (last, end) <= ends:
                inner = number  # later lists lie deeper or elsewhere
        if inner is not None:
            return place, inner
    return None


def _code(code: CodeType, prefix: str = "") -> Iterator[tuple[str, CodeType]]:
    """Code of all outermost functions of a compiled module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # a new namespace of locals: a function, no class
                yield constant.co_qualname, constant
            else:
                yield from _code(constant)


def compiled(file: str, source: bytes | ast.Module) -> dict[Place, CodeType]:
    """Code of every outermost function, as the module would have it."""
    found: dict[Place, CodeType] = {}
    seen: dict[str, int] = defaultdict(int)
    for name, code in _code(compile(source, str(ROOT / file), "exec", dont_inherit=True)):
        if "<" not in name:
            found[Place(file, name, seen[name])] = code
            seen[name] += 1
    return found


def instrumented(file: str, numbers: dict[tuple[Place, int], int]) -> dict[Place, CodeType]:
    """Code of every outermost function that says which of its blocks run; ``numbers`` gets a number for each."""
    tree = ast.parse((ROOT / file).read_text())
    for place, node in functions(file, tree):
        for number, suite in enumerate(blocks(node)):
            known = numbers.setdefault((place, number), len(numbers))
            call = ast.Expr(ast.Call(ast.Name(HIT, ast.Load()), [ast.Constant(known)], []))
            suite.insert(0, ast.fix_missing_locations(ast.copy_location(call, suite[0])))
    return compiled(file, tree)


def living(files: Iterable[str]) -> dict[Place, list[FunctionType]]:
    """Function objects of these files in this process, with those made inside; several of a module imported twice."""
    wanted = {str(ROOT / file): file for file in files}
    found: dict[Place, list[FunctionType]] = defaultdict(list)
    gc.unfreeze()
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename in wanted:
            place = _place_of(wanted[one.__code__.co_filename], one.__code__)
            if place is not None:
                found[place].append(one)
    gc.freeze()  # forks share what no collection looks through
    return found


def _place_of(file: str, code: CodeType) -> Place | None:
    """The outermost function that code is of, or inside of; code begins at its definition or at a decorator."""
    name = code.co_qualname.split(".<locals>")[0]
    for place, node in _parsed(file).items():
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        first = min(node.lineno, *(decorator.lineno for decorator in node.decorator_list), node.lineno)
        if place.name == name and first <= code.co_firstlineno <= (node.end_lineno or 0):
            return place
    return None


def put_in_place(function: FunctionType, code: CodeType) -> bool:
    """Let a function have the code of its outermost function, or of the one inside with its name, if it fits."""
    inside = [one for one in _with_inner(code) if one.co_qualname == function.__code__.co_qualname]
    if len(inside) != 1 or inside[0].co_freevars != function.__code__.co_freevars:
        return False
    function.__code__ = inside[0]
    return True


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def module_name(file: Path) -> str:
    """``codedfl.codes.mds`` of src/codedfl/codes/mds.py."""
    parts = file.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_library(module: str) -> bool:
    """Whether a module of this process belongs to no test and is no program's own."""
    file = getattr(sys.modules[module], "__file__", None) or ""
    return module != "__main__" and not file.startswith(str(ROOT / "tests")) and "site-packages" in file
