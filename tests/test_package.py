"""The package as a whole: public names, and the tree of errors as it is drawn."""

import ast
import doctest
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float

import codedfl
import shape_checker
from codedfl import errors
from codedfl.task import objective as task
from rundirs import environment

MODULES = [
    "codedfl",
    *(
        found.name
        for found in pkgutil.walk_packages(codedfl.__path__, prefix="codedfl.")
        if not found.name.endswith("__main__")  # that one is the program itself
    ),
]
SOURCE = Path(codedfl.__file__).parent
WITH_EXAMPLES = [
    ".".join(["codedfl", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def test_no_function_of_the_tests_draws_from_a_generator_of_its_module() -> None:
    """What it draws would depend on the tests that ran before in the same process."""
    for path in Path(__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "default_rng" not in text:
            continue
        tree = ast.parse(text)
        shared = {
            ast.unparse(statement.targets[0])
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Call)
            and ast.unparse(statement.value.func).endswith("default_rng")
        }
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        drawn = {node.id for each in functions for node in ast.walk(each) if isinstance(node, ast.Name)} & shared
        assert not drawn, f"{path.name} shares {drawn}; use the fixture rng"


def test_shapes_of_signatures_are_checked_in_the_first_calls_of_every_test() -> None:
    right, wrong = np.eye(4), np.arange(4.0)[:, None]
    for _ in range(2):
        with pytest.raises(BeartypeCallHintViolation, match="r_squared"):
            task.r_squared(right, wrong)
        for _ in range(shape_checker.CALLS):
            assert task.r_squared(right, right) == 1
        assert task.r_squared(right, wrong) != 1, "a later call is as it would be without tests"
        shape_checker.begin(Path(__file__))


def test_results_generators_and_types_are_checked_too() -> None:
    """As the import hook decorates the functions of the package."""
    checked = jaxtyping.jaxtyped(typechecker=shape_checker.check)

    @checked
    def turned(x: Float[np.ndarray, "a b"]) -> Float[np.ndarray, "b a"]:
        return x

    @checked
    def rows(x: Float[np.ndarray, "a b"], y: Float[np.ndarray, "a b"]) -> Iterator[np.ndarray]:
        yield from x + y

    @checked
    def doubled(number: int) -> int:
        return 2 * number

    assert turned(np.eye(3)).shape == (3, 3)
    with pytest.raises(BeartypeCallHintViolation, match="turned"):
        turned(np.ones((2, 3)))
    assert len(list(rows(np.eye(3), np.eye(3)))) == 3
    with pytest.raises(jaxtyping.TypeCheckError, match="rows"):
        rows(np.eye(3), np.ones((1, 3)))
    for _ in range(2 * shape_checker.CALLS):
        with pytest.raises(BeartypeCallHintViolation, match="doubled"):
            doubled("a")


def test_functions_inside_others_are_checked_the_first_times_they_are_made_in_a_file() -> None:
    def made() -> Callable[[Any], int]:
        @jaxtyping.jaxtyped(typechecker=shape_checker.check)
        def doubled(number: int) -> int:
            return 2 * number

        return doubled

    for file in ("first", "second"):
        shape_checker.begin(Path(file))
        for _ in range(shape_checker.CALLS):
            with pytest.raises(BeartypeCallHintViolation, match="doubled"):
                made()("a")
        shape_checker.begin(Path(file))
        assert made()("a") == "aa", "it is as it would be without tests"


def test_fields_of_dataclasses_are_checked_in_the_first_objects_of_every_test() -> None:
    @jaxtyping.jaxtyped(typechecker=shape_checker.check)
    @dataclass
    class Pair:
        x: Float[np.ndarray, "a b"]
        names: list[str] = field(default_factory=list)

    for _ in range(2):
        with pytest.raises(jaxtyping.TypeCheckError, match="Pair"):
            Pair(np.ones(3))
        for _ in range(shape_checker.CALLS):
            assert Pair(np.eye(2)).names == []
        assert Pair(np.ones(3)).x.ndim == 1, "a later object is as it would be without tests"
        shape_checker.begin(Path(__file__))


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_declared_and_exist(name: str) -> None:
    module = importlib.import_module(name)
    if hasattr(module, "__path__") and re.search(r"^(from|import) ", inspect.getsource(module), re.MULTILINE):
        assert hasattr(module, "__all__"), f"{name} imports names and declares no __all__"
    public = getattr(module, "__all__", [])
    assert len(set(public)) == len(public)
    assert [each for each in public if not hasattr(module, each)] == []


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_described(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for public, value in vars(module).items():
        own = (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name
        assert not own or public.startswith("_") or value.__doc__, f"{name}.{public} has no docstring"


def test_the_front_door_shows_what_it_declares() -> None:
    assert set(codedfl.__all__) <= set(dir(codedfl))
    assert all(getattr(codedfl, name) is not None for name in codedfl.__all__)
    with pytest.raises(AttributeError, match="'codedfl' has no attribute 'nosuch'"):
        codedfl.nosuch  # noqa: B018


@pytest.mark.real
@pytest.mark.parametrize("start", ["import codedfl", "from codedfl.cli import main; main(['--help'])"])
def test_the_front_door_opens_without_libraries(start: str) -> None:
    heavy = {"numpy", "scipy", "numba", "pyarrow", "rich", "sklearn", "matplotlib", "cryptography", "jaxtyping"}
    code = f"import atexit, sys; atexit.register(lambda: print(sorted({heavy} & set(sys.modules)))); {start}"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_version_is_that_of_the_distribution() -> None:
    assert codedfl.__version__ == importlib.metadata.version("codedfl")


LINE = re.compile(r"^ {4}(?P<branches>(?:[│ ] {3})*)(?P<branch>[├└]── )?(?P<name>\w+)  +\S")


def drawn(text: str) -> dict[str, str]:
    """Child to parent, from the drawing: each level is four characters wide."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in text.splitlines():
        if not (match := LINE.match(line)):
            continue
        depth = len(match["branches"]) // 4 + bool(match["branch"])
        assert depth <= len(path), f"'{match['name']}' hangs from nothing"
        path = [*path[:depth], match["name"]]
        parents[match["name"]] = path[-2] if depth else "Exception"
    return parents


def test_a_drawing_is_read() -> None:
    text = "    A      root\n    ├── B      one\n    │   └── C  two\n    └── D      three\n        └── E  four\n"
    assert drawn(text) == {"A": "Exception", "B": "A", "C": "B", "D": "A", "E": "D"}


def test_the_errors_are_those_of_the_drawing() -> None:
    classes = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and not issubclass(value, Warning)
    }
    assert drawn(errors.__doc__ or "") == classes


def descendants(kind: type) -> set[type]:
    return {kind}.union(*(descendants(child) for child in kind.__subclasses__()))


def test_all_errors_stand_in_one_place() -> None:
    for name in MODULES:
        importlib.import_module(name)
    own = {kind for kind in descendants(errors.CodedflError) if kind.__module__.startswith("codedfl")}
    assert {kind.__name__ for kind in own if kind.__module__ != "codedfl.errors"} == set()
