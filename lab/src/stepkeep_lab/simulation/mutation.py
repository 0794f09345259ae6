"""Plants a bug in memory: a piece of a function's source is replaced, and the function gets the compiled result.

Files are never changed. A planted bug whose text is not found exactly once is an error.
"""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple


class Edit(NamedTuple):
    """One replacement. `where` is `module:function` or `module:Class.method`, below `stepkeep`."""

    where: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A bug: its name, what it would mean, and the edits that make it."""

    name: str
    what: str
    edits: tuple[Edit, ...]


class Misfit(Exception):
    """The text that a mutant replaces is not there (any more), or is there more than once."""


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Let the engine have this bug for a while."""
    with ExitStack() as stack:
        for where in dict.fromkeys(edit.where for edit in mutant.edits):
            function = _find(where)
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = _mutated(function, [edit for edit in mutant.edits if edit.where == where])
        yield


def _find(where: str) -> FunctionType:
    module, _, path = where.partition(":")
    package = "stepkeep_lab" if module.startswith("simulation.") else "stepkeep"
    found: Any = import_module(f"{package}.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    function = found.__func__ if isinstance(found, staticmethod | classmethod) else inspect.unwrap(found)
    if not isinstance(function, FunctionType):
        raise Misfit(f"{where} is no function")
    return function


def _mutated(function: FunctionType, edits: list[Edit]) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        if source.count(edit.old) != 1:
            raise Misfit(f"{edit.where} has {edit.old!r} {source.count(edit.old)} times, not once")
        source = source.replace(edit.old, edit.new)
    # The body alone: decorators have done their work already.
    body = source[source.index("async def " if _is_async(function) else "def ") :]
    flags = __future__.annotations.compiler_flag
    code = compile(body, f"<{edits[0].where}>", "exec", flags=flags, dont_inherit=True)
    inside = dict(vars(sys.modules[function.__module__]))
    exec(code, inside)  # noqa: S102 - our own source with a planted bug, in memory, on request
    return inside[function.__name__].__code__


def _is_async(function: FunctionType) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
