"""The run-time checker of signatures: a whole number is a number, as everywhere in Python.

Checking costs several times what small functions do. So every test has the first calls of each function checked, and
the thousandth passes as it would without tests.
"""

import functools
from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))

CALLS = 12
"""How many calls of a function are checked in each test."""

_test = 0


def begin() -> None:
    """Begin to count again."""
    global _test
    _test += 1


def sampled(checker: Callable[..., Any]) -> Callable[..., Any]:
    """Let a decorator that checks calls check the first ones of each test; classes it checks always."""

    def decorator(*arguments: Any, **options: Any) -> Callable[[Any], Any]:
        decorate = checker(*arguments, **options)

        def wrap(found: Any) -> Any:
            return decorate(found) if isinstance(found, type) else _first_calls(found, decorate(found))

        return wrap

    return decorator


def _first_calls(plain: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    test, left = -1, 0

    @functools.wraps(plain)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal test, left
        if test != _test:
            test, left = _test, CALLS
        if left <= 0:
            return plain(*arguments, **options)
        left -= 1
        return checked(*arguments, **options)

    return call
