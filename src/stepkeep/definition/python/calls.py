"""Calls of a flow in the words of a definition, as a remote worker writes them and as the service reads them.

The worker writes everything that its handlers declare, because the service does not know them. The service reads a call
through the front end of all definitions, so that its template has the same checks and defaults as that of any worker.
Nothing is executed or stored. `worker/attempts` writes calls, `operations/asked_calls` reads them.

`@flow`: a workflow that is written as one coroutine, whose calls are the steps of its runs.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, Literal, Protocol, TypedDict, TypeVar, overload

import msgspec
from typing_extensions import Unpack

from stepkeep.definition import arguments
from stepkeep.definition.bounds import MAX_CALL_TEXT
from stepkeep.definition.durations import format_duration
from stepkeep.definition.findings import Path
from stepkeep.definition.native.added import Template
from stepkeep.definition.native.growth import NOT_FOR_FLOWS
from stepkeep.definition.native.reader import examine
from stepkeep.definition.python.handlers import first_line, register, registry_of
from stepkeep.definition.python.registry import Function, HandlerSpec, Output, Registry
from stepkeep.definition.python.retry import Duration, Retry, written_retry
from stepkeep.definition.python.workflow import HandlerOptions, Rule, Workflow
from stepkeep.definition.text.document import nearest, path_text
from stepkeep.kernel.composition.child_runs import CONTINUE
from stepkeep.kernel.definition import Effect, Flow, Growth, Loop, Map, StepDefinition, Switch, Then
from stepkeep.kernel.errors import InvalidInput, Problem
from stepkeep.kernel.machine.outcomes import NewCall
from stepkeep.kernel.plan import queue_specs, template_of, written_template

WORDS = {
    "step": "uses",
    "sleep": "sleep",
    "wait_for": "wait",
    "gate": "approval",
    "child": "workflow",
    CONTINUE: "workflow",
}
"""Each kind of call, and the key of a definition that says what its step does."""

GROWS: dict[type[Growth], str] = {
    Map: "`map`. ctx.map calls a handler for each item",
    Loop: "`repeat`. Write a loop in the flow",
    Switch: "`switch`. Write the choice in the flow",
    Flow: "`flow`. Start another flow by ctx.child",
    Then: "`then`. The flow makes further calls itself",
}
"""What would let a call own steps, and what to write instead: its row has no numbers for them."""

NOT_OF_CALLS = {
    "if_": "`if_`. Write the condition in the flow",
    "inputs": "`inputs`. Give the handler its arguments in ctx.step",
    "after": "`after`. Await the other call before",
    "order": "`order`. Calls begin in the order in which the flow makes them",
    "on_failure": "`on_failure`. Catch CallFailed in the flow",
    "hooks": "`hooks`. Name them at a step of a definition",
}
"""Options of a step that mean nothing for a call, and what to write instead."""

MOST_TEMPLATES = 1_024
MOST_COMPLAINTS = 3

_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def digest_of(arguments: bytes) -> str:
    """The digest by which a replay recognises the arguments of a call."""
    return hashlib.sha256(_sorted(_decode(arguments))).hexdigest()[:32]


def refusal_of(built: StepDefinition) -> str | None:
    """Why a step that the front end accepts cannot be a call; None if it can."""
    if built.growth is not msgspec.UNSET:
        return f"a call has no {GROWS[type(built.growth)]}."
    if built.condition is not None:
        return f"a call has no {NOT_OF_CALLS['if_']}."
    if built.resources is not msgspec.UNSET:
        return "a call has no `resources`. Name them at a step of a definition, and start that by ctx.child."
    return None


def refusal_of_options(options: Iterable[str]) -> str | None:
    """Why a call cannot have one of these options; None if it can have all of them."""
    return next((f"a call has no {NOT_OF_CALLS[one]}." for one in options if one in NOT_OF_CALLS), None)


# -- the worker's side -------------------------------------------------------------------------------------------------
def written_call(template: Template, registry: Registry) -> str:
    """The step of a call in the words of a definition, with what its handlers declare."""
    assert template.source is not None
    [step] = template.source.document()["steps"]
    return msgspec.json.encode(_explicit(step, template_of(template.step), registry)).decode()


def _explicit(step: Mapping[str, Any], built: StepDefinition, registry: Registry) -> dict[str, Any]:
    """The written step with the settings that it takes from its handlers. `built` is what they come to."""
    found = dict(step)
    spec = _spec(step, registry)
    if spec is not None:
        found |= {} if spec.timeout is None else {"timeout": format_duration(built.timeout)}
        found |= {} if spec.retry is None else {"retry": written_retry(built.retry)}
        if spec.effect not in (None, Effect.UNKNOWN):
            found.setdefault("effect", str(spec.effect))
        if spec.capabilities:
            found["capabilities"] = sorted({*step.get("capabilities", ()), *spec.capabilities})
        if spec.queue and not step.get("queue"):
            found["queue"] = spec.queue
        if spec.transactional:
            found["transactional"] = True
    undo = step.get("undo") or (None if spec is None else spec.undo)
    if undo is None or built.undo is None:
        return found
    hook = {"uses": undo} if isinstance(undo, str) else dict(undo)
    undoing, own = _spec(hook, registry), built.undo
    if undoing is not None:
        hook |= {} if undoing.timeout is None else {"timeout": format_duration(own.timeout)}
        hook |= {} if undoing.retry is None else {"retry": written_retry(own.retry)}
        hook |= {} if own.capabilities is None else {"capabilities": list(own.capabilities)}
        hook |= {} if own.queue is None else {"queue": own.queue}
    return found | {"undo": hook}


def _spec(block: Mapping[str, Any], registry: Registry) -> HandlerSpec | None:
    if isinstance(name := block.get("uses"), str):
        return registry.get(name)
    return registry.agent(name) if isinstance(name := block.get("agent"), str) else None


# -- the side of the service -------------------------------------------------------------------------------------------
class ReadCall(msgspec.Struct, frozen=True):
    """A call that was read. `template` has what its step is."""

    kind: str
    name: str
    digest: str
    arguments: bytes
    template: Template

    def new(self, queue: int, undo_queue: int) -> NewCall:
        """The call as it is recorded, with the numbers of its queues."""
        return NewCall(
            kind=self.kind,
            name=self.name,
            digest=self.digest,
            arguments=self.arguments,
            step=self.template.step,
            queue=queue,
            undo_queue=undo_queue,
        )


def read_call(asked: NewCall, owner: str) -> ReadCall:
    """The call that a worker asks for: `asked.step` is written, not yet a template. `owner` is the flow's own step.

    Raises InvalidInput.

    >>> call = NewCall(kind="sleep", name="sleep", digest=digest_of(b"{}"), arguments=b"{}", step='{"sleep": "2d"}')
    >>> read_call(call, "order").template.queue is None
    True
    """
    word = WORDS.get(asked.kind)
    if word is None:
        raise InvalidInput(f"the kind of a call is one of {', '.join(WORDS)}.")
    template = _template(owner, word, asked.step)
    if asked.digest not in _digests(asked, template_of(template.step)):
        raise InvalidInput(f"the digest of the call {asked.kind} {asked.name} is not that of its arguments.")
    return ReadCall(asked.kind, asked.name, asked.digest, asked.arguments, template)


def _digests(asked: NewCall, built: StepDefinition) -> Iterator[str]:
    """The digests that the call may have. That of a child is over its input and over what else the flow said of it: a
    flow may say it as an argument or as an option, and an option is not in the digest."""
    if asked.kind != "child":
        yield digest_of(asked.arguments)
        return
    child = built.child
    assert child is not msgspec.UNSET
    deadline = None if child.deadline is None else format_duration(child.deadline)
    versions: list[dict[str, Any]] = [{"version": child.version}, {}] if child.version else [{}]
    deadlines: list[dict[str, Any]] = [{"deadline": deadline}, {"deadline": None}] if deadline else [{"deadline": None}]
    detached: list[dict[str, Any]] = [{"detached": True}, {}] if child.detached is True else [{}]
    for said in product(versions, deadlines, detached):
        parts: dict[str, Any] = {"input": msgspec.Raw(asked.arguments)}
        for part in said:
            parts |= part
        yield digest_of(msgspec.json.encode(parts))


@lru_cache(maxsize=MOST_TEMPLATES)
def _template(owner: str, word: str, written: str) -> Template:
    if len(written) > MAX_CALL_TEXT:
        raise InvalidInput(f"the step of a call has {len(written)} characters; at most {MAX_CALL_TEXT} fit.")
    step = _decode(written)
    if not isinstance(step, dict) or word not in step:
        raise InvalidInput(f"the step of this call is an object with the key `{word}`.")
    data = {"workflow": "call", "version": 1, "steps": [{**step, "name": owner}]}
    report = examine(data, _Call(), all_known=False)
    definition = report.definition
    if definition is None:
        raise InvalidInput(_complaint(report.problems))
    built = definition.steps[0]
    if (said := refusal_of(built)) is not None:
        raise InvalidInput(f"the call is refused: {said}")
    main, undo, _ = queue_specs(definition)
    child = None if built.child is msgspec.UNSET else (built.child.workflow, built.child.version)
    return Template(written_template(built), main, undo, child)


def _complaint(problems: Sequence[Problem]) -> str:
    told = [f"{one.path}: {' '.join(filter(None, (one.message, one.hint)))}" for one in problems]
    more = len(told) - MOST_COMPLAINTS
    return f"the call is refused: {' '.join(told[:MOST_COMPLAINTS])}" + (f" And {more} more." if more > 0 else "")


class _Call:
    """A call as the origin of problems: they have the path of the value, and no line."""

    def problem(self, path: Path, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem:
        return Problem(file="call", line=1, column=1, path=path_text(path[2:]), message=message, hint=hint)


MAX_CALLS = 1_000


class FlowOptions(TypedDict, total=False):
    """The options of a flow that its workflow has, or its step; names and defaults are those of YAML."""

    description: str
    on_failure: Literal["abort", "continue", "compensate"]
    hook_failure: Literal["continue", "stop"]
    input: Sequence[str] | Mapping[str, Any] | None
    input_schema: Mapping[str, Any] | None
    output: Any
    output_schema: Mapping[str, Any] | None
    rules: Sequence[Rule]
    lease: Duration | None
    grace: Duration | None
    priority: int
    slots: int | None
    labels: Mapping[str, str] | None
    duties: Sequence[Mapping[str, Any]]
    policy: Sequence[Mapping[str, Any]]
    budget: Mapping[str, Any] | None
    archive: Mapping[str, Any] | None
    triggers: Sequence[Mapping[str, Any]]
    hooks: Sequence[Mapping[str, Any]]
    queue: str
    capabilities: Sequence[str]
    on_exhausted: Literal["fail", "hold"]


OF_STEP = ("queue", "capabilities", "on_exhausted")
"""The options of a flow that belong to its step."""

HEAD = tuple(FlowOptions.__annotations__)
"""The options that are no parameters of `flow` itself."""


R = TypeVar("R")


class Decorator(Protocol):
    """Makes a workflow of a function."""

    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]], /) -> FlowWorkflow[R]: ...


class FlowWorkflow(Workflow[Output]):
    """A workflow whose only step is a flow. `function` is the coroutine function itself."""

    def __init__(self, name: str, function: Function, **head: Any) -> None:
        super().__init__(name, **head)
        self.function = function


@overload
def flow(function: Callable[..., Coroutine[Any, Any, R]], /) -> FlowWorkflow[R]: ...


@overload
def flow(
    name: str | None = None,
    /,
    *,
    version: int = 1,
    max_calls: int = MAX_CALLS,
    deadline: Duration | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    registry: Registry | None = None,
    **head: Unpack[FlowOptions],
) -> Decorator: ...


def flow(
    target: Function | str | None = None,
    /,
    *,
    version: int = 1,
    max_calls: int = MAX_CALLS,
    deadline: Duration | None = None,
    timeout: Duration | None = None,
    retry: Retry | None = None,
    registry: Registry | None = None,
    **head: Unpack[FlowOptions],
) -> Any:
    """Make a workflow of an `async def` function: each call of its context is a step of the run.

    The function is run again from its start after each suspension, and is given what is recorded: it must make the same
    calls again. What it does besides calls must depend on its arguments and on results of calls alone. `max_calls`
    bounds how many calls it makes, `deadline` the time for all of them. `timeout` and `retry` are those of the function
    itself, between two suspensions. The other words are those of a Workflow, such as `on_failure` and `input`, and
    `queue` and `capabilities` of a step. Several versions of one name may stand side by side: runs go to the function
    of their own version.

    >>> from stepkeep import step
    >>> @step("orders.charge")
    ... def charge(order: str) -> str: ...
    >>> @flow
    ... async def buy(ctx, order: str) -> str:
    ...     return await ctx.step(charge, order)
    >>> buy.name, buy.definition().steps[0].growth.max
    ('buy', 1000)
    """
    into, given = registry_of(registry), dict(head)
    if "name" in given:
        raise InvalidInput('flow takes its name without a keyword. Write `@flow("NAME")`.')
    _refuse_unknown(given)
    of_step = {name: given.pop(name) for name in OF_STEP if name in given}
    of_workflow: dict[str, Any] = given
    if not (target is None or callable(target) or isinstance(target, str)):
        raise InvalidInput(f"flow takes a name or an `async def` function, not {arguments.shown(target)}.")

    def decorate(function: Function) -> FlowWorkflow:
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(f"flow takes an `async def` function, not {arguments.shown(function)}.")
        name = target if isinstance(target, str) else function.__name__
        made = FlowWorkflow(name, function, version=version, registry=into, **of_workflow)
        register(into, HandlerSpec(name=name, function=function, version=version, description=first_line(function)))
        block = {"max_calls": max_calls, "version": version} | ({} if deadline is None else {"deadline": deadline})
        options: dict[str, Any] = {"timeout": timeout, "retry": retry, **of_step}
        made.step(name, function, flow=block, **{key: one for key, one in options.items() if one is not None})
        return made

    return decorate(target) if callable(target) else decorate


def _refuse_unknown(head: Mapping[str, Any]) -> None:
    """Refuse an option that no workflow has, with what to write instead."""
    unknown = next((name for name in head if name not in HEAD), None)
    if unknown is None:
        return
    own = [name for name in inspect.signature(flow).parameters if name not in ("target", "head")]
    if (hint := NOT_FOR_FLOWS.get(unknown)) is None and unknown in HandlerOptions.__annotations__:
        hint = f"It is an option of a step: `ctx.options({unknown}=...).step(...)` gives it to a call."
    elif hint is None and (closest := nearest(unknown, [*own, *HEAD])) is not None:
        hint = f"Did you mean `{closest}=`?"
    raise InvalidInput(f"flow has no option `{unknown}=`. {hint or ''} Its options: {', '.join([*own, *HEAD])}.")
