"""Calls of a flow as values: what is recorded of each, what a new one asks for, and the template of its step.

A template comes from the front end of all definitions, so that it has the same checks and defaults. `context.py` makes
calls, `replay.py` compares them; nothing here runs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepkeep.definition.native.added import Template
from stepkeep.definition.python.calls import MOST_TEMPLATES, refusal_of, refusal_of_options
from stepkeep.definition.python.handlers import name_of
from stepkeep.definition.python.registry import Function, Registry, Signature
from stepkeep.definition.python.workflow import Workflow
from stepkeep.kernel.errors import DefinitionError, InvalidInput
from stepkeep.kernel.machine.outcomes import NewCall
from stepkeep.kernel.machine.rows import Called, Step
from stepkeep.kernel.machine.states import Category, StepState
from stepkeep.kernel.plan import queue_specs, written_template
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts.classify import BindingError


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A call that the run has on record. `settled` orders the ends of calls; None: it has not ended. `fence` is that of
    its last attempt. `at` is when its end was recorded; None while it is not."""

    no: int
    fence: int
    call: Called
    state: StepState
    settled: int | None
    category: Category | None = None
    error: str | None = None
    output: bytes | None = None
    at: int | None = None

    @classmethod
    def of(cls, step: Step, settled: int | None, output: bytes | None, at: int | None) -> Recorded:
        assert step.note is not None
        assert step.note.call is not None
        return cls(step.no, step.fence, step.note.call, step.state, settled, step.category, step.error, output, at)


class Call(msgspec.Struct, frozen=True):
    """A call as the flow makes it."""

    kind: str
    name: str
    arguments: bytes
    template: Template
    digest: str

    @property
    def title(self) -> str:
        return title_of(self.kind, self.name, self.digest)

    def is_same(self, recorded: Called) -> bool:
        return (self.kind, self.name, self.digest) == (recorded.kind, recorded.name, recorded.digest)

    def new(self, queue: int, undo_queue: int) -> NewCall:
        """The call as it is reported, with the numbers of its queues."""
        return NewCall(
            kind=self.kind,
            name=self.name,
            digest=self.digest,
            arguments=self.arguments,
            step=self.template.step,
            queue=queue,
            undo_queue=undo_queue,
        )


def title_of(kind: str, name: str, digest: str) -> str:
    return f"{kind} {name} ({digest[:8]})"


class CallFailed(StepError):
    """A call of a flow has failed for good. A flow that does not catch it fails for the same reason.

    `call` is what was called, `category` and `error` are those of its step.
    """

    def __init__(self, call: str, error: str, category: Category) -> None:
        super().__init__(f"{call} failed: {error}", category=category, final=True)
        self.call, self.error = call, error
        self.no: int | None = None
        """The number of its step, where the flow was given this."""

    def __reduce__(self) -> tuple[Any, ...]:
        return CallFailed, (self.call, self.error, self.category)


def failed_calls(problem: BaseException) -> set[int]:
    """The numbers of the calls for which this was raised: itself, one of its group, or what led to it."""
    found: set[int] = set()
    left: list[BaseException | None] = [problem]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, CallFailed) and one.no is not None:
            found.add(one.no)
            continue
        left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        left.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
    return found


class NonDeterministic(StepError):
    """A flow does not make the calls again that its run has on record. `recorded` and `replayed` are both lists."""

    def __init__(self, said: str, recorded: tuple[str, ...] = (), replayed: tuple[str, ...] = ()) -> None:
        super().__init__(said, category=Category.VALIDATION, final=True)
        self.recorded, self.replayed = recorded, replayed

    def __reduce__(self) -> tuple[Any, ...]:
        return NonDeterministic, (str(self), self.recorded, self.replayed)


def is_meant(problem: BaseException) -> bool:
    """Whether an exception of a flow is the failure of a call, an outcome that its function asks for, or one of its
    input: other code would not change that."""
    if isinstance(problem, BaseExceptionGroup):
        return all(map(is_meant, problem.exceptions))
    return isinstance(problem, StepError | BindingError)


class Templates:
    """The templates of calls that this process has used."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[tuple[str, str, str], Template] = {}
        self._names: dict[int, tuple[Function, str]] = {}
        """By identity, with the function itself, so that no other one gets the same."""

    def of_handler(self, owner: str, name: str, options: Mapping[str, Any]) -> Template:
        """The template of a step with the handler of this name. `owner` is the name of the flow's own step."""
        key = (owner, name, repr(sorted(options.items())) if options else "")
        found = self._known.get(key)
        if found is None:
            made = Workflow("call", registry=self._registry)
            _check_options(options)
            made.step(owner, name, **_with_keys(options))
            if len(self._known) >= MOST_TEMPLATES:
                self._known.clear()
            found = self._known[key] = self._template(made)
        return found

    def of_wait(self, owner: str, method: str, given: tuple[Any, ...], options: Mapping[str, Any]) -> Template:
        """The template of a step that no worker runs: `sleep`, `wait`, `approval` or `workflow` of a Workflow."""
        made = Workflow("call", registry=self._registry)
        if method == "workflow":
            _check_options(options)
        getattr(made, method)(owner, *given, **options)
        return self._template(made)

    def signature(self, name: str) -> Signature | None:
        """The parameters of a handler; None if this process does not know it."""
        known = self._registry.get(name)
        return None if known is None else known.signature

    def handler_name(self, function: Function) -> str:
        """The name of a handler, which every worker of this flow must know before the flow has run there."""
        found = self._names.get(id(function))
        if found is None:
            found = self._names[id(function)] = (function, self._name_of(function))
        return found[1]

    def _name_of(self, function: Function) -> str:
        known = self._registry.of(function)
        if known is None:
            named = getattr(function, "__name__", type(function).__name__)
            raise InvalidInput(
                f"ctx.step: {named} is no handler. Decorate it with @stepkeep.step, so that every worker that loads "
                "this module knows it."
            )
        return name_of(function, self._registry)

    @staticmethod
    def _template(made: Workflow) -> Template:
        try:
            definition = made.definition()
        except DefinitionError as problem:  # its place would be a line of this module
            said = " ".join(f"{one.message} {one.hint}".strip() for one in problem.problems)
            raise StepError(f"the call is refused: {said}", category=Category.VALIDATION, final=True) from None
        step = definition.steps[0]
        if (refused := refusal_of(step)) is not None:
            raise StepError(f"the call is refused: {refused}", category=Category.VALIDATION, final=True)
        main, undo, _ = queue_specs(definition)
        child = None if step.child is msgspec.UNSET else (step.child.workflow, step.child.version)
        return Template(written_template(step), main, undo, child, made)


def _with_keys(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a call as a step has them: a flow says the key of a limit itself, which is no expression."""
    if "limits" not in options:
        return options
    return {**options, "limits": [_with_key(limit) for limit in options["limits"]]}


def _with_key(limit: Any) -> Any:
    if not isinstance(limit, Mapping) or not isinstance(limit.get("per"), str | int | float):
        return limit
    return {**limit, "per": f"${{{{ {msgspec.json.encode(limit['per']).decode()} }}}}"}


def _check_options(options: Mapping[str, Any]) -> None:
    if (refused := refusal_of_options(options)) is not None:
        raise StepError(f"the call is refused: {refused}", category=Category.VALIDATION, final=True)
