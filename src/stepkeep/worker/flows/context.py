"""The context of a flow: every method that makes a call is a step of the run.

It makes no call itself: `replay.py` matches it with the record. `executors/flow.py` creates one per coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar, cast, overload

from msgspec.json import decode
from typing_extensions import Unpack

from stepkeep.definition.bounds import DEADLINE
from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.json_schema import check_input
from stepkeep.definition.native.added import Template
from stepkeep.definition.python.calls import FlowWorkflow, digest_of
from stepkeep.definition.python.conversion import converter_of, result_converter
from stepkeep.definition.python.registry import Function
from stepkeep.definition.python.retry import Duration, microseconds
from stepkeep.definition.python.workflow import CallOptions, GateOptions, Workflow
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.composition.child_runs import CONTINUE
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import InvalidInput
from stepkeep.worker.attempts.once import checked_name
from stepkeep.worker.attempts.payloads import encode
from stepkeep.worker.context import Context
from stepkeep.worker.flows.calls import Call, CallFailed, Templates
from stepkeep.worker.flows.replay import Flow
from stepkeep.worker.flows.signatures import CallFuture, StepCall, as_child, as_map, as_once, as_step

T = TypeVar("T")


class _StepMethod:
    """`ctx.step` of a flow is a method. Elsewhere it is the name of the step, which a flow has as `step_name`."""

    def __get__(self, context: FlowContext | None, owner: Any = None) -> StepCall:
        found = owner.call_step if context is None else context.call_step
        return cast("StepCall", found)

    def __set__(self, context: FlowContext, name: str) -> None:
        context.step_name = name


class FlowContext(Context):
    """What a flow is given: a context whose calls are steps. `step_name` is the name of its own step."""

    __slots__ = {
        "_definition": "",
        "_flow": "",
        "_templates": "",
        "step_name": "The name of the step that is the flow.",
    }

    step_name: str
    step = _StepMethod()  # type: ignore[assignment]

    def bind(self, flow: Flow, templates: Templates, definition: Definition) -> None:
        """Give it what it makes calls with."""
        self._flow, self._templates, self._definition = flow, templates, definition
        flow.sleep = lambda lasts: self.sleep(timedelta(microseconds=lasts))

    @property
    def _own_name(self) -> str:
        return self.step_name

    def options(self, **options: Unpack[CallOptions]) -> Options:
        """The same context for calls with options of a step: `ctx.options(timeout="5s", undo=refund).step(charge)`."""
        return Options(self, options)

    @as_step
    def call_step(self, function: Function | str, /, *args: Any, **inputs: Any) -> Awaitable[Any]:
        """`ctx.step`: call a handler with these arguments, as a step. Its result is what the handler returned, of the
        type that the handler is annotated with. By its name alone, it is what JSON has.

        A call that fails for good raises CallFailed.
        """
        return Options(self, {}).step(function, *args, **inputs)

    def sleep(self, duration: Duration | None = None, *, until: datetime | str | None = None) -> CallFuture[None]:
        """Let time pass, for a duration or until a moment. No worker is taken, and restarts do not matter."""
        moment = until.isoformat() if isinstance(until, datetime) else until
        given = {"for": _text(duration), "until": moment}
        template = self._templates.of_wait(
            self.step_name, "sleep", () if duration is None else (duration,), {} if until is None else {"until": until}
        )
        return self._make("sleep", "sleep", given, template)

    @overload
    def wait_for(
        self,
        event: str,
        *,
        as_: type[T],
        deadline: Duration | None = None,
        where: str | None = None,
        count: int | None = None,
        until: str | None = None,
    ) -> CallFuture[T]: ...

    @overload
    def wait_for(
        self,
        event: str,
        *,
        as_: None = None,
        deadline: Duration | None = None,
        where: str | None = None,
        count: int | None = None,
        until: str | None = None,
    ) -> CallFuture[Any]: ...

    def wait_for(
        self,
        event: str,
        *,
        as_: Any = None,
        deadline: Duration | None = None,
        where: str | None = None,
        count: int | None = None,
        until: str | None = None,
    ) -> CallFuture[Any]:
        """Wait for a message of this name, and return its payload; a list of them with `count` or `until`.

        With `as_=Payment`, or `as_=list[Payment]` beside `count` or `until`, the payload is made into that type. The
        other options are those of `Workflow.wait`. A deadline that passes raises CallFailed of the category `timeout`.
        """
        said = {"deadline": deadline, "where": where, "count": count, "until": until}
        options = {key: value for key, value in said.items() if value is not None}
        template = self._templates.of_wait(self.step_name, "wait", (event,), options)
        made = self._make("wait_for", event, {**options, "deadline": _text(deadline)}, template)
        made.convert = None if as_ is None else converter_of(as_, f"the message {event}")
        return made

    def gate(self, prompt: str = "", **options: Unpack[GateOptions]) -> CallFuture[dict[str, Any]]:
        """Wait for people to approve, and return their decision. The options are those of `Workflow.approval`.

        A rejection raises CallFailed of the category `governance`.
        """
        template = self._templates.of_wait(self.step_name, "approval", (), {"prompt": prompt, **options})
        return self._make("gate", "gate", {"prompt": prompt, **options}, template)

    @as_child
    def child(
        self,
        workflow: str | Workflow,
        input: Any = None,  # noqa: A002 - the word people use for it
        /,
        *,
        version: int | None = None,
        deadline: Duration | None = None,
        detached: bool = False,
    ) -> CallFuture[Any]:
        """Start a run of another published workflow, and return its output.

        The version is the one given, or the newest when the call is made. A child that does not succeed raises
        CallFailed. A `detached` child is not waited for: the result is `{"run_id": ...}`. The output of another flow
        is of the type that its function is annotated with.
        """
        return Options(self, {}).child(workflow, input, version=version, deadline=deadline, detached=detached)

    def continue_as_new(self, input: Any = None) -> NoReturn:  # noqa: A002 - the word people use for it
        """End this flow, and start a run of the same workflow and version with this input in its place.

        It does not return. Calls that are under way are awaited first. The run succeeds with the output
        `{"continued_as": RUN}`, and the new one starts with the transaction that ends it.
        """
        given, definition = {} if input is None else input, self._definition
        if len(definition.steps) > 1:
            raise InvalidInput(
                f"ctx.continue_as_new: the flow {self.step_name} is one of {len(definition.steps)} steps. Only a flow "
                "that is its whole workflow can continue as new; start the flow by a step with `workflow`."
            )
        arguments = encode(given, what="the input of ctx.continue_as_new")
        check_input(definition, decode(arguments))
        options = {"version": definition.version, "detached": True}
        template = self._templates.of_wait(self.step_name, "workflow", (definition.name,), options)
        self._flow.end_by(Call(CONTINUE, definition.name, arguments, template, digest_of(arguments)))

    @as_once
    def once(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call a function in the flow itself, on the worker's loop, and record what it returned: a replay gets that.

        For a clock, a random number, or a short call that needs no step of its own.
        """
        asked = self._flow.inline(checked_name(name, function), lambda: function(*args, **kwargs))
        asked.convert = result_converter(function, f"the value of {name}")
        return asked

    def patched(self, name: str) -> CallFuture[bool]:
        """Whether a run goes the new way at this place: `if await ctx.patched("fraud-check"): ...`.

        True for a run whose record ends here, and from then on for its life. False for a run that has gone on from here
        before, which keeps to its record. So runs of one version live on through a change of the function.
        """
        return self._flow.patched(checked_name(f"patched:{name}", bool))

    @as_map
    async def map(
        self, function: Function | str, items: Iterable[Any], *, in_flight: int = 10, **inputs: Any
    ) -> list[Any]:
        """Call a handler for each item, at most `in_flight` at a time, and return the results in order.

        The item is the first argument; `inputs` are given to each call. A call that fails raises CallFailed when those
        that are under way have ended.
        """
        if type(in_flight) is not int or in_flight < 1:
            raise InvalidInput("ctx.map: in_flight is a whole number from 1 on.")
        if not isinstance(items, Iterable):
            raise InvalidInput(f"ctx.map: the items are a list, or can be made one; {type_name(items)} cannot.")
        found, waiting, results = list(items), dict[int, CallFuture[Any]](), dict[int, Any]()
        problem: CallFailed | None = None
        try:
            for place, item in enumerate(found):
                if len(waiting) >= in_flight:
                    problem = problem or await _first_of(waiting, results)
                if problem is not None:
                    break
                waiting[place] = self.call_step(function, item, **inputs)
            while waiting:
                problem = await _first_of(waiting, results) or problem
        except asyncio.CancelledError:
            for future in waiting.values():
                future.cancel()
            raise
        if problem is not None:
            raise problem
        return [results[place] for place in range(len(found))]

    def _make(self, kind: str, name: str, given: Any, template: Template) -> CallFuture[Any]:
        arguments = encode(given, what=f"the arguments of ctx.{kind}")
        return self._flow.call(Call(kind, name, arguments, template, digest_of(arguments)))


async def _first_of(waiting: dict[int, CallFuture[Any]], results: dict[int, Any]) -> CallFailed | None:
    """Wait until one of these calls has ended, and keep what it came to."""
    futures = {one: place for place, one in waiting.items()}
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    problem = None
    for future in sorted(done, key=futures.__getitem__):
        place = futures[future]
        del waiting[place]
        try:
            results[place] = future.result()
        except CallFailed as failed:
            problem = problem or failed
    return problem


def _text(duration: Duration | None) -> str | None:
    """A duration as a replay compares it."""
    return None if duration is None else format_duration(microseconds(duration, what="a duration", bounds=DEADLINE))


class Options:
    """Calls of a flow with options of a step."""

    def __init__(self, context: FlowContext, options: Mapping[str, Any]) -> None:
        self._context, self._options = context, dict(options)
        self._name = self._options.pop("name", None)

    @as_step
    def step(self, function: Function | str, /, *args: Any, **inputs: Any) -> CallFuture[Any]:
        """Call a handler with these arguments, as a step with these options."""
        context = self._context
        name = function if isinstance(function, str) else context._templates.handler_name(function)
        template = context._templates.of_handler(context.step_name, name, self._options)
        given = _by_name(context, name, args, inputs)
        made = self._call("step", name, given, template)
        made.convert = None if isinstance(function, str) else result_converter(function, f"the result of {name}")
        return made

    @as_child
    def child(
        self,
        workflow: str | Workflow,
        input: Any = None,  # noqa: A002 - the word people use for it
        /,
        *,
        version: int | None = None,
        deadline: Duration | None = None,
        detached: bool = False,
    ) -> CallFuture[Any]:
        """Start a run of another published workflow, as a step with these options, and return its output."""
        context = self._context
        name = workflow.name if isinstance(workflow, Workflow) else workflow
        said = {"version": version, "deadline": deadline, "detached": detached or None}
        given = {key: value for key, value in said.items() if value is not None}
        template = context._templates.of_wait(context.step_name, "workflow", (name,), {**given, **self._options})
        arguments = encode(input, what=f"the input of the child {name}")
        recognised = encode({**given, "deadline": _text(deadline), "input": input}, what=f"the call of {name}")
        made = context._flow.call(Call("child", self._name or name, arguments, template, digest_of(recognised)))
        if isinstance(workflow, FlowWorkflow) and not detached:
            made.convert = result_converter(workflow.function, f"the output of {name}")
        return made

    def _call(self, kind: str, name: str, given: Any, template: Template) -> CallFuture[Any]:
        arguments = encode(given, what=f"the arguments of {name}")
        call = Call(kind, self._name or name, arguments, template, digest_of(arguments))
        return self._context._flow.call(call)


def _by_name(context: FlowContext, name: str, args: tuple[Any, ...], inputs: dict[str, Any]) -> Any:
    """The arguments of a handler as its inputs."""
    if not args and not inputs:
        return inputs
    signature = context._templates.signature(name)
    names = () if signature is None else signature.names
    if signature is not None and (unknown := signature.unknown(inputs)):
        takes = f"It takes {', '.join(names)}." if names else "It takes no arguments."
        raise InvalidInput(f"ctx.step: {name} has no parameter {', '.join(unknown)}. {takes}")
    if len(args) > len(names):
        raise InvalidInput(f"ctx.step: {name} takes {len(names)} arguments by place, and was given {len(args)}.")
    placed = dict(zip(names, args, strict=False))
    if twice := sorted(placed.keys() & inputs.keys()):
        raise InvalidInput(f"ctx.step: {name} is given {', '.join(twice)} twice.")
    return placed | inputs
