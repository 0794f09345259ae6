"""`@flow`: a workflow that is written as one coroutine, whose calls are the steps of its runs.

The decorator registers the function as a handler and makes a workflow of one step of it. It calls nothing; workers run
the function, and `worker/flows` has the context that it is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from stepkeep.definition import arguments
from stepkeep.definition.native.growth import NOT_FOR_FLOWS
from stepkeep.definition.python.handlers import first_line, register, registry_of
from stepkeep.definition.python.registry import Function, HandlerSpec, Output, Registry
from stepkeep.definition.python.retry import Duration, Retry
from stepkeep.definition.python.workflow import HandlerOptions, Rule, Workflow
from stepkeep.definition.text.document import nearest
from stepkeep.kernel.errors import InvalidInput

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


J = TypeVar("J", bound="str | int | float | list[Any] | dict[str, Any] | None")
"""What JSON has: an output of another type is read back as what it is in JSON."""


class Decorator(Protocol):
    """Makes a workflow of a function."""

    @overload
    def __call__(self, function: Callable[..., Awaitable[J]], /) -> FlowWorkflow[J]: ...
    @overload
    def __call__(self, function: Function, /) -> FlowWorkflow: ...


class FlowWorkflow(Workflow[Output]):
    """A workflow whose only step is a flow. `function` is the coroutine function itself."""

    def __init__(self, name: str, function: Function, **head: Any) -> None:
        super().__init__(name, **head)
        self.function = function


@overload
def flow(function: Callable[..., Awaitable[J]], /) -> FlowWorkflow[J]: ...


@overload
def flow(function: Function, /) -> FlowWorkflow: ...


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
