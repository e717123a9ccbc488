"""Arrays of a pickle, read without unpickling: nothing that the file names is imported or called."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codedfl.errors import DataError

ARRAY, ARRAY_CLASS, DTYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"
BYTES = "_codecs encode"
NUMBER_TYPES = ("<f8", "<i8")
_MARK = object()


@dataclass
class _Object:
    """What a pickle asks to make: the name of the maker, its arguments, and the state that is set afterwards."""

    maker: str
    arguments: tuple[Any, ...]
    state: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class _Name:
    text: str


def read_pickled_dictionary(raw: bytes, name: str) -> dict[str, Any]:
    """Return the dictionary in a ``.npy`` file that holds one object: lists, texts, and arrays of numbers.

    The opcodes of protocol 2 build plain values; everything else is refused. ``name`` is used in errors only.
    """
    try:
        version, header = raw[:8], raw[10 : 10 + int.from_bytes(raw[8:10], "little")]
        if version != b"\x93NUMPY\x01\x00" or b"'|O'" not in header or b"'shape': ()" not in header:
            raise ValueError("it is no .npy file with one object")
        found = _plain(_run(raw[10 + len(header) :]))
        if not isinstance(found, dict):
            raise ValueError("its object is no dictionary")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise DataError(f"{name} is not read, because {error}; fetch it again.") from error
    return found


def _run(program: bytes) -> Any:
    """Execute the opcodes on a stack of plain values."""
    import pickletools  # only this data set needs it

    stack: list[Any] = []
    memory: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(program):
        if opcode.name in _CONSTANTS:
            stack.append(_CONSTANTS[opcode.name]())
        elif opcode.name in ("BININT", "BININT1", "BININT2", "BINUNICODE"):
            stack.append(argument)
        elif opcode.name in ("BINPUT", "LONG_BINPUT"):
            memory[argument] = stack[-1]
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            stack.append(memory[argument])
        elif opcode.name == "GLOBAL":
            stack.append(_Name(argument))
        elif opcode.name in _SHORT_TUPLES:
            _replace(stack, _SHORT_TUPLES[opcode.name], tuple)
        elif opcode.name == "TUPLE":
            stack.append(tuple(_since_mark(stack)))
        elif opcode.name == "REDUCE":
            _replace(stack, 2, lambda pair: _Object(pair[0].text, pair[1]))
        elif opcode.name == "BUILD":
            stack[-2].state.append(stack.pop())
        elif opcode.name == "APPEND":
            stack[-2].append(stack.pop())
        elif opcode.name == "APPENDS":
            values = _since_mark(stack)
            stack[-1].extend(values)
        elif opcode.name == "SETITEMS":
            values = _since_mark(stack)
            stack[-1].update(zip(values[::2], values[1::2], strict=True))
        elif opcode.name not in ("PROTO", "STOP"):
            raise ValueError(f"it uses the pickle opcode {opcode.name}")
    return stack.pop()


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "MARK": lambda: _MARK,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _replace(stack: list[Any], count: int, make: Callable[[list[Any]], Any]) -> None:
    values = stack[-count:]
    del stack[-count:]
    stack.append(make(values))


def _since_mark(stack: list[Any]) -> list[Any]:
    values: list[Any] = []
    while (value := stack.pop()) is not _MARK:
        values.append(value)
    return values[::-1]


def _plain(value: Any) -> Any:
    """Replace what is to be made by arrays and bytes; refuse every other maker."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if not isinstance(value, _Object):
        return value
    if value.maker == BYTES and value.arguments[1] == "latin1":
        return value.arguments[0].encode("latin1")
    if value.maker == ARRAY and value.arguments[0] == _Name(ARRAY_CLASS):
        return _array(*value.state[0])
    raise ValueError(f"it asks for {value.maker}{value.arguments}")


def _array(version: int, shape: tuple[int, ...], dtype: _Object, column_major: bool, content: Any) -> Any:
    """Return an array of numbers, or the value inside an array of one object."""
    if dtype.maker != DTYPE:
        raise ValueError(f"it asks for {dtype.maker} as a type")
    if dtype.arguments[0] == "O8" and shape == ():
        return _plain(content)[0]
    number = f"{dtype.state[0][1]}{dtype.arguments[0]}"
    if version != 1 or number not in NUMBER_TYPES:
        raise ValueError(f"an array holds {number}")
    return np.frombuffer(_plain(content), number).reshape(shape, order="F" if column_major else "C")
