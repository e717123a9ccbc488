"""The run-time checker of signatures: a whole number is a number, as everywhere in Python.

Checking shapes costs several times what small functions do. So every test has the first calls of each function checked
whose signature has shapes, and the first objects of each dataclass, and the thousandth passes as it would without
tests. All calls of other functions are checked. A function that is made inside another one is made anew, and would be
decorated anew, with each call of that one: it is checked the first times that it is made in a file of tests. Functions
are decorated by beartype, in a scope of jaxtyping: its own decorator binds arguments and checks them twice, which took
a good part of the tests' time.
"""

import functools
import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType
from typing import Any, ForwardRef, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))

CALLS = 3
"""How many calls of a function are checked in each test."""

_test = 0
_file: Path | None = None
_made: Counter[CodeType] = Counter()
"""How often functions inside others were made in this file of tests."""


def begin(file: Path) -> None:
    """Begin to count again, for a test of a file."""
    global _test, _file
    _test += 1
    if file != _file:
        _file = file
        _made.clear()


def sampled(checker: Callable[..., Any]) -> Callable[..., Any]:
    """Let jaxtyping's decorator check the first calls of each test."""

    def decorator(*arguments: Any, **options: Any) -> Callable[[Any], Any]:
        decorate = checker(*arguments, **options)

        def wrap(found: Any) -> Any:
            if isinstance(found, type):
                if is_dataclass(found) and "__init__" in vars(found):
                    found.__init__ = _first_calls(found.__init__, decorate, nullcontext)
                return found
            if "<locals>" in found.__qualname__:
                _made[found.__code__] += 1
                if _made[found.__code__] > CALLS:
                    return found
            hints = [part for hint in getattr(found, "__annotations__", {}).values() for part in _parts(hint)]
            # jaxtyping looks up the names it can, and checks arguments of generators when they are called
            if any(isinstance(part, (str, ForwardRef)) for part in hints) or inspect.isgeneratorfunction(found):
                return _first_calls(found, decorate, nullcontext)
            if any(isinstance(part, type) and issubclass(part, jaxtyping.AbstractArray) for part in hints):
                return _first_calls(found, check, lambda: checker("context"))
            return check(found)

        return wrap

    return decorator


def _parts(hint: Any) -> list[Any]:
    """The innermost parts of an annotation."""
    parts = hint if isinstance(hint, list) else get_args(hint)
    return [innermost for part in parts for innermost in _parts(part)] if parts else [hint]


def _first_calls(
    plain: Callable[..., Any], decorate: Callable[[Any], Any], scope: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Any]:
    test, left = -1, 0
    checked: Callable[..., Any] | None = None

    @functools.wraps(plain)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal test, left, checked
        if test != _test:
            test, left = _test, CALLS
        if left <= 0:
            return plain(*arguments, **options)
        left -= 1
        if checked is None:  # most functions are never called by a worker, and to decorate one takes a millisecond
            checked = decorate(plain)
        with scope():  # one letter, one size: among the arguments and the result of this call
            return checked(*arguments, **options)

    return call
