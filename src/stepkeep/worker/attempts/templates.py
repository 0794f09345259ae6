"""Renders the inputs of a step: fills in `${{ }}` for one attempt.

Most values hold no expression, and the most common one is the whole input; neither uses the expression engine. Every
attempt gets its own values, which its handler may change: constants are kept encoded and decoded each time. Rendering
runs on the handler's side. It raises ExpressionError, which fails the attempt for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from stepkeep.definition.expressions.conditions import CompiledTemplate, compile_inputs
from stepkeep.definition.expressions.elements import ElementTemplate
from stepkeep.definition.expressions.template_text import OPENING, WHOLE_INPUT
from stepkeep.definition.native.added import scope_of
from stepkeep.kernel.definition import Agent, Command, Definition, Executor, Http
from stepkeep.kernel.machine.payloads import MADE_HERE
from stepkeep.kernel.machine.rows import Called
from stepkeep.kernel.machine.states import Phase
from stepkeep.kernel.plan import ADDED, Plan, PlannedStep
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.executor import LAST, Job

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Template(Protocol):
    """A value to be rendered. `steps` names the steps whose outputs it reads, `secrets` the secrets; `reads_run` tells
    that it needs the run's input, `reads_last` the output of the element before."""

    @property
    def reads_last(self) -> bool: ...

    @property
    def steps(self) -> tuple[str, ...]: ...

    @property
    def reads_run(self) -> bool: ...

    @property
    def secrets(self) -> frozenset[str]: ...

    def render(self, job: Job) -> Any: ...


class Constant:
    """An immutable value without expressions: null, text, a number, true or false."""

    steps: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    reads_last = False
    reads_run = False

    def __init__(self, value: Any) -> None:
        self._value = value

    def render(self, job: Job) -> Any:
        return self._value


class ConstantJson:
    """A list or a mapping without expressions, decoded for each attempt."""

    steps: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    reads_last = False
    reads_run = False

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def render(self, job: Job) -> Any:
        return _decode(self._encoded)


class ConstantExecutor:
    """An executor whose texts hold no expressions; headers, variables and body are copied for each attempt."""

    steps: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    reads_last = False
    reads_run = False

    def __init__(self, executor: Executor) -> None:
        self._kind, self._encoded = type(executor), _encode(executor)

    def render(self, job: Job) -> Executor:
        return msgspec.json.decode(self._encoded, type=self._kind)


class WholeInput:
    """The input of the run."""

    steps: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    reads_last = False
    reads_run = True

    def render(self, job: Job) -> Any:
        return job.input()


class CallArguments:
    """The arguments of a call of a flow: data, in which nothing is an expression."""

    steps: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    reads_last = False
    reads_run = False

    def render(self, job: Job) -> Any:
        return None if job.loaded.arguments is None else _decode(job.loaded.arguments)


class AddedInputs:
    """The inputs of an added step: data in its row, in which texts may be expressions over other added steps."""

    secrets: frozenset[str] = frozenset()
    reads_last = False

    def __init__(self, call: Called) -> None:
        self._call = call
        self.steps = tuple(sorted(one.name for one in call.reads))
        self.reads_run = OPENING in call.arguments or call.arguments.encode().startswith(MADE_HERE)

    def render(self, job: Job) -> Any:
        given = job.loaded.arguments or b"null"
        if not _holds_expressions(given):
            return _decode(given)
        return compile_inputs(_decode(given), scope_of(self._call, job.claim.plan.definition)).render(job.view())


class Rendered:
    """A value with expressions. With `element`, they are those of an element of a map or a loop."""

    reads_last = False

    def __init__(
        self, value: Any, definition: Definition, rule_of: str | None = None, element: PlannedStep | None = None
    ) -> None:
        self._compiled: CompiledTemplate | ElementTemplate
        if element is None:
            self._compiled = compile_inputs(value, definition, rule_of)
        else:
            self._compiled = ElementTemplate(value, definition, element.definition)
            self.reads_last = self._compiled.reads_last
        self.steps = tuple(sorted(self._compiled.reads))
        self.reads_run, self.secrets = self._compiled.reads_input, self._compiled.secrets

    def render(self, job: Job) -> Any:
        return self._compiled.render(job.view(), job.loaded.secrets)


class RenderedExecutor:
    """An executor whose texts hold expressions: arguments, environment, URL, headers, body, an agent's action."""

    def __init__(
        self, executor: Executor, definition: Definition, rule_of: str | None = None, element: PlannedStep | None = None
    ) -> None:
        self._kind = type(executor)
        self._template = Rendered(_fields(executor), definition, rule_of, element)
        self.steps, self.reads_run = self._template.steps, self._template.reads_run
        self.reads_last = self._template.reads_last
        self.secrets = self._template.secrets

    def render(self, job: Job) -> Executor:
        fields = self._template.render(job)
        if self._kind is Command:
            argv = tuple(as_text(part) for part in fields["argv"])
            return Command(argv=argv, env=_texts(fields["env"]), cwd=_directory(fields["cwd"]))
        if self._kind is Http:
            return Http(
                method=as_text(fields["method"]),
                url=as_text(fields["url"]),
                headers=_texts(fields["headers"]),
                body=fields["body"],
            )
        return Agent(name=fields["name"], action=as_text(fields["action"]))


def compiled(value: Any, plan: Plan, rule_of: str | None = None, planned: PlannedStep | None = None) -> Template:
    """The template of inputs, or of an executor's own texts; a rule of the named step may read its output.

    Those of `planned`, if it is an element of a map or a loop, may read its item, or the element before it.
    """
    is_element = planned is not None and planned.owner is not None and bool(planned.definition.growth)
    element, definition = planned if is_element else None, plan.definition
    if planned is not None and planned.call is not None and planned.call.kind == ADDED:
        definition = scope_of(planned.call, definition)
    if isinstance(value, msgspec.Struct):
        fields = _fields(value)
        if not _holds_expressions(_encode(fields)):
            return ConstantExecutor(value) if isinstance(value, Command | Http) else Constant(value)
        if isinstance(value, Command) and OPENING in value.argv[0]:
            raise BindingError("the program of a command is fixed: an expression may fill its arguments only")
        return RenderedExecutor(value, definition, rule_of, element)  # type: ignore[arg-type]
    if value == WHOLE_INPUT:
        return WholeInput()
    encoded = _encode(value)
    if _holds_expressions(encoded):
        return Rendered(value, definition, rule_of, element)
    return ConstantJson(encoded) if isinstance(value, dict | list) else Constant(value)


def inputs_of(plan: Plan, planned: PlannedStep) -> Template:
    """The inputs of a step, as its definition or its row has them."""
    call = planned.call
    if call is None or planned.phase is not Phase.MAIN:
        return compiled(planned.inputs, plan, planned=planned)
    return AddedInputs(call) if call.kind == ADDED else CallArguments()


def as_text(value: Any) -> str:
    """A rendered value where only text is possible: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else _encode(value).decode()


def _directory(value: Any) -> str | None:
    if not isinstance(value, str | None):
        raise BindingError("the directory of a command (`cwd`) must be text")
    return value


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: as_text(value) for name, value in values.items()}


def _fields(executor: msgspec.Struct) -> Mapping[str, Any]:
    # Templates know only JSON's types, and an argument list is stored as a tuple.
    found = {name: getattr(executor, name) for name in executor.__struct_fields__}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _holds_expressions(encoded: bytes) -> bool:
    return OPENING.encode() in encoded


def numbers_read(template: Template, plan: Plan, planned: PlannedStep) -> dict[str, int]:
    """The numbers of the steps that a template of this step reads, by the names that a job has them under."""
    found = {name: plan.number_for(planned, name) for name in template.steps}
    if template.reads_last and planned.index:
        found[LAST] = plan.number_for(planned, planned.definition.name) - 1
    return found
