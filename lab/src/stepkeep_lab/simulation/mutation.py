"""Plants a bug in memory: a piece of a function's source is replaced, and the function gets the compiled result.

Files are never changed. A planted bug whose text is not found exactly once is an error.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from types import FunctionType
from typing import Any, NamedTuple


class Edit(NamedTuple):
    """One replacement. `where` is `module:function` or `module:Class.method`, below `stepkeep`.

    A function that has moved to another module is found by its name and by the text that is replaced.
    """

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
            edits = [edit for edit in mutant.edits if edit.where == where]
            function = _find(where, edits)
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = _mutated(function, edits)
        yield


def _find(where: str, edits: Sequence[Edit]) -> FunctionType:
    module, _, path = where.partition(":")
    package = "stepkeep_lab" if module.startswith("simulation.") else "stepkeep"
    home = f"{package}.{module}"
    if path not in _functions(home):
        homes = [one for one in _modules(package) if _fits(_functions(one).get(path, ""), edits)]
        if len(homes) != 1:
            raise Misfit(f"{home} has no {path} with this text, and {', '.join(homes) or 'no other module'} has it")
        [home] = homes
    found: Any = import_module(home)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = found.fget if isinstance(found, property) else found
    function = found.__func__ if isinstance(found, staticmethod | classmethod) else inspect.unwrap(found)
    if not isinstance(function, FunctionType):
        raise Misfit(f"{where} is no function")
    return function


@cache
def _modules(package: str) -> tuple[str, ...]:
    found = find_spec(package)
    assert found is not None
    return tuple(one.name for one in walk_packages(found.submodule_search_locations, f"{package}."))


@cache
def _functions(module: str) -> dict[str, str]:
    """The sources of a module's functions and methods by their dotted names. Nothing is imported."""
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        return {}
    if found is None or found.origin is None:
        return {}
    text = Path(found.origin).read_text(encoding="utf-8")
    return dict(_named(text.splitlines(keepends=True), ast.parse(text).body, ""))


def _named(lines: list[str], body: list[ast.stmt], above: str) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{above}{node.name}", textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
        if isinstance(node, ast.ClassDef):
            yield from _named(lines, node.body, f"{above}{node.name}.")


def _fits(source: str, edits: Sequence[Edit]) -> bool:
    return all(source.count(edit.old) == 1 for edit in edits)


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
