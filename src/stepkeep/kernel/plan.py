"""The plan: a definition arranged by step number, as `decide` uses it.

Numbers 0 to n-1 are the main steps in dispatch order (`order`, then name), n to 2n-1 their undo steps, and 2n the final
run-level check. From 2n+1 on, segments have the numbers of elements. Graph code is iterative, so that a chain of ten
thousand steps needs no deep stack. A plan derives from the stored definition alone, never from code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.compiler import Compiler, Condition, Evaluated, Facts, Keys
from stepkeep.kernel.composition.segments import Segment, element_name, lay_out, read_element_name, segment_at
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.definition import (
    HOOK_RETRY,
    Agent,
    Approval,
    Completion,
    Definition,
    Executor,
    Flow,
    Handler,
    Limit,
    OnExhausted,
    QueueSpec,
    Retry,
    Rules,
    StepDefinition,
    Switch,
    Undo,
    UndoChild,
    templates_of,
)
from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.kinds import ChildUndoStep, StepKind, UnreadStep, WorkStep, kind_of, plain_kind
from stepkeep.kernel.machine.rows import Called, Step
from stepkeep.kernel.machine.states import OnFailure, Phase, StepState
from stepkeep.kernel.people.separation import Constraint, duties_of_execution

MOST_REMEMBERED = 2_000
"""How many calls a plan remembers."""

NO_QUEUE = 0
"""The queue of steps that no worker ever claims: gates and waits."""

ADDED = "then"
"""The kind of a call that is a step which a handler added."""


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the plan with everything that `decide` needs: its kind, and beside it what each kind may have.

    A step that owns elements has a `segment`. An element has its `owner` and its `index`, and so has its undo step. A
    `call` of a flow is an element too.
    """

    no: int
    name: str
    phase: Phase
    definition: StepDefinition
    kind: StepKind
    queue: int
    timeout: int
    retry: Retry
    on_failure: OnFailure
    unmet: int = 0
    dependents: tuple[tuple[int, frozenset[StepState]], ...] = ()
    condition: Condition | None = None
    hold: Approval | None = None
    """The terms on which people let it begin."""
    facts: Facts | None = None
    """What its gate or its hold shows."""
    keys: Keys | None = None
    """The keys of its limits, if one of them is evaluated."""
    has_rules: bool = False
    has_pre: bool = False
    by_hand: bool = False
    stays_exhausted: bool = False
    """Whether it waits for people when no attempt is left."""
    segment: Segment | None = None
    owner: int | None = None
    index: int | None = None
    call: Called | None = None

    @property
    def executor(self) -> Executor | None:
        """What runs for it, or for each of its elements."""
        return self.kind.executor

    @property
    def gate(self) -> Approval | None:
        """The terms of its gate or hold."""
        return self.kind.terms or self.hold

    @property
    def evaluated(self) -> list[Evaluated]:
        """What is evaluated when it opens."""
        return [one for one in (self.condition, self.facts, self.keys, *self.kind.evaluated) if one is not None]

    @property
    def step_name(self) -> str:
        """The name of the step itself, for handlers: of an undo step, the one that it undoes."""
        return self.definition.name if self.owner is None else self.name.removeprefix("undo:")

    @property
    def inputs(self) -> Any:
        """The inputs as they are written: those of the step, or those of its undo."""
        undo = self.definition.undo
        return undo.inputs if self.phase is Phase.UNDO and undo is not None else self.definition.inputs


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of a run, by number, with their edges. `document` holds the stored bytes that `digest` is over.

    `undos` of owners are the templates of those of their elements. `results` are the last steps: their outputs are the
    result of a run that declares none.
    `children` are the steps that wait for a child run, or whose elements do (`has_child_elements`). `undo_waits`:
    an undo step may wait for a child that is rolled back, or for a person.
    `policies` are those of the definition. `compiler` compiles the filters that handlers wait with.
    """

    definition_id: int
    definition: Definition
    digest: str
    document: bytes
    steps: tuple[PlannedStep, ...]
    undos: Mapping[int, PlannedStep]
    check: PlannedStep | None
    numbers: Mapping[str, int]
    roots: tuple[int, ...]
    results: tuple[int, ...]
    children: tuple[int, ...] = ()
    has_child_elements: bool = False
    has_flows: bool = False
    undo_waits: bool = False
    policies: tuple[Policy, ...] = ()
    compiler: Compiler = Compiler()
    segments: tuple[Segment, ...] = ()
    queues: tuple[int, ...] = ()
    duties: Mapping[int, tuple[Constraint, ...]] = {}
    """By main step, the constraints on the owner of a worker that executes it, or what stands below it."""
    sets_aside: bool = False
    """Whether a step is claimed by a query of its own: it needs resources, is limited, or has duties."""
    has_limits: bool = False
    """Whether a step is limited, or may be, as a call of a flow: the end of its claim frees places."""
    has_duties: bool = False
    """Whether the definition rules persons out of its gates or steps."""
    evaluates: bool = False
    """Whether a step of the definition has an expression that is evaluated when it opens."""
    memo: dict[tuple[int, Called], PlannedStep] = msgspec.field(default_factory=dict)
    """The calls that this process looked at last: a decision asks for the same one several times."""
    elements: dict[int, PlannedStep] = msgspec.field(default_factory=dict)
    """The same for elements, by their number: whatever its run, an element is planned alike."""

    @property
    def size(self) -> int:
        return len(self.steps)

    def at(self, no: int) -> PlannedStep:
        steps = self.steps
        if no < len(steps):
            return steps[no]
        if no < 2 * len(steps):
            return self.undos[no]
        if no > 2 * len(steps):
            return self.elements.get(no) or self._element(no)
        if self.check is None:
            raise InvariantBroken(f"step {no} is not in the plan of {self.definition.name}")
        return self.check

    def of(self, step: Step) -> PlannedStep:
        """The planned step of a row. That of a call follows from the row, because the definition does not know it."""
        call = None if step.note is None else step.note.call
        if call is None:
            return self.at(step.no)
        known = self.memo.get((step.no, call))
        if known is None:
            known = self._called(step.no, call)
            if len(self.memo) >= MOST_REMEMBERED:
                self.memo.clear()
            self.memo[step.no, call] = known
        return known

    def called(self, no: int, call: Called) -> PlannedStep | None:
        """The planned step of a call, or of its undo if it has one."""
        is_there = not self.is_undo(no) or template_of(call.step).undo is not None
        return self._called(no, call) if is_there else None

    def _called(self, no: int, call: Called) -> PlannedStep:
        definition, place = template_of(call.step), self.at(no)
        if place.phase is Phase.UNDO:
            undo = definition.undo
            assert undo is not None
            return replace(
                place,
                definition=definition,
                kind=_undo_kind(definition, undo),
                queue=call.undo_queue,
                timeout=undo.timeout,
                retry=undo.retry,
                stays_exhausted=_stays(undo),
                call=call,
            )
        return replace(
            place,
            definition=definition,
            kind=plain_kind(definition, self.definition, self.compiler),
            queue=call.queue,
            timeout=definition.timeout,
            retry=definition.retry,
            has_rules=bool(definition.rules),
            has_pre=bool(definition.pre),
            by_hand=definition.completion is Completion.MANUAL,
            hold=definition.hold,
            facts=_facts(definition, self.definition, self.compiler),
            keys=_keys(definition, self.definition, self.compiler),
            unmet=call.needs,
            dependents=self._followers(no, call),
            call=call,
        )

    def _followers(self, no: int, call: Called) -> tuple[tuple[int, frozenset[StepState]], ...]:
        segment = segment_at(self.segments, no) if call.followers else None
        if segment is None:
            return ()
        return tuple([(segment.element(edge.place), frozenset(edge.allow)) for edge in call.followers])

    def _element(self, no: int) -> PlannedStep:
        """Plan an element, and remember it."""
        if len(self.elements) >= MOST_REMEMBERED:
            self.elements.clear()
        found = self.elements[no] = self._planned_element(no)
        return found

    def _planned_element(self, no: int) -> PlannedStep:
        segment = segment_at(self.segments, no)
        if segment is None:
            raise InvariantBroken(f"step {no} is not in the plan of {self.definition.name}")
        owner, index = self.steps[segment.owner], no - segment.first
        if owner.kind.grows_by_report:
            return _unread_call(owner, segment, no)
        growth, kind = owner.kind.growth, owner.kind.element(index % segment.width)
        if isinstance(growth, Switch):
            case = growth.cases[index % segment.width].step
            keys = _keys(case, self.definition, self.compiler)
            owner = replace(owner, definition=case, timeout=case.timeout, retry=case.retry, keys=keys)
        if index < segment.width:
            return replace(
                owner,
                no=no,
                name=element_name(owner.name, index),
                kind=kind,
                queue=self.element_queue(segment, index),
                on_failure=OnFailure.CONTINUE,
                unmet=0,
                dependents=(),
                condition=None,
                has_rules=bool(owner.definition.rules),
                has_pre=bool(owner.definition.pre),
                hold=None,
                facts=None,
                segment=None,
                owner=owner.no,
                index=index,
            )
        index -= segment.width
        queue = self.queues[self.written_no(no)]
        return replace(
            _undo(owner, len(self.steps), queue),
            no=no,
            name=f"undo:{element_name(owner.name, index)}",
            owner=owner.no,
            index=index,
        )

    def element_queue(self, segment: Segment, index: int) -> int:
        """The queue of an element: that of its owner, unless the elements of the segment differ."""
        return self.queues[segment.owner if segment.queues is None else segment.queues + 2 * index]

    def duties_on(self, planned: PlannedStep) -> tuple[Constraint, ...]:
        """The constraints on the owner of a worker that executes this step. Undo steps and the final check have none:
        a rollback waits for no other owner."""
        if not self.duties or planned.phase is not Phase.MAIN:
            return ()
        return self.duties.get(planned.no if planned.owner is None else planned.owner, ())

    def undo_no(self, no: int) -> int:
        """The number of the undo step of a main step or an element, whether it has one or not."""
        if no < len(self.steps):
            return no + len(self.steps)
        segment = segment_at(self.segments, no)
        if segment is None or no >= segment.first + segment.width:
            raise InvariantBroken(f"step {no} of {self.definition.name} has no undo step")
        return no + segment.width

    def undo_for(self, step: Step) -> PlannedStep | None:
        """The undo step of a row, as `undo_of` has it; that of a call follows from the row."""
        call = None if step.note is None else step.note.call
        if call is None or self.is_undo(step.no):
            return self.undo_of(step.no)
        return None if template_of(call.step).undo is None else self._called(self.undo_no(step.no), call)

    def undo_of(self, no: int) -> PlannedStep | None:
        """The undo step of a step. The owner of elements has none: each element is undone."""
        if no < len(self.steps):
            return None if self.steps[no].segment is not None else self.undos.get(no + len(self.steps))
        planned = self.at(no)
        is_element = planned.owner is not None and planned.phase is Phase.MAIN
        return self.at(self.undo_no(no)) if is_element and planned.definition.undo is not None else None

    def main_no(self, no: int) -> int:
        """The number of the step that this undo step undoes."""
        if no < 2 * len(self.steps):
            return no - len(self.steps)
        segment = segment_at(self.segments, no)
        assert segment is not None
        return no - segment.width

    def is_undo(self, no: int) -> bool:
        size = len(self.steps)
        if no <= 2 * size:
            return size <= no < 2 * size
        segment = segment_at(self.segments, no)
        return segment is not None and no >= segment.first + segment.width

    def is_element(self, no: int) -> bool:
        """Whether this is the number of an element; its undo step is none."""
        return no > 2 * len(self.steps) and not self.is_undo(no)

    def name_of(self, no: int) -> str | None:
        """The name of a step; None if the plan has no such number."""
        if no < 2 * len(self.steps) and (no < len(self.steps) or no in self.undos):
            return self.at(no).name
        if (segment := segment_at(self.segments, no)) is not None:
            # Whether a call of a flow, or an added step, has an undo is known to its row alone.
            is_call = self.steps[segment.owner].kind.grows_by_report
            has_step = is_call or not self.is_undo(no) or self.undo_of(self.main_no(no)) is not None
        else:
            has_step = self.check is not None and no == self.check.no
        return self.at(no).name if has_step else None

    def written_no(self, no: int) -> int:
        """The number that the definition itself has for a step: for an element that of its owner, for its undo step the
        one behind that. The cases of a choice have numbers behind all others. `queue_specs` is by these numbers."""
        if no <= 2 * len(self.steps):
            return no
        segment = segment_at(self.segments, no)
        assert segment is not None
        if segment.queues is not None:
            index = no - segment.first
            return segment.queues + 2 * (index % segment.width) + (index >= segment.width)
        return segment.owner + (len(self.steps) if no >= segment.first + segment.width else 0)

    def number(self, name: str) -> int | None:
        """The number of a step by its name; undo steps are `undo:NAME`, elements `NAME[INDEX]`, the final check is
        `check:run`."""
        found = self.numbers.get(name)
        if found is None and self.segments and (named := read_element_name(name)) is not None:
            is_undo, owner, index = named
            segment = next((one for one in self.segments if self.steps[one.owner].name == owner), None)
            if segment is not None and index < segment.width:
                return segment.undo(index) if is_undo else segment.element(index)
        return found

    def within(self, planned: PlannedStep) -> str:
        """The step of the definition that this one stands for or below: the owner of an element, else itself."""
        is_below = planned.owner is not None and planned.phase is Phase.MAIN
        return self.steps[planned.owner].name if is_below and planned.owner is not None else planned.name

    def number_for(self, planned: PlannedStep, name: str) -> int:
        """The number of the step that `planned` calls by this name: to an element, its owner's name is its own. An
        added step calls itself and the other ones by the names that the handler gave them."""
        if planned.call is not None and (place := _place_of(planned, name)) is not None:
            segment = segment_at(self.segments, planned.no)
            assert segment is not None
            return segment.element(place)
        if planned.owner is not None and name == planned.definition.name:
            return self.main_no(planned.no) if planned.phase is Phase.UNDO else planned.no
        return self.numbers[name]


def laid_out(definition: Definition) -> tuple[StepDefinition, ...]:
    """The main steps in dispatch order."""
    return tuple(sorted(definition.steps, key=lambda step: (step.order, step.name)))


def queue_specs(definition: Definition) -> tuple[QueueSpec | None, ...]:
    """What each step number requires of a worker (None: no worker, or no such step)."""
    steps = laid_out(definition)
    main = [_spec(step.executor, asked_of_workers(step), step.queue) for step in steps]
    undo = [_undo_spec(step.undo, step) if step.undo else None for step in steps]
    check = QueueSpec(kind="rules", capabilities=definition.check_capabilities or ()) if definition.rules else None
    cases = [case.step for step in steps if isinstance(step.growth, Switch) for case in step.growth.cases]
    of_cases = [
        spec
        for case in cases
        for spec in (
            _spec(case.executor, case.capabilities, case.queue),
            _undo_spec(case.undo, case) if case.undo else None,
        )
    ]
    return (*main, *undo, check, *of_cases)


FLOW = "flow-version:"
"""Begins the word that a queue of a flow asks of workers: they have this version of the function."""


def asked_of_workers(step: StepDefinition) -> tuple[str, ...]:
    """What a step asks of workers besides its handler: its capabilities, and the version of its flow."""
    if not isinstance(step.growth, Flow) or step.growth.version is msgspec.UNSET:
        return step.capabilities
    return (*step.capabilities, f"{FLOW}{step.growth.version}")


def _undo_spec(undo: Undo, step: StepDefinition) -> QueueSpec | None:
    if isinstance(undo.executor, UndoChild):
        return None
    capabilities = step.capabilities if undo.capabilities is None else undo.capabilities
    return _spec(undo.executor, capabilities, step.queue if undo.queue is None else undo.queue)


def _spec(executor: Executor | None, capabilities: Sequence[str], queue: str) -> QueueSpec | None:
    if executor is None:
        return None
    name = executor.name if isinstance(executor, Handler | Agent) else ""
    kind = str(executor.__struct_config__.tag)
    return QueueSpec(kind=kind, name=name, capabilities=tuple(sorted(capabilities)), group=queue)


def build_plan(
    definition: Definition,
    compiler: Compiler,
    *,
    definition_id: int,
    digest: str,
    queues: Sequence[int],
    document: bytes = b"",
) -> Plan:
    """Build the plan of a definition. `queues` has one id per step number, as `queue_specs` lists them."""
    ordered = laid_out(definition)
    size = len(ordered)
    numbers = {step.name: no for no, step in enumerate(ordered)}
    widths = [(no, step.growth.max, isinstance(step.growth, Switch)) for no, step in enumerate(ordered) if step.growth]
    segments = lay_out(2 * size + 1, widths)
    by_owner = {segment.owner: segment for segment in segments}
    followers: list[list[tuple[int, frozenset[StepState]]]] = [[] for _ in ordered]
    for no, step in enumerate(ordered):
        for edge in step.depends_on:
            followers[numbers[edge.step]].append((no, frozenset(edge.allow)))
    steps = tuple(
        [
            replace(
                _main(definition, compiler, step, no, queues[no]),
                dependents=tuple(followers[no]),
                segment=by_owner.get(no),
            )
            for no, step in enumerate(ordered)
        ]
    )
    undos = {
        size + step.no: _undo(step, size, queues[size + step.no]) for step in steps if step.definition.undo is not None
    }
    check = _check(definition, 2 * size, queues[2 * size]) if definition.rules else None
    hooks = {undo.name: undo.no for undo in undos.values() if undo.no - size not in by_owner}
    last = {check.name: check.no} if check else {}
    duties = {numbers[name]: found for name, found in duties_of_execution(definition).items() if name in numbers}
    has_limits = any(step.limits for step in definition.work) or any(step.kind.is_flow for step in steps)
    return Plan(
        definition_id=definition_id,
        definition=definition,
        digest=digest,
        document=document,
        steps=steps,
        undos=undos,
        check=check,
        numbers={**numbers, **hooks, **last},
        roots=tuple(step.no for step in steps if step.unmet == 0),
        results=tuple(step.no for step in steps if not step.dependents),
        children=tuple(step.no for step in steps if step.kind.awaits_child),
        has_child_elements=any(step.segment is not None and step.kind.awaits_child for step in steps),
        has_flows=any(step.kind.is_flow for step in steps),
        undo_waits=any(step.kind.is_flow or _undo_waits(step.definition) for step in steps),
        policies=compiler.policies(definition),
        compiler=compiler,
        segments=segments,
        queues=tuple(queues) if segments else (),
        duties=duties,
        sets_aside=bool(duties) or has_limits or any(step.resources for step in definition.work),
        has_limits=has_limits,
        has_duties=bool(definition.duties) or any(one.gate is not None and one.gate.excluded for one in steps),
        evaluates=any(step.evaluated for step in steps),
    )


def has_keys(limits: Iterable[Limit]) -> bool:
    """Whether one of these limits has an expression, which is evaluated when its step opens."""
    return any(limit.per is not msgspec.UNSET or isinstance(limit.units, str) for limit in limits)


def _main(definition: Definition, compiler: Compiler, step: StepDefinition, no: int, queue: int) -> PlannedStep:
    """A main step by itself. What waits for it is known once all are."""
    kind = kind_of(step, definition, compiler)
    runs = kind.is_claimed or kind.growth is None
    return PlannedStep(
        no=no,
        name=step.name,
        phase=Phase.MAIN,
        definition=step,
        kind=kind,
        queue=queue if runs else NO_QUEUE,
        timeout=step.timeout,
        retry=step.retry,
        on_failure=step.on_failure,
        unmet=len(step.depends_on),
        condition=None if step.condition is None else compiler.condition(step.condition, definition),
        hold=step.hold,
        facts=_facts(step, definition, compiler),
        keys=_keys(step, definition, compiler),
        has_rules=bool(step.rules) and runs,
        has_pre=bool(step.pre) and runs,
        by_hand=step.completion is Completion.MANUAL,
        stays_exhausted=_stays(step),
    )


def _facts(step: StepDefinition, definition: Definition, compiler: Compiler) -> Facts | None:
    gate = step.approval or step.hold
    return None if gate is None or gate.facts is msgspec.UNSET else compiler.facts(gate.facts, definition)


def _keys(step: StepDefinition, definition: Definition, compiler: Compiler) -> Keys | None:
    return compiler.keys(step.limits, definition) if step.limits and has_keys(step.limits) else None


@lru_cache(maxsize=4096)
def template_of(text: str) -> StepDefinition:
    """The template of a call, from the JSON that `written_template` made."""
    return msgspec.json.decode(text, type=StepDefinition)


def written_template(definition: StepDefinition) -> str:
    """The JSON of what a template says beyond the defaults of a step. Arguments are kept apart."""
    said = _beyond_defaults(replace(definition, inputs=None, depends_on=(), condition=None, order=0))
    return _encoder.encode(said).decode()


_encoder = msgspec.json.Encoder(order="sorted")


def _beyond_defaults(value: msgspec.Struct) -> Mapping[str, object]:
    config = value.__struct_config__
    said: dict[str, object] = {} if config.tag is None else {str(config.tag_field): config.tag}
    for field in msgspec.structs.fields(type(value)):
        found = getattr(value, field.name)
        if field.required or (found is not msgspec.UNSET and found != field.default):
            is_value = isinstance(found, msgspec.Struct)
            said[field.encode_name] = _beyond_defaults(found) if is_value else msgspec.to_builtins(found)
    return said


def _place_of(planned: PlannedStep, name: str) -> int | None:
    """The place of the added step that `planned` calls by this name."""
    call = planned.call
    if call is None or call.kind != ADDED:
        return None
    return planned.index if name == call.name else next((one.place for one in call.reads if one.name == name), None)


def _unread_call(owner: PlannedStep, segment: Segment, no: int) -> PlannedStep:
    """A call of a flow as far as its number tells: whose it is, its place, and whether it is an undo."""
    offset = no - segment.first
    is_undo = offset >= segment.width
    index = offset - segment.width if is_undo else offset
    name = element_name(owner.name, index)
    return PlannedStep(
        no=no,
        name=f"undo:{name}" if is_undo else name,
        phase=Phase.UNDO if is_undo else Phase.MAIN,
        definition=StepDefinition(name=owner.name, order=0),
        kind=UnreadStep(),
        queue=NO_QUEUE,
        timeout=owner.timeout,
        retry=owner.retry,
        on_failure=OnFailure.CONTINUE,
        owner=owner.no,
        index=index,
    )


def _undo_waits(step: StepDefinition) -> bool:
    """Whether an undo step of this step, of an element or of a case rolls a child run back, or may hold."""
    undos = [one.undo for one in templates_of(step) if one.undo is not None]
    return any(isinstance(undo.executor, UndoChild) or _stays(undo) for undo in undos)


def _undo(step: PlannedStep, size: int, queue: int) -> PlannedStep:
    undo = step.definition.undo
    assert undo is not None
    return PlannedStep(
        no=size + step.no,
        name=f"undo:{step.name}",
        phase=Phase.UNDO,
        definition=step.definition,
        kind=_undo_kind(step.definition, undo),
        queue=queue,
        timeout=undo.timeout,
        retry=undo.retry,
        on_failure=OnFailure.CONTINUE,
        stays_exhausted=_stays(undo),
    )


def _undo_kind(step: StepDefinition, undo: Undo) -> StepKind:
    if not isinstance(undo.executor, UndoChild):
        return WorkStep(executor=undo.executor)
    assert step.child is not msgspec.UNSET
    return ChildUndoStep(child=step.child)


def _stays(what: StepDefinition | Undo) -> bool:
    return what.on_exhausted in (OnExhausted.HOLD, OnExhausted.HOLD_REQUIRED)


def _check(definition: Definition, no: int, queue: int) -> PlannedStep:
    executor = Rules()
    rules = StepDefinition(name="check:run", order=no, executor=executor, rules=definition.rules)
    own = sum(rule.timeout for rule in definition.rules if rule.timeout is not msgspec.UNSET)
    return PlannedStep(
        no=no,
        name=rules.name,
        phase=Phase.CHECK,
        definition=rules,
        kind=WorkStep(executor=executor),
        queue=queue,
        timeout=max(rules.timeout, own),
        retry=HOOK_RETRY,
        on_failure=OnFailure.ABORT,
        has_rules=True,
    )
