"""Conditions, rules and templates of a stored definition, compiled once and evaluated on a view.

A view holds encoded JSON by step name; only what an expression reads is decoded. `references` checked at publication
what may be read where. The kernel's plan, the workers and the views of finished runs call it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Required, TypedDict

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.definition.bounds import DEADLINE, MAX_KEY, MAX_UNITS, SECOND
from stepkeep.definition.durations import InvalidDuration, parse_duration
from stepkeep.definition.expressions.expressions import (
    Expression,
    InvalidExpression,
    Scope,
    Template,
    compile_expression,
    compile_template,
)
from stepkeep.definition.expressions.limits import MAX_COST, CostBudget, ExpressionBudget, condition_cost, rule_cost
from stepkeep.definition.expressions.template_text import OPENING, Embedded, split
from stepkeep.definition.findings import Finding, evaluated, shown
from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.definition import Definition, Limit, StepDefinition, Switch
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.payloads import MADE_HERE, read_reference
from stepkeep.kernel.machine.rows import Limited
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.plan import has_keys

_, LONGEST_SLEEP = DEADLINE
RUN_FIELDS = ("id", "workflow", "version")

_decode = msgspec.json.Decoder().decode


def own_output(name: str) -> str:
    """The input of an undo step without `with`: what its step returned."""
    return f'${{{{ steps["{name}"].output }}}}'


def own_output_if_any(name: str) -> str:
    """The same for a step that may have ended without a result."""
    output = f'steps["{name}"].output'
    return f"${{{{ has({output}) ? {output} : null }}}}"


class RunNames(TypedDict):
    """What expressions read of the run."""

    id: str
    workflow: str
    version: int


class ConditionContext(TypedDict, total=False):
    """What expressions read while a run is decided on: values of people, and names of the run."""

    steps: Required[dict[str, dict[str, Any]]]
    run: Required[RunNames]
    input: Any
    output: Any
    index: int | None
    last: Any
    item: Any


class Scopes(NamedTuple):
    """Names by kind of expression: a condition may read states, a rule the result, a template outputs alone, and inputs
    also secrets; the inputs of a rule that is a program may read the result too. The inputs of an element of a map read
    its item, those of an element of a loop and the condition of a loop the element before."""

    condition: Scope
    rule: Scope
    template: Scope
    inputs: Scope
    rule_inputs: Scope
    item_inputs: Scope
    loop_inputs: Scope
    loop_condition: Scope


def scopes_of(
    steps: Iterable[str], input_fields: Iterable[str] | None, budget: ExpressionBudget | None = None
) -> Scopes:
    """The scopes of a workflow with these steps and this declared input, all within one budget."""
    names, fields = frozenset(steps), None if input_fields is None else frozenset(input_fields)

    def scope(
        step_fields: tuple[str, ...], *, output: bool = False, secrets: bool = False, element: tuple[str, ...] = ()
    ) -> Scope:
        return Scope(
            names,
            input_fields=fields,
            output=output,
            step_fields=step_fields,
            run_fields=RUN_FIELDS,
            budget=budget,
            secrets=secrets,
            element=element,
        )

    return Scopes(
        condition=scope(("output", "state")),
        rule=scope(("output", "state"), output=True),
        template=scope(("output",)),
        inputs=scope(("output",), secrets=True),
        rule_inputs=scope(("output",), output=True, secrets=True),
        item_inputs=scope(("output",), secrets=True, element=("item", "index")),
        loop_inputs=scope(("output",), secrets=True, element=("last", "index")),
        loop_condition=scope(("output", "state"), element=("last", "index")),
    )


def compile_truth(text: str, scope: Scope) -> Expression:
    """Compile an `if` or a rule: one expression, with or without `${{ }}`, that is true or false."""
    source, offset = _one_expression(text)
    try:
        expression = compile_expression(source, scope)
    except InvalidExpression as error:
        moved = [finding._replace(inside=finding.inside + offset) for finding in error.findings]
        raise InvalidExpression(moved) from None
    if expression.result_type not in {"bool", "dyn"}:
        said = f"This comes to a value of type {expression.result_type}, not to true or false."
        raise InvalidExpression([Finding((), said, "Compare it with something.", inside=offset)])
    return expression


def _one_expression(text: str) -> tuple[str, int]:
    if OPENING not in text:
        return text, 0
    match [piece for piece in split(text) if not (isinstance(piece, str) and not piece.strip())]:
        case [Embedded(source, offset)]:
            return source, offset
    said = "A condition is one whole expression."
    raise InvalidExpression([Finding((), said, "Write all of it inside one `${{ }}`, or without them.")])


class CompiledCondition:
    """An `if` or a rule, implementing the kernel's `Condition` protocol. `own` creates what it calls `output`.

    An `if` is evaluated while a transaction holds locks, so its cost limit is a small part of a rule's.
    """

    def __init__(
        self,
        expression: Expression,
        definition: Definition,
        own: Template | None = None,
        *,
        max_cost: int = MAX_COST,
        is_rule: bool = False,
        opened: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._opened = opened
        self._expression, self._definition, self._own = expression, definition, own
        self._max_cost, self._is_rule = max_cost, is_rule
        self.reads: frozenset[str] = expression.references | (own.references if own else frozenset())
        self.reads_input: bool = expression.uses_input or (own is not None and own.uses_input)

    def holds(self, view: ConditionView) -> bool:
        """Whether it is true for this view; raises ExpressionError if it cannot be evaluated."""
        if not self._is_rule:
            view = plain_view(view, self.reads, self._opened, reads_input=self.reads_input)
        budget = CostBudget(self._max_cost, is_condition=not self._is_rule)
        found = self._expression.evaluate(self._given(view, budget), budget)
        if not isinstance(found, bool):
            raise ExpressionError(f"`{self._expression.source}` comes to {evaluated(found)}, not to true or false.")
        return found

    def seen(self, view: ConditionView) -> list[tuple[str, Any]]:
        """The values that it read, each with its path."""
        return self._expression.seen(self._given(view, CostBudget(self._max_cost)))

    def _given(self, view: ConditionView, budget: CostBudget) -> ConditionContext:
        context = context_of(view, self._definition, self.reads, reads_input=self.reads_input, kept=view.decoded)
        if self._own is not None:
            context["output"] = self._own.render(context, budget)
        return context


class CompiledTemplate:
    """Inputs, arguments or outputs with expressions. `reads` names the steps whose outputs they read, `secrets` the
    secrets. `own` creates what they call `output`."""

    def __init__(self, template: Template, definition: Definition, own: Template | None = None) -> None:
        self._template, self._definition, self._own = template, definition, own
        self.reads: frozenset[str] = template.references | (own.references if own else frozenset())
        self.reads_input: bool = template.uses_input or (own is not None and own.uses_input)
        self.secrets: frozenset[str] = template.secrets

    def render(self, view: ConditionView, secrets: Mapping[str, str] | None = None) -> Any:
        """The value for this view; raises ExpressionError if an expression has none."""
        context = context_of(view, self._definition, self.reads, reads_input=self.reads_input)
        if self._own is not None:
            context["output"] = self._own.render(context)
        return self._template.render(context if secrets is None else {**context, "secret": secrets})


class CompiledLength:
    """The length of a `sleep`, implementing the kernel's `SleepLength` protocol. It is limited like an `if`."""

    def __init__(
        self, template: Template, definition: Definition, max_cost: int, opened: Callable[[bytes], bytes] | None
    ) -> None:
        self._template, self._definition, self._max_cost, self._opened = template, definition, max_cost, opened
        self.reads: frozenset[str] = template.references
        self.reads_input: bool = template.uses_input

    def microseconds(self, view: ConditionView) -> int:
        """The length for this view; raises ExpressionError if it is no duration."""
        view = plain_view(view, self.reads, self._opened, reads_input=self.reads_input)
        context = context_of(view, self._definition, self.reads, reads_input=self.reads_input, kept=view.decoded)
        found = self._template.render(context, CostBudget(self._max_cost, is_condition=True))
        try:
            length = _seconds(found) if isinstance(found, int | float) else parse_duration(found)
        except InvalidDuration as problem:
            raise ExpressionError(str(problem)) from None
        if not 0 <= length <= LONGEST_SLEEP:
            raise ExpressionError(f"{shown(found)} is out of bounds: a sleep takes 0s to 3650d.")
        return length


def _seconds(number: float) -> int:
    if isinstance(number, bool) or not math.isfinite(number):
        raise InvalidDuration(f"{shown(number)} is neither a duration, such as 2h, nor a number of seconds.")
    return round(number * SECOND)


def compile_length(
    source: str, definition: Definition, *, opened: Callable[[bytes], bytes] | None = None
) -> CompiledLength:
    """Compile the length of a `sleep`: a text with expressions that comes to a duration or a number of seconds."""
    known = known_of(definition)
    template = compile_template(source, known.scopes.condition)
    return CompiledLength(template, definition, condition_cost(known.conditions), opened)


MAX_FACTS_BYTES = 65_536
"""How many bytes of JSON the facts of one gate may have."""


class CompiledFacts:
    """The facts that a gate shows, implementing the kernel's `Facts` protocol. Like an `if`, they are evaluated while
    a transaction holds locks. `sealed` seals them, if the payloads that they come from may be sealed."""

    def __init__(
        self,
        template: Template,
        definition: Definition,
        max_cost: int,
        opened: Callable[[bytes], bytes] | None,
        sealed: Callable[[bytes], bytes] | None,
    ) -> None:
        self._template, self._definition, self._max_cost = template, definition, max_cost
        self._opened, self._sealed = opened, sealed
        self.reads: frozenset[str] = template.references
        self.reads_input: bool = template.uses_input

    def render(self, view: ConditionView) -> dict[str, Any]:
        """The facts for this view; raises ExpressionError if one of them has no value, or if they are too large."""
        view = plain_view(view, self.reads, self._opened, reads_input=self.reads_input)
        context = context_of(view, self._definition, self.reads, reads_input=self.reads_input)
        encoded = msgspec.json.encode(self._template.render(context, CostBudget(self._max_cost, is_condition=True)))
        if len(encoded) > MAX_FACTS_BYTES:
            raise ExpressionError(f"the facts have {len(encoded)} bytes; at most {MAX_FACTS_BYTES} are shown.")
        facts: dict[str, Any] = _decode(encoded if self._sealed is None else self._sealed(encoded))
        return facts


def compile_facts(
    facts: Mapping[str, str],
    definition: Definition,
    *,
    opened: Callable[[bytes], bytes] | None = None,
    sealed: Callable[[bytes], bytes] | None = None,
) -> CompiledFacts:
    """Compile the facts of a gate. `opened` opens the payloads that they read, `sealed` seals the result."""
    known = known_of(definition)
    template = compile_template(dict(facts), known.scopes.condition)
    return CompiledFacts(template, definition, condition_cost(known.conditions), opened, sealed)


class CompiledKeys:
    """The keys and units of a step's limits, implementing the kernel's `Keys` protocol. They are limited like an `if`,
    and stand in the journal and in tables as they are: a payload that is sealed is opened for them."""

    def __init__(
        self,
        template: Template,
        limits: Sequence[Limit],
        definition: Definition,
        max_cost: int,
        opened: Callable[[bytes], bytes] | None,
    ) -> None:
        self._template, self._limits, self._definition = template, limits, definition
        self._max_cost, self._opened = max_cost, opened
        self.reads: frozenset[str] = template.references
        self.reads_input: bool = template.uses_input

    def of(self, view: ConditionView) -> tuple[Limited, ...]:
        """The key and the units of each limit, in their order; raises ExpressionError."""
        view = plain_view(view, self.reads, self._opened, reads_input=self.reads_input)
        context = context_of(view, self._definition, self.reads, reads_input=self.reads_input, kept=view.decoded)
        found: Any = self._template.render(context, CostBudget(self._max_cost, is_condition=True))
        each = zip(self._limits, found, strict=True)
        return tuple([Limited(_key(limit, per), _units(limit, units)) for limit, (per, units) in each])


def _key(limit: Limit, found: Any) -> str:
    if limit.per is UNSET:
        return ""
    key = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    if isinstance(found, str | int | float) and 0 < len(key) <= MAX_KEY and key.isprintable():
        return key
    raise ExpressionError(
        f"`per` of the limit {limit.name} comes to {shown(found)}; a key is a number, true or false, or a text of 1 to "
        f"{MAX_KEY} printable characters."
    )


def _units(limit: Limit, found: Any) -> int:
    if type(found) is int and 1 <= found <= MAX_UNITS:
        return found
    said = f"`units` of the limit {limit.name} come to {shown(found)}; they are a whole number from 1 to {MAX_UNITS:,}."
    raise ExpressionError(said)


def compile_keys(
    limits: Sequence[Limit], definition: Definition, *, opened: Callable[[bytes], bytes] | None = None
) -> CompiledKeys:
    """Compile the keys and units of a step's limits."""
    known = known_of(definition)
    written = [["" if one.per is UNSET else one.per, one.units] for one in limits]
    template = compile_template(written, known.scopes.condition)
    return CompiledKeys(template, limits, definition, condition_cost(known.conditions), opened)


def compile_condition(
    source: str, definition: Definition, *, opened: Callable[[bytes], bytes] | None = None
) -> CompiledCondition:
    """Compile an `if` of a definition. `opened` opens the payloads that it reads, if these may be sealed.

    One decision may evaluate all conditions of a definition, so the limit of each depends on their number.
    """
    known = known_of(definition)
    max_cost = condition_cost(known.conditions)
    expression = compile_truth(source, known.scopes.condition)
    return CompiledCondition(expression, definition, max_cost=max_cost, opened=opened)


def compile_rule(source: str, definition: Definition, step: str, among: int = 1) -> CompiledCondition:
    """Compile a rule of a step, whose result it calls `output`. For the final check that is the run's own output.

    It is one `among` this many, which are evaluated together.
    """
    scopes, max_cost = _scopes(definition), rule_cost(among)
    try:
        expression = compile_truth(source, scopes.condition)
        return CompiledCondition(expression, definition, max_cost=max_cost, is_rule=True)
    except InvalidExpression:
        # It reads `output`, or it is wrong: the wider scope tells which.
        expression = compile_truth(source, scopes.rule)
    own = _own(definition, step)
    return CompiledCondition(expression, definition, own, max_cost=max_cost, is_rule=True)


def _own(definition: Definition, step: str) -> Template:
    """What rules of a step call `output`; for the final check, the output of the run."""
    scopes = _scopes(definition)
    value = definition.output if step not in scopes.rule.steps else own_output(step)
    return compile_template(value, scopes.template)


def compile_inputs(inputs: Any, definition: Definition, rule_of: str | None = None) -> CompiledTemplate:
    """Compile the inputs of a step, or the texts of its executor; or those of a rule of the named step."""
    scopes = _scopes(definition)
    try:
        return CompiledTemplate(compile_template(inputs, scopes.inputs), definition)
    except InvalidExpression:
        if rule_of is None:
            raise
        # It reads `output`, or it is wrong: the wider scope tells which.
        own = _own(definition, rule_of)
        return CompiledTemplate(compile_template(inputs, scopes.rule_inputs), definition, own)


def render_output(
    definition: Definition,
    run_id: str,
    given: bytes,
    outputs: Mapping[str, bytes | None],
    states: Mapping[str, StepState],
) -> Any:
    """The declared output of a run, from its input and the outputs of its steps."""
    view = ConditionView(run_id=run_id, input=given, outputs=outputs, states=states)
    return CompiledTemplate(compile_template(definition.output, _scopes(definition).template), definition).render(view)


def context_of(
    view: ConditionView,
    definition: Definition,
    reads: Iterable[str],
    *,
    reads_input: bool,
    kept: dict[str, tuple[bytes, Any]] | None = None,
) -> ConditionContext:
    """The names of an expression. A step without an output lacks the field, so that has() can test it.

    `kept` caches what conditions decoded, because they change nothing. Values for handlers are decoded anew.
    """
    steps: dict[str, dict[str, Any]] = {}
    for name in reads:
        steps[name] = fields = {}
        if (state := view.states.get(name)) is not None:
            fields["state"] = str(state)
        if (output := view.outputs.get(name)) is not None:
            fields["output"] = _decoded(output, f"steps.{name}", kept)
    run: RunNames = {"id": view.run_id, "workflow": definition.name, "version": definition.version}
    context: ConditionContext = {"steps": steps, "run": run}
    if reads_input:
        context["input"] = _decoded(view.input, "input", kept)
    return context


def plain_view(
    view: ConditionView, reads: Iterable[str], opened: Callable[[bytes], bytes] | None, *, reads_input: bool
) -> ConditionView:
    """The view with sealed payloads opened. An `if` is evaluated while a transaction holds locks: it reads no payload
    that is kept outside its row."""
    read = [name for name in reads if (view.outputs.get(name) or b"").startswith(MADE_HERE)]
    given = reads_input and view.input.startswith(MADE_HERE)
    if not read and not given:
        return view
    payloads = {f"steps.{name}.output": view.outputs[name] for name in read} | ({"input": view.input} if given else {})
    for place, payload in payloads.items():
        if (large := read_reference(payload)) is not None:
            said = f"`{place}` has {large.size_bytes} bytes, which are kept outside its row: no condition reads them."
            raise ExpressionError(said, hint="Let a step return the part that the condition needs.")
    if opened is None:
        return view
    plain = {name: opened(output) for name in read if (output := view.outputs[name]) is not None}
    return replace(view, input=opened(view.input) if given else view.input, outputs={**view.outputs, **plain})


def _decoded(encoded: bytes, name: str, kept: dict[str, tuple[bytes, Any]] | None) -> Any:
    if kept is None:
        return _decode(encoded)
    known = kept.get(name)
    if known is None or known[0] != encoded:
        known = kept[name] = (encoded, _decode(encoded))
    return known[1]


class _Known(NamedTuple):
    """What all expressions of a definition need."""

    definition: Definition
    scopes: Scopes
    conditions: int


_recent: dict[int, _Known] = {}


def known_of(definition: Definition) -> _Known:
    # A plan compiles all conditions of one definition in a row; a new scope for each would cost the square.
    known = _recent.get(id(definition))
    if known is None or known.definition is not definition:
        scopes = scopes_of((step.name for step in definition.steps), definition.input_fields)
        conditions = sum(step.condition is not None for step in definition.steps)
        conditions += sum(step.wait is not None and step.wait.length is not msgspec.UNSET for step in definition.steps)
        conditions += sum(_has_facts(step) for step in definition.steps)
        conditions += sum(has_keys(step.limits or ()) for step in definition.work)
        conditions += sum(_of_growth(step) for step in definition.steps)
        if len(_recent) >= 32:
            _recent.clear()
        known = _recent[id(definition)] = _Known(definition, scopes, conditions)
    return known


def _of_growth(step: StepDefinition) -> int:
    growth = step.growth
    return growth.max if isinstance(growth, Switch) else growth is not msgspec.UNSET


def _has_facts(step: StepDefinition) -> bool:
    gate = step.approval or step.hold
    return gate is not None and bool(gate.facts)


def _scopes(definition: Definition) -> Scopes:
    return known_of(definition).scopes
