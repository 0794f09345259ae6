"""Reads the code of a flow for what differs from replay to replay: clocks, random numbers, new ids.

It runs nothing. It finds plain calls in the function itself; functions that the flow calls are not read. `native` calls
it for advice.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

from stepkeep.definition.findings import Finding
from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.definition import Definition, Flow, Handler

DIFFERENT = frozenset(
    {
        *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
        *("time.perf_counter_ns", "time.localtime", "time.gmtime", "time.strftime", "time.ctime"),
        *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
        *("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "posix.urandom", "nt.urandom"),
    }
)
"""What gives another value at each call, by module and name. Everything in `MODULES` does, too."""
MODULES = frozenset({"random", "secrets"})


def flow_advice(definition: Definition, handlers: Registry) -> Iterator[Finding]:
    """One finding for each such call of a flow whose code is here."""
    for number, step in enumerate(definition.steps):
        if not isinstance(step.growth, Flow) or not isinstance(step.executor, Handler):
            continue
        spec = handlers.get(step.executor.name)
        for name, line in () if spec is None else _different(spec.function):
            said = f"The flow `{step.name}` calls `{name}()` in line {line}: a replay gets another value, and may fail."
            yield Finding(("steps", number, "name"), said, f"Write `await ctx.once(NAME, {name})`: it is recorded.")


_parsing = Lock()
"""CPython 3.11 counts the depth of trees of all threads together, and raises SystemError if two are made at once."""


@lru_cache(maxsize=1024)
def _different(function: Callable[..., Any]) -> tuple[tuple[str, int], ...]:
    plain = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(plain)
        with _parsing:
            [tree] = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    known = {**plain.__globals__, **inspect.getclosurevars(plain).nonlocals}
    for own in plain.__code__.co_varnames:
        known.pop(own, None)
    calls = (call for statement in getattr(tree, "body", ()) for call in _calls(statement))
    found = ((ast.unparse(call.func), call.lineno + first - 1, _called(call.func, known)) for call in calls)
    return tuple((name, line) for name, line, origin in found if _differs(origin))


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that the function makes itself: what an inner function does is not run with it."""
    if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def _called(function: ast.expr, known: Mapping[str, Any]) -> str:
    """Module and name of what is called, followed through the names of the program; empty if that is not certain."""
    first, *rest = ast.unparse(function).split(".")
    found = known.get(first)
    for name in rest:
        # Modules and classes alone: an attribute of anything else may be computed.
        found = getattr(found, name, None) if inspect.ismodule(found) or inspect.isclass(found) else None
    if found is None or inspect.isclass(found):
        # A class makes a value; that of `random.Random(7)` has a seed.
        return ""
    owner = getattr(found, "__self__", None)
    home = found if getattr(found, "__module__", None) else owner if inspect.isclass(owner) else type(owner)
    return f"{home.__module__}.{getattr(found, '__qualname__', '')}"


def _differs(origin: str) -> bool:
    return origin in DIFFERENT or origin.partition(".")[0] in MODULES
