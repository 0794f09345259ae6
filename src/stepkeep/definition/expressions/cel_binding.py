"""Binding to the CEL library: parse, compile, evaluate, and convert the result to plain Python values.

The only module that imports the library, so that another binding can replace it. It checks nothing and translates no
message: what CEL refuses is raised as `CelRefused` with CEL's own text. `expressions` calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

VARIABLES: Final = (
    *("input", "steps", "run", "output"),
    *("step", "principal", "time", "labels", "cost", "spend"),
    *("trigger", "event", "payload"),
    *("message", "messages"),
    *("body", "delivery"),
    *("item", "index", "last"),
)


class _Library(NamedTuple):
    environment: Any
    type: Any
    error: Any
    null: Any


@cache
def _library() -> _Library:
    """The library, imported for the first expression: it takes 50 ms, and most commands evaluate none."""
    from cel_expr_python import cel

    environment = cel.NewEnv(variables=dict.fromkeys(VARIABLES, cel.Type.DYN))
    return _Library(environment, cel.Type, cel.Type.ERROR, cel.Type.NULL)


# What the library raises: its own errors, and those of the conversion from and to Python.
_RAISED: Final = (RuntimeError, ValueError, OverflowError, TypeError, IndexError, KeyError)

NONE_IS_COUNTED: Final = sys.version_info < (3, 12)
"""Whether Python counts references to None. From 3.12 on, None is immortal."""


class CelRefused(Exception):
    """CEL gave no value: it could not compile the text or evaluate the program. The message is CEL's own."""


class Program:
    """A compiled expression. Immutable, and safe to evaluate from several threads: CEL keeps the interpreter's lock."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def serialized(self) -> bytes:
        """The program as a protocol buffer of the public `cel.expr` messages."""
        try:
            found: bytes = self._compiled.serialize()
        except _RAISED as error:
            raise CelRefused(str(error)) from None
        return found

    def result_type(self) -> str:
        """CEL's name for the type of the result in lower case; `dyn` when that depends on the data.

        CelRefused where the type holds a map whose keys CEL has no type for.
        """
        try:
            return str(self._compiled.return_type()).lower()
        except _RAISED as error:
            raise CelRefused(str(error)) from None

    def evaluate(self, data: Mapping[str, Any], *, may_hold_null: bool = True) -> Any:
        """The result as Python values; raises CelRefused if there is none.

        `may_hold_null` False means that neither the data nor the program holds a null, which is faster.
        """
        try:
            result = self._compiled.eval(data=data)
            if result.type() == _library().error:
                raise CelRefused(str(result.value()))
            if may_hold_null and NONE_IS_COUNTED:
                return _without_null(result)
            return result.plain_value()
        except _RAISED as error:
            raise CelRefused(str(error)) from None


def compiled(source: str) -> Program:
    """The program of a text, with names, functions and types checked; raises CelRefused."""
    return _compiled(source, unchecked=False)


def parsed(source: str) -> Program:
    """The same after its syntax was checked and nothing else."""
    return _compiled(source, unchecked=True)


def is_type(value: object) -> bool:
    """Whether a result is one of CEL's types, such as `type(1)` gives."""
    return isinstance(value, _library().type)


def _compiled(source: str, *, unchecked: bool) -> Program:
    try:
        return Program(_library().environment.compile(source, disable_check=unchecked))
    except _RAISED as error:
        raise CelRefused(str(error)) from None


def _without_null(result: Any) -> Any:
    """A result, converted so that the library never returns None.

    `value()` and `plain_value()` of cel-expr-python 0.1.3 return None without taking a reference to it, at every depth.
    Below Python 3.12 each null would cost one, and at zero the interpreter aborts. Nulls are therefore recognised by
    their type, and lists and maps are read with `value()`, which gives their items as CEL values. It costs about 2 µs
    per item.
    """
    null = _library().null
    root: list[Any] = [None]
    waiting: list[tuple[Any, Any, Any]] = [(root, 0, result)]
    while waiting:
        parent, place, item = waiting.pop()
        if item.type() == null:
            continue
        found = item.value()
        if type(found) is list:
            parent[place] = items = [None] * len(found)
            waiting.extend((items, number, below) for number, below in enumerate(found))
        elif type(found) is dict:
            parent[place] = entries = dict.fromkeys(found)
            waiting.extend((entries, key, below) for key, below in found.items())
        else:
            parent[place] = found
    return root[0]
