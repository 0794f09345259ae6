"""Reads the steps that a handler adds at run time: checked like the steps of a definition, with the same words.

The list goes through the front end of all definitions. What an added step cannot have is refused here. Nothing is
executed, and no database is known. Workers and the service call `read_added`; `sk.then` calls `written_steps`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.bounds import MAX_ADDED
from stepkeep.definition.expressions.objects import Expr, steps_read
from stepkeep.definition.expressions.scope import secrets_read
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import Finding, Path, located
from stepkeep.definition.native.reader import accepted, examine
from stepkeep.definition.python.handlers import decorated_name
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.python.workflow import StepRef, Workflow, plain, with_inferred
from stepkeep.definition.text.document import path_text
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.definition import Definition, QueueSpec, StepDefinition
from stepkeep.kernel.errors import DefinitionError, InvalidInput, Problem
from stepkeep.kernel.machine.outcomes import NewCall
from stepkeep.kernel.machine.rows import Called, Edge, Read
from stepkeep.kernel.plan import ADDED, queue_specs, template_of, written_template

_NOT_ADDED = {
    "if": "The handler decides whether it adds the step.",
    "hold": "Add an `approval` before it.",
    "map": "Add one step for each item.",
    "repeat": "Let an added step add the next ones.",
    "switch": "The handler chooses which steps it adds.",
    "flow": "Add the handlers that the flow would call.",
    "then": "Every added step may return steps: `then` of its owner bounds them all.",
    "workflow": "Start it by a step of the definition.",
    "pre": "Check it in the handler.",
    "post": "Check it in the handler.",
    "rules": "Check it in the handler.",
    "validate": "Check it in the handler.",
    "completion": "Add an `approval` or a `wait` behind it.",
    "on_exhausted": "Add an `approval` behind it.",
    "transactional": "Name it in the definition.",
    "resources": "Name them at a step of the definition.",
    "limits": "Name them at a step of the definition.",
    "hooks": "Write them in the definition.",
    "order": "The steps begin in the order of the list.",
}
"""Keys that an added step does not have, with what to do instead."""

STEPS_ESCAPED = "\\u0073teps"

_WITH_EXPRESSIONS = ("with", "command", "http", "undo")
"""Keys whose texts may hold expressions."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Template(msgspec.Struct, frozen=True):
    """What a new step asks for: its written template, and the queues of the step and of its undo."""

    step: str
    queue: QueueSpec | None
    undo_queue: QueueSpec | None
    child: tuple[str, int] | None = None
    """The workflow that it starts, and its version (0: the newest)."""
    source: Workflow | None = None
    """What it was made from, where a flow made it: the service does not take templates, and reads that instead."""

    def pinned(self, version: int) -> Template:
        """The same with the version of its child."""
        definition = template_of(self.step)
        assert definition.child is not msgspec.UNSET
        step = written_template(replace(definition, child=replace(definition.child, version=version)))
        return Template(step, self.queue, self.undo_queue)


class AddedStep(msgspec.Struct, frozen=True):
    """One step of a handler's list, as it is reported."""

    name: str
    template: Template
    inputs: bytes
    after: tuple[Edge, ...]
    reads: tuple[Read, ...]

    def new(self, queue: int, undo_queue: int) -> NewCall:
        return NewCall(
            kind=ADDED,
            name=self.name,
            digest=hashlib.sha256(self.inputs).hexdigest()[:32],
            arguments=self.inputs,
            step=self.template.step,
            queue=queue,
            undo_queue=undo_queue,
            after=self.after,
            reads=self.reads,
        )


def output_of(step: str) -> Expr:
    """The output of an added step, for the inputs of another one: `sk.output_of("search").url`.

    >>> print(output_of("search").url)
    ${{ steps["search"].output.url }}
    """
    if not isinstance(step, str):
        raise InvalidInput(f"output_of takes the name of a step, not a value of type {type_name(step)}.")
    return StepRef(step).output


def written_steps(steps: Sequence[Any]) -> list[Any]:
    """The steps as JSON would have them: functions by their names, texts as data, expressions as `${{ }}`.

    >>> written_steps([{"name": "a", "uses": "x.a", "with": ["${{ is data }}", output_of("b")]}])[0]["with"]
    ['${{ "${{ is data }}" }}', '${{ steps["b"].output }}']
    """
    return with_inferred([_written(place, step) for place, step in enumerate(steps)])


def _written(place: int, step: Any) -> dict[str, Any]:
    if not isinstance(step, Mapping):
        raise InvalidInput(
            f"then: step {place} is a {type_name(step)}. Write each step as in a definition: "
            '{"name": "search", "uses": search, "with": {"query": "…"}}.'
        )
    found: dict[str, Any] = {}
    for key, value in step.items():
        if key == "undo" and isinstance(value, Mapping):
            given: Any = {name: _handler(one) if name == "uses" else one for name, one in value.items()}
        else:
            given = _handler(value) if key in ("uses", "undo") else value
        found[str(key)] = plain(_data(given) if key in _WITH_EXPRESSIONS else given)
    return found


def _handler(value: Any) -> Any:
    if not callable(value):
        return value
    name = decorated_name(value)
    if name is None:
        named = getattr(value, "__name__", type_name(value))
        raise InvalidInput(
            f"then: {named} is no handler. Decorate it with @stepkeep.step, so that every worker that loads this "
            "module knows it."
        )
    return name


def _data(value: Any) -> Any:
    """The value with each text as data: one that looks like an expression becomes one which comes to that text."""
    if isinstance(value, str):
        return _literal(value) if OPENING in value else value
    if isinstance(value, Mapping):
        return {key: _data(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_data(one) for one in value]
    return value


def _literal(text: str) -> str:
    # Escaped, because what looks for the steps that an expression reads does not know literals.
    return f"{OPENING} {json.dumps(text, ensure_ascii=False).replace('steps', STEPS_ESCAPED)} }}}}"


def read_added(written: Any, owner: str, registry: Registry | None = None) -> tuple[AddedStep, ...]:
    """The steps of a handler's list. `owner` is the step of the definition that adds them. Raises DefinitionError.

    >>> read_added([{"name": "a", "uses": "x.a"}, {"name": "b", "wait": "paid"}], "plan")[1].after[0].place
    0
    """
    source = _AddedList()
    if not isinstance(written, list):
        raise DefinitionError([source.problem((), "The steps to add are a list.")])
    if not written:
        return ()
    if len(written) > MAX_ADDED:
        said = f"{len(written)} steps are more than the {MAX_ADDED} that a handler may add."
        raise DefinitionError([source.problem((), said)])
    data = {"workflow": "added", "version": 1, "steps": written}
    definition = accepted(examine(data, source, registry, all_known=False))
    refused = located(source, _refused(written))
    if refused:
        raise DefinitionError(refused)
    steps = definition.steps
    places = {step.name: place for place, step in enumerate(steps)}
    size, specs = len(steps), queue_specs(replace(definition, steps=_in_order(steps)))
    return tuple(
        AddedStep(
            name=step.name,
            template=Template(written_template(replace(step, name=owner)), specs[place], specs[size + place]),
            inputs=_encode(step.inputs),
            after=tuple([Edge(places[edge.step], edge.allow) for edge in step.depends_on]),
            reads=_reads(step, places),
        )
        for place, step in enumerate(steps)
    )


def _in_order(steps: Sequence[StepDefinition]) -> tuple[StepDefinition, ...]:
    return tuple([replace(step, order=place) for place, step in enumerate(steps)])


def _reads(step: StepDefinition, places: Mapping[str, int]) -> tuple[Read, ...]:
    texts = msgspec.to_builtins([step.inputs, step.executor, step.undo])
    return tuple([Read(name, places[name]) for name in steps_read(texts) if name in places and name != step.name])


def _refused(written: Sequence[Any]) -> Iterator[Finding]:
    """What a step of a definition may have, and an added one not."""
    for place, step in enumerate(written):
        at: Path = ("steps", place)
        for key, hint in _NOT_ADDED.items():
            if key in step:
                yield Finding((*at, key), f"`{key}` means nothing for a step that a handler adds.", hint, key=True)
        if step.get("on_failure") not in (None, "skip"):
            said = "`on_failure` of a step that a handler adds is `skip`, or is left out."
            yield Finding((*at, "on_failure"), said, "A failure goes to the step that added it.")
        if secrets_read(step):
            hint = "Add a step with a handler that reads them, or write the step in the definition."
            yield Finding(at, "A step that a handler adds reads no secrets.", hint)
        gate = step.get("approval")
        if isinstance(gate, Mapping) and gate.get("facts"):
            yield Finding(
                (*at, "approval", "facts"), "`facts` of an added approval are not evaluated.", "Write a prompt."
            )
        sleep = step.get("sleep")
        length = sleep.get("for") if isinstance(sleep, Mapping) else sleep
        if isinstance(length, str) and OPENING in length:
            yield Finding((*at, "sleep"), "The length of an added sleep is a duration.", "Write it in the handler.")


class _AddedList:
    """A handler's list as the origin of problems: they have the path of the value, and no line."""

    def problem(self, path: Path, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem:
        place = path[1] if len(path) > 1 and isinstance(path[1], int) else 0
        return Problem(file="then", line=place + 1, column=1, path=path_text(path), message=message, hint=hint)


def complaint(error: DefinitionError, most: int = 5) -> str:
    """Why a handler's list is refused, in one line for its step.

    >>> try:
    ...     read_added([{"name": "a", "uses": "x.a", "retrys": 3}], "plan")
    ... except DefinitionError as error:
    ...     print(complaint(error))
    the steps to add are refused: steps[0].retrys: There is no key `retrys` here. Did you mean `retry`?
    """
    told = [f"{one.path}: {' '.join(filter(None, (one.message, one.hint)))}" for one in error.problems[:most]]
    more = len(error.problems) - most
    return f"the steps to add are refused: {' '.join(told)}" + (f" And {more} more." if more > 0 else "")


def scope_of(call: Called, definition: Definition) -> Definition:
    """The definition that the expressions of an added step are compiled for: it knows the steps that they may name."""
    names = dict.fromkeys([call.name, *(one.name for one in call.reads)])
    steps = tuple([StepDefinition(name=name, order=place) for place, name in enumerate(names)])
    return Definition(name=definition.name, version=definition.version, steps=steps)
