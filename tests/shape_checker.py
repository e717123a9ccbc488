"""The run-time checker of signatures: a whole number is a number, as everywhere in Python.

Checking shapes costs several times what small functions do. So every test has the first calls of each function checked
whose signature has shapes, and the thousandth passes as it would without tests. Other signatures need no jaxtyping,
which would take most of the tests' time; their calls are all checked.
"""

import functools
from collections.abc import Callable
from typing import Any, get_args

import jaxtyping
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
    """Let a decorator that checks shapes check the first calls of each test; classes it checks always."""

    def decorator(*arguments: Any, **options: Any) -> Callable[[Any], Any]:
        decorate = checker(*arguments, **options)

        def wrap(found: Any) -> Any:
            if isinstance(found, type):
                return decorate(found)
            if not any(map(_has_shape, getattr(found, "__annotations__", {}).values())):
                return check(found)
            return _first_calls(found, decorate(found))

        return wrap

    return decorator


def _has_shape(hint: Any) -> bool:
    """Whether a shape may be in an annotation; one in quotes is not looked into."""
    if isinstance(hint, str):
        return not hint.isidentifier()
    if parts := hint if isinstance(hint, list) else get_args(hint):
        return any(map(_has_shape, parts))
    return isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)


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
