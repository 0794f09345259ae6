"""What decorators say about handlers, as data that travels with a definition to a process without the code.

`declare` writes it and `declared_registry` reads it: a service then builds the same definition as a program with the
handlers. It imports no user code. The client calls the first, the service the second. `check_declared` tells where
nothing was declared.

Reads the code of a flow for what differs from replay to replay (clocks, random numbers, new ids), and for threads,
files and connections, which belong in a step.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from stepkeep.definition import bounds
from stepkeep.definition.durations import format_duration
from stepkeep.definition.findings import Finding
from stepkeep.definition.native.build import merged_retry
from stepkeep.definition.native.lint import unstated_writes, work_of
from stepkeep.definition.native.validators import Word, given, within
from stepkeep.definition.native.written import Block, HandlerName, QueueName, RetryGiven
from stepkeep.definition.python.registry import WORKTREE, HandlerSpec, Kind, Registry
from stepkeep.definition.python.retry import NATIVE_RETRY, written_retry
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.definition import Definition, Flow, Handler
from stepkeep.kernel.errors import InvalidInput

EffectGiven = Annotated[
    Literal["read", "write", "irreversible"] | None, given(Literal["read", "write", "irreversible"])
]


LOAD_CODE = "Import the code that has it, send what its decorator says (`handlers`)"


class DeclaredHandler(Block):
    """What a decorator says about one handler; an empty one says nothing."""

    retry: RetryGiven = None
    timeout: Annotated[int | None, within(bounds.STEP_TIMEOUT)] = None
    undo: Annotated[HandlerName | None, given(HandlerName)] = None
    effect: EffectGiven = None
    transactional: bool = False
    capabilities: list[Word] = Field(default=[])
    queue: QueueName = ""


Handlers = Annotated[dict[HandlerName, DeclaredHandler], Field(max_length=10_000)]
_handlers: TypeAdapter[dict[str, DeclaredHandler]] = TypeAdapter(Handlers)

KINDS: dict[str, Kind] = {"handlers": "python", "agents": "agent"}
"""Where handlers and agents are declared: one name may be both."""


def declare(registry: Registry, text: str) -> dict[str, dict[str, Any]]:
    """What the decorators say about the handlers and agents that a definition's text names, and about their undos."""
    named = [spec for spec in registry if spec.name in text]
    found: dict[str, dict[str, Any]] = {key: {} for key in KINDS}
    while named:
        spec = named.pop()
        kind = found["agents" if spec.kind == "agent" else "handlers"]
        if spec.name not in kind:
            kind[spec.name] = dict(_said(spec))
            undo = None if spec.undo is None else registry.get(spec.undo)
            named += [] if undo is None else [undo]
    return {key: dict(sorted(specs.items())) for key, specs in found.items() if specs or key == "handlers"}


def _said(spec: HandlerSpec) -> Iterator[tuple[str, Any]]:
    if spec.retry is not None:
        yield "retry", written_retry(spec.retry)
    if spec.timeout is not None:
        yield "timeout", format_duration(spec.timeout)
    for name in ("undo", "effect", "transactional", "queue"):
        if value := getattr(spec, name):
            yield name, value
    if spec.capabilities:
        yield "capabilities", list(spec.capabilities)


def declared_registry(given: Mapping[str, Any]) -> Registry:
    """What a caller declares under `handlers` and `agents`, without functions; InvalidInput unless `declare` could
    write it."""
    registry = Registry()
    for key, kind in KINDS.items():
        _register(registry, kind, key, given.get(key, {}))
    return registry


def _register(registry: Registry, kind: Kind, key: str, given: Any) -> None:
    try:
        blocks = _handlers.validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f".{part}" for part in first["loc"])
        raise InvalidInput(f"`{key}{where}` cannot be read: {first['msg']}.") from None
    for name, block in blocks.items():
        registry.register(
            HandlerSpec(
                name=name,
                function=_elsewhere,
                kind=kind,
                retry=None if block.retry is None else merged_retry(block.retry, NATIVE_RETRY),
                timeout=block.timeout,
                undo=block.undo,
                effect=None if block.effect is None else kernel.Effect(block.effect),
                transactional=block.transactional,
                capabilities=tuple(block.capabilities),
                queue=block.queue,
            )
        )


def check_declared(definition: kernel.Definition, known: Registry) -> tuple[list[Finding], list[Finding]]:
    """Problems and advice about handlers of which nothing is known here, so that what their decorators say is lost.

    Where a rollback would leave their effect behind, it is a problem: their decorators may have an undo.
    """
    left, problems, advice = unstated_writes(definition), list[Finding](), dict[str, Finding]()
    for path, step in work_of(definition):
        is_agent = isinstance(step.executor, kernel.Agent)
        if not isinstance(step.executor, kernel.Agent | kernel.Handler) or step.undo is not None:
            continue
        name = step.executor.name
        if (known.agent(name) if is_agent else known.get(name)) is not None or name.startswith(WORKTREE):
            continue
        said = f"Nothing is known here of the {'agent' if is_agent else 'handler'} `{name}`"
        if step.name in left and not isinstance(step.growth, kernel.Worked):
            said += f", and a rollback would leave behind what step `{step.name}` does."
            problems.append(Finding((*path, "name"), said, f"{LOAD_CODE}, or say its `undo` or its `effect`."))
        else:
            said += ": what its decorator says (`retry`, `timeout`, `queue` …) is no part of this workflow."
            advice.setdefault(name, Finding((*path, "name"), said, f"{LOAD_CODE}, or say it at the step."))
    return problems, list(advice.values())


def _elsewhere(**inputs: Any) -> None:
    """Stands for a handler whose code is in another process: its parameters are not known here."""


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
THREADS = ("threading", "concurrent", "multiprocessing", "asyncio.threads")
IO = (
    *("builtins.input", "io", "_io", "posix", "nt", "os", "shutil", "subprocess", "tempfile", "pathlib"),
    *("socket", "_socket", "ssl", "select", "urllib.request", "http", "smtplib", "ftplib", "sqlite3", "_sqlite3"),
    *("asyncio.streams", "asyncio.subprocess", "time.sleep", "requests", "httpx", "aiohttp", "psycopg", "urllib3"),
)
"""Modules, or names in them, that use threads, or read or write outside of the flow."""
PURE = ("os.fspath", "posix.fspath", "pathlib.Path", "pathlib.PurePath", "io.StringIO", "_io.StringIO", "_io.BytesIO")
"""What these modules have that does neither."""
OF_FILES = frozenset(
    {"open", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "exists", "glob"}
)
"""The methods of a path that look at files."""


def flow_advice(definition: Definition, handlers: Registry) -> Iterator[Finding]:
    """One finding for each such call of a flow whose code is here."""
    for number, step in enumerate(definition.steps):
        if not isinstance(step.growth, Flow) or not isinstance(step.executor, Handler):
            continue
        spec = handlers.get(step.executor.name)
        for name, line, kind in () if spec is None else _different(spec.function):
            meant, hint = KINDS_OF_CALLS[kind]
            said = f"The flow `{step.name}` calls `{name}()` in line {line}: {meant}."
            yield Finding(("steps", number, "name"), said, hint.format(name=name))


KINDS_OF_CALLS = {
    "different": ("a replay gets another value, and may fail", "Write `await ctx.once(NAME, {name})`: it is recorded."),
    "thread": (
        "a replay starts it again, and its result is not recorded",
        "Call a handler instead: `await ctx.step(...)` runs `def` functions in threads.",
    ),
    "outside": (
        "a replay does it again",
        "Make the call in a step, `await ctx.step(...)`; a short one may stand in `await ctx.once(NAME, FUNCTION)`.",
    ),
}
"""What each kind of call means in a flow, and what to write instead."""


_parsing = Lock()
"""CPython 3.11 counts the depth of trees of all threads together, and raises SystemError if two are made at once."""


@lru_cache(maxsize=1024)
def _different(function: Callable[..., Any]) -> tuple[tuple[str, int, str], ...]:
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
    kinds = ((name, line, _kind_of(origin)) for name, line, origin in found)
    return tuple((name, line, kind) for name, line, kind in kinds if kind is not None)


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
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        # `Path("report").read_text()`: a method of what a class has made.
        made = _called(function.value.func, known)
        return f"{made}.{function.attr}" if made.startswith("pathlib.") and function.attr in OF_FILES else ""
    first, *rest = ast.unparse(function).split(".")
    found = known.get(first, getattr(builtins, first, None))
    for name in rest:
        # Modules and classes alone: an attribute of anything else may be computed.
        found = getattr(found, name, None) if inspect.ismodule(found) or inspect.isclass(found) else None
    if found is None:
        return ""
    if inspect.isclass(found):
        # A class makes a value; that of `random.Random(7)` has a seed.
        return "" if found.__module__ in MODULES else f"{found.__module__}.{found.__qualname__}"
    owner = getattr(found, "__self__", None)
    home = found if getattr(found, "__module__", None) else owner if inspect.isclass(owner) else type(owner)
    return f"{home.__module__}.{getattr(found, '__qualname__', '')}"


def _kind_of(origin: str) -> str | None:
    """What a call of this means for a replay; None if nothing."""
    if origin in DIFFERENT or origin.partition(".")[0] in MODULES:
        return "different"
    if _is_below(origin, THREADS):
        return "thread"
    is_path = origin.startswith("pathlib.") and origin.rpartition(".")[2] in OF_FILES
    return "outside" if is_path or (_is_below(origin, IO) and not _is_below(origin, PURE)) else None


def _is_below(origin: str, names: Sequence[str]) -> bool:
    return any(origin == name or origin.startswith(f"{name}.") for name in names)
