"""The context of a flow: every method that makes a call is a step of the run.

It makes no call itself: `replay.py` matches it with the record. `executors/flow.py` creates one per coroutine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from stepkeep.definition.registry import Function
from stepkeep.errors import InvalidInput
from stepkeep.worker.context import Context
from stepkeep.worker.flows.calls import Call, Template, Templates, digest_of
from stepkeep.worker.flows.replay import Flow
from stepkeep.worker.payloads import encode


class _StepMethod:
    """`ctx.step` of a flow is a method. Elsewhere it is the name of the step, which a flow has as `step_name`."""

    def __get__(self, context: FlowContext | None, owner: object = None) -> Any:
        return self if context is None else context.call_step

    def __set__(self, context: FlowContext, name: str) -> None:
        context.step_name = name


class FlowContext(Context):
    """What a flow is given: a context whose calls are steps. `step_name` is the name of its own step."""

    __slots__ = ("_flow", "_templates", "step_name")

    step_name: str
    step = _StepMethod()

    def bind(self, flow: Flow, templates: Templates) -> None:
        """Give it what it makes calls with."""
        self._flow, self._templates = flow, templates

    @property
    def _own_name(self) -> str:
        return self.step_name

    def options(self, **options: Any) -> Options:
        """The same context for calls with options of a step: `ctx.options(timeout="5s", undo=refund).step(charge)`."""
        return Options(self, options)

    def call_step(self, function: Function | str, /, *args: Any, **inputs: Any) -> Awaitable[Any]:
        """`ctx.step`: call a handler with these arguments, as a step. Its result is what the handler returned.

        A call that fails for good raises CallFailed.
        """
        return Options(self, {}).step(function, *args, **inputs)


class Options:
    """Calls of a flow with options of a step."""

    def __init__(self, context: FlowContext, options: Mapping[str, Any]) -> None:
        self._context, self._options = context, dict(options)
        self._name = self._options.pop("name", None)

    def step(self, function: Function | str, /, *args: Any, **inputs: Any) -> Awaitable[Any]:
        """Call a handler with these arguments, as a step with these options."""
        context = self._context
        template = context._templates.of_handler(context.step_name, function, self._options)
        name = function if isinstance(function, str) else context._templates.handler_name(function)
        given = _by_name(context, name, args, inputs)
        return self._call("step", name, given, template)

    def _call(self, kind: str, name: str, given: Any, template: Template) -> Awaitable[Any]:
        arguments = encode(given, what=f"the arguments of {name}")
        call = Call(kind, self._name or name, arguments, template, digest_of(arguments))
        return self._context._flow.call(call)


def _by_name(context: FlowContext, name: str, args: tuple[Any, ...], inputs: dict[str, Any]) -> Any:
    """The arguments of a handler as its inputs."""
    if not args:
        return inputs
    names = context._templates.parameters(name)
    if len(args) > len(names):
        raise InvalidInput(f"ctx.step: {name} takes {len(names)} arguments by place, and was given {len(args)}.")
    placed = dict(zip(names, args, strict=False))
    if twice := sorted(placed.keys() & inputs.keys()):
        raise InvalidInput(f"ctx.step: {name} is given {', '.join(twice)} twice.")
    return placed | inputs
