"""Functions that numba compiles: which of them a change concerns, and how they are compiled with it."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mutation.changes import PACKAGE, ROOT
from mutation.places import Place, living


def kernels() -> dict[Place, Any]:
    """Functions that numba compiles."""
    found: dict[Place, Any] = {}
    for module in _modules():
        for value in vars(module).values():
            if type(value).__name__ == "CPUDispatcher":
                code = value.py_func.__code__
                found[Place(str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname, 0)] = value
    return found


def _modules() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith(PACKAGE)]


def names_in(code: CodeType) -> set[str]:
    """Names that code and the functions inside it look up."""
    inner = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def lookups(files: Iterable[str]) -> dict[Place, set[str]]:
    """The names that each function of these files looks up, and those from which each of numba's intrinsics is made."""
    found = {place: set().union(*(names_in(one.__code__) for one in made)) for place, made in living(files).items()}
    for module in _modules():
        for name, value in vars(module).items():
            if type(value).__name__ == "_Intrinsic":
                found[Place(str(Path(str(module.__file__)).relative_to(ROOT)), name, 0)] = _behind(value._defn)
    return found


def _behind(function: FunctionType) -> set[str]:
    """The names of the function that made this one, of what it looks up, and of the functions that it was given."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    given = {one.__name__ for one in held if isinstance(one, FunctionType)}
    return names_in(function.__code__) | given | {function.__qualname__.split(".")[0]}


def callers(changed: Place, known: dict[Place, set[str]]) -> set[Place]:
    """Functions of kernels that call this one, itself among them; a name is that of the own file if it has one."""
    own = {(place.file, place.name) for place in known}
    found, grown = {changed}, True
    while grown:
        grown = False
        for place, looked_up in known.items():
            called = (one for one in found if one.name in looked_up)
            if place not in found and any(
                one.file == place.file or (place.file, one.name) not in own for one in called
            ):
                found.add(place)
                grown = True
    return found


def compile_again(changed: Iterable[Any]) -> None:
    """Let compiled functions be compiled when they are called next."""
    from numba.core.caching import NullCache

    for dispatcher in changed:
        dispatcher._reset_overloads()
        dispatcher._cache = NullCache()


def replace_everywhere(old: Any, new: Any) -> None:
    """Let every module that has an object have another one in its place."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) and str(module.__file__).startswith(str(ROOT)):
            for name in [name for name, value in vars(module).items() if value is old]:
                setattr(module, name, new)
