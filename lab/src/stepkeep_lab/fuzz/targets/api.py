"""The API: every public method of the engine and every public constructor, with wrong values for its parameters.

Judges that a call is answered or refused in the engine's own words, comes back, and leaves the run it names readable.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import stepkeep as sk
from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.errors import NotFound, StepkeepError
from stepkeep.worker.context import Context
from stepkeep_lab.fuzz.chance import shorter
from stepkeep_lab.fuzz.odd_values import VALUES
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

PACKAGE = str(Path(sk.__file__).parent)

LIFE = ("open", "close", "serve", "start_worker", "stop_workers")
METHODS = tuple(
    name
    for name, method in sorted(vars(sk.AsyncEngine).items())
    if not name.startswith("_") and name not in LIFE and asyncio.iscoroutinefunction(method)
)
CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "Retry": sk.Retry,
    "StepError": sk.StepError,
    "wait_for": sk.wait_for,
    "retry_in": sk.retry_in,
    "fail": sk.fail,
    "Workflow": sk.Workflow,
    "step": sk.step,
    "agent": sk.agent,
    "open": sk.open,
}
BUILDERS = ("step", "agent", "command", "http", "approval", "wait")
GATED = """
workflow: gated
timeout: 1h
steps:
  - {name: sign-off, approval: {deadline: 1h}}
"""
# What would wait forever by right, or reach beyond the folder of the case.
LEFT_OUT = {
    ("engine.wait", "seconds"): {"None", "inf", "10**30", "10**5000", "1e308", "2**31", "2**53", "2**63", "nan"},
}


class Call(msgspec.Struct, frozen=True):
    """A callable, and the names of the values that some of its parameters get; the others get what fits."""

    function: str
    values: tuple[tuple[str, str], ...]


class Api(Target[Call]):
    name = "api"
    what = "Every public method of the engine and every public constructor, with wrong values for its parameters."
    holds = (
        "A call is answered, or refused with a StepkeepError, or a TypeError or ValueError raised on purpose. "
        "It comes back, and the run that it names stays readable."
    )
    limits = Limits(cpu_seconds=10.0, wall_seconds=15.0, memory_mb=1_500, batch=300)

    def __init__(self, replaced: dict[str, Callable[..., Any]] | None = None) -> None:
        self._replaced = replaced or {}
        self._engine: sk.Engine | None = None
        self._workflow: Any = None
        self._known = _signatures()

    def open(self, folder: Path) -> None:
        file = folder / "gated.yaml"
        file.write_text(GATED, encoding="utf-8")
        registry = sk.Registry()
        self._engine = sk.open(f"sqlite:///{folder}/api.db", registry=registry).__enter__()
        self._workflow = self._engine.publish(file)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.__exit__(None, None, None)

    def generate(self, random: Random) -> Call:
        function = random.choice(tuple(self._known))
        parameters = self._known[function]
        chosen = random.sample(parameters, min(len(parameters), random.choice((1, 1, 1, 2, 3))))
        return Call(function, tuple((name, self._value(random, function, name)) for name in chosen))

    def _value(self, random: Random, function: str, parameter: str) -> str:
        left_out = LEFT_OUT.get((function, parameter), set())
        return random.choice([name for name in VALUES if name not in left_out])

    def check(self, case: Call) -> Verdict:
        assert self._engine is not None
        run_id = self._engine.start(self._workflow).run_id
        verdict = self._called(case, run_id)
        try:
            self._engine.show(run_id)
            self._engine.runs(limit=1)
        except NotFound:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the run cannot be read
            return broken("leaves its run readable", exception_text(error))
        return verdict

    def _called(self, case: Call, run_id: str) -> Verdict:
        given = {name: VALUES[value]() for name, value in case.values}
        try:
            self._call(case.function, given, run_id)
        except StepkeepError as error:
            return _worded(error) or Verdict(outcome="refused")
        except RuntimeError as error:
            if not isinstance(error, RecursionError) and _is_of_the_value(error):
                return Verdict(outcome="raised by the value")
            raise
        except (TypeError, ValueError) as error:
            if not _is_on_purpose(error):
                return broken("refuses in its own words", f"{exception_text(error)} at {_place(error)}")
            return Verdict(outcome="refused by type")
        return Verdict(outcome="answered")

    def _call(self, function: str, given: dict[str, Any], run_id: str) -> Any:
        kind, _, name = function.rpartition(".")
        if function in self._replaced:
            return self._replaced[function](**given)
        if kind == "engine":
            return self._on_engine(name, given, run_id)
        if kind == "workflow":
            return _on_workflow(name, given)
        if kind == "context":
            context = Context(run_id=run_id, workflow="w", version=1, step="s")
            return getattr(context, name)(**given)
        if name == "open":
            return sk.open(given.pop("url", "sqlite:///other.db"), **given)
        if name in ("step", "agent"):
            target = given.pop("target", None)
            decorate = CONSTRUCTORS[name](target, registry=sk.Registry(), **given)
            return decorate(lambda: None) if target is None else decorate
        if name in ("wait_for", "retry_in", "fail", "StepError", "Workflow"):
            first = {"wait_for": "event", "retry_in": "delay", "Workflow": "name"}.get(name, "error")
            given.setdefault(first, "5s")
        made = CONSTRUCTORS[name](**given)
        return made.definition() if name == "Workflow" else made

    def _on_engine(self, name: str, given: dict[str, Any], run_id: str) -> Any:
        assert self._engine is not None
        fitting: dict[str, Any] = {
            "run_id": run_id,
            "workflow": self._workflow,
            "step": "sign-off",
            "name": "event",
            "token": "t",
            "archive": "archive",
            "seconds": 0.01,
        }
        needed = set(_required(getattr(sk.AsyncEngine, name)))
        if name == "wait":
            needed.add("seconds")
        if name == "prune":
            given.setdefault("dry_run", True)
            given.setdefault("older_than", "1d")
        arguments = {key: fitting.get(key, "text") for key in needed}
        return getattr(self._engine, name)(**{**arguments, **given})

    def show(self, case: Call) -> str:
        return f"{case.function}({', '.join(f'{name}={value}' for name, value in case.values)})"

    def smaller(self, case: Call) -> Iterator[Call]:
        if len(case.values) > 1:
            for values in shorter(case.values):
                yield Call(case.function, tuple(values))


def _signatures() -> dict[str, list[str]]:
    found = {f"engine.{name}": _parameters(getattr(sk.AsyncEngine, name)) for name in METHODS}
    found |= {f"sk.{name}": _parameters(function) for name, function in CONSTRUCTORS.items()}
    found |= {f"workflow.{name}": [*_parameters(getattr(sk.Workflow, name)), *OPTIONS[name]] for name in BUILDERS}
    found |= {f"context.{name}": _parameters(getattr(Context, name)) for name in ("cost", "emit")}
    found["sk.open"] = ["url", "tenant", "actor", "registry"]
    found["engine.run"] = found["engine.start"]
    found["engine.work_on"].remove("until_blocked")  # without it the call waits for a person, by right
    return {name: parameters for name, parameters in found.items() if parameters}


WORK = ("timeout", "retry", "undo", "effect", "rules", "completion", "capabilities", "queue", "after", "if_", "inputs")
OPTIONS = {name: WORK if name in ("step", "agent") else WORK[:-1] for name in BUILDERS}


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [one.name for one in _named(function) if one.name not in ("registry", "told")]


def _required(function: Callable[..., Any]) -> list[str]:
    return [one.name for one in _named(function) if one.default is inspect.Parameter.empty]


def _named(function: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters.values()
    return [one for one in found if one.name != "self" and one.kind not in kinds]


def _on_workflow(name: str, given: dict[str, Any]) -> Any:
    workflow = sk.Workflow("fuzzed", registry=sk.Registry())
    fitting = {
        "name": "a",
        "handler": "h",
        "agent": "one",
        "action": "do",
        "argv": ["true"],
        "url": "https://example.com",
        "event": "e",
    }
    positional = [
        one.name
        for one in inspect.signature(getattr(sk.Workflow, name)).parameters.values()
        if one.kind is inspect.Parameter.POSITIONAL_ONLY and one.name != "self"
    ]
    getattr(workflow, name)(*(given.pop(one, fitting[one]) for one in positional), **given)
    return workflow.definition()


def _worded(error: StepkeepError) -> Verdict | None:
    try:
        said = str(error)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the error cannot be read
        return broken("says why", f"{type(error).__name__} cannot be printed: {type(problem).__name__}")
    return None if said else broken("says why", f"{type(error).__name__} without a message")


def _is_of_the_value(error: BaseException) -> bool:
    """Whether what was passed raised this itself, when it was asked something."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).name == "odd_values.py"


def _is_on_purpose(error: BaseException) -> bool:
    """Whether the engine raised this itself, or Python refused the call before the engine saw it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    if not last.filename.startswith(PACKAGE) or Path(last.filename).parent.name == "targets":
        return Path(last.filename).parent.name == "targets"
    return linecache.getline(last.filename, last.lineno or 0).lstrip().startswith("raise")


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(PACKAGE)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
