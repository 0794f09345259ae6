"""The plan: a definition arranged by step number, as `decide` uses it.

Numbers 0 to n-1 are the main steps in dispatch order (`order`, then name), n to 2n-1 their undo steps, and 2n the final
run-level check. From 2n+1 on, segments have the numbers of elements. Graph code is iterative, so that a chain of ten
thousand steps needs no deep stack. A plan derives from the stored definition alone, never from code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

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
    Growth,
    Handler,
    Limit,
    Loop,
    Map,
    OnExhausted,
    QueueSpec,
    Retry,
    Rules,
    StepDefinition,
    Switch,
    Then,
    Undo,
    UndoChild,
    Worked,
    templates_of,
)
from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.machine.rows import Called, Limited, Step
from stepkeep.kernel.machine.states import OnFailure, Phase, StepState
from stepkeep.kernel.people.separation import Constraint, duties_of_execution

MOST_REMEMBERED = 2_000
"""How many calls a plan remembers."""

NO_QUEUE = 0
"""The queue of steps that no worker ever claims: gates and waits."""

ADDED = "then"
"""The kind of a call that is a step which a handler added."""


class ConditionView(msgspec.Struct, frozen=True):
    """What a condition may read, by step name; payloads are encoded JSON.

    `decoded` caches what conditions decoded; the views of one decision share it. `index` and `last` are those of an
    element: its place, and the output of the element before it.
    """

    run_id: str
    input: bytes
    outputs: Mapping[str, bytes | None]
    states: Mapping[str, StepState]
    decoded: dict[str, tuple[bytes, Any]] = {}
    index: int | None = None
    last: bytes | None = None


class Evaluated(Protocol):
    """An expression that is evaluated when its step opens. `reads` names the steps it reads."""

    @property
    def reads(self) -> frozenset[str]: ...

    @property
    def reads_input(self) -> bool: ...


class Condition(Evaluated, Protocol):
    """A compiled `if:`. `holds` raises ExpressionError if it cannot be evaluated."""

    def holds(self, view: ConditionView) -> bool: ...


class SleepLength(Evaluated, Protocol):
    """The compiled length of a `sleep:`. `microseconds` raises ExpressionError if it has none."""

    def microseconds(self, view: ConditionView) -> int: ...


class MessageTest(Protocol):
    """A compiled filter of a wait, or its `until`. `holds` raises ExpressionError if it cannot be evaluated."""

    @property
    def reads_input(self) -> bool: ...

    def holds(self, view: ConditionView, messages: Sequence[bytes]) -> bool: ...


class Facts(Evaluated, Protocol):
    """The compiled facts of a gate. `render` raises ExpressionError if one of them cannot be evaluated."""

    def render(self, view: ConditionView) -> Mapping[str, Any]: ...


class Keys(Evaluated, Protocol):
    """The compiled keys and units of a step's limits. `of` raises ExpressionError if one cannot be evaluated."""

    def of(self, view: ConditionView) -> tuple[Limited, ...]: ...


class Grower(Evaluated, Protocol):
    """The compiled expressions of a step that owns elements. Each method raises ExpressionError."""

    def items(self, view: ConditionView) -> tuple[int, bytes]:
        """The number of items of a map, and their JSON."""
        ...

    def goes_on(self, view: ConditionView) -> bool:
        """Whether another element of a loop follows."""
        ...

    def chosen(self, view: ConditionView) -> int | None:
        """The first case of a choice whose condition holds; None if none does."""
        ...

    def join(self, outputs: Sequence[bytes | None]) -> bytes:
        """The outputs of elements as one list."""
        ...

    def join_added(self, own: bytes | None, added: Sequence[tuple[str, bytes | None]]) -> bytes:
        """The output of a handler that added steps, with theirs by name."""
        ...


CompileCondition = Callable[[str, Definition], Condition]
CompileGrowth = Callable[[StepDefinition, Definition], Grower]
CompileLength = Callable[[str, Definition], SleepLength]
CompileFacts = Callable[[Mapping[str, str], Definition], Facts]
CompileKeys = Callable[[Sequence[Limit], Definition], Keys]
CompileTest = Callable[[str, bool], MessageTest]
"""Compiles an expression over one message, or with True over all that a wait has taken."""
CompilePolicies = Callable[[Definition], tuple[Policy, ...]]


def _no_length(text: str, definition: Definition) -> SleepLength:
    raise InvariantBroken(f"nothing evaluates the sleep {text} of {definition.name}")


def _no_test(text: str, several: bool) -> MessageTest:
    raise InvariantBroken(f"nothing evaluates the filter {text}")


def _no_facts(facts: Mapping[str, str], definition: Definition) -> Facts:
    raise InvariantBroken(f"nothing evaluates the facts {', '.join(facts)} of {definition.name}")


def _no_keys(limits: Sequence[Limit], definition: Definition) -> Keys:
    raise InvariantBroken(f"nothing evaluates the keys of limits of {definition.name}")


def _no_growth(step: StepDefinition, definition: Definition) -> Grower:
    raise InvariantBroken(f"nothing evaluates the elements of {step.name} of {definition.name}")


def _no_policies(definition: Definition) -> tuple[Policy, ...]:
    if definition.policy is msgspec.UNSET and definition.budget is msgspec.UNSET:
        return ()
    raise InvariantBroken(f"nothing evaluates the policy of {definition.name}")


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the plan with everything that `decide` needs. `gate` has the terms of its gate or hold.

    A step that owns elements has a `segment`. That of a map or a loop has a `grower`, and no worker claims it. An
    element has its `owner` and its `index`, and so has its undo step. A `call` of a flow is an element too.
    """

    no: int
    name: str
    phase: Phase
    definition: StepDefinition
    executor: Executor | None
    queue: int
    timeout: int
    retry: Retry
    on_failure: OnFailure
    unmet: int = 0
    dependents: tuple[tuple[int, frozenset[StepState]], ...] = ()
    condition: Condition | None = None
    sleep_length: SleepLength | None = None
    accepts: MessageTest | None = None
    enough: MessageTest | None = None
    has_rules: bool = False
    has_pre: bool = False
    by_hand: bool = False
    holds: bool = False
    sleeps: bool = False
    gate: Approval | None = None
    facts: Facts | None = None
    keys: Keys | None = None
    segment: Segment | None = None
    grower: Grower | None = None
    owner: int | None = None
    index: int | None = None
    call: Called | None = None

    @property
    def step_name(self) -> str:
        """The name of the step itself, for handlers: of an undo step, the one that it undoes."""
        return self.definition.name if self.owner is None else self.name.removeprefix("undo:")

    @property
    def undoes_child(self) -> bool:
        """Whether this is an undo step that rolls a child back."""
        undo = self.definition.undo
        return self.phase is Phase.UNDO and undo is not None and isinstance(undo.executor, UndoChild)

    @property
    def starts_child(self) -> bool:
        """Whether this step starts a child run; the owner of such elements does not."""
        return self.segment is None and self.definition.child is not msgspec.UNSET

    @property
    def waits_itself(self) -> bool:
        """Whether this step only waits, for people, a message or time: a policy that holds steps lets it open."""
        return self.definition.approval is not None or self.definition.wait is not None

    @property
    def growth(self) -> Growth | None:
        """How this step owns elements; None for every other step, elements included."""
        return None if self.segment is None else self.definition.growth or None

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
    `policies` are those of the definition. `compile_test` compiles
    the filters that handlers wait with.
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
    undo_waits: bool = False
    policies: tuple[Policy, ...] = ()
    compile_test: CompileTest = _no_test
    segments: tuple[Segment, ...] = ()
    queues: tuple[int, ...] = ()
    duties: Mapping[int, tuple[Constraint, ...]] = {}
    """By main step, the constraints on the owner of a worker that executes it, or what stands below it."""
    sets_aside: bool = False
    """Whether a step is claimed by a query of its own: it needs resources, is limited, or has duties."""
    has_limits: bool = False
    """Whether a step is limited: the end of its claim frees places."""
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
                executor=None if isinstance(undo.executor, UndoChild) else undo.executor,
                queue=call.undo_queue,
                timeout=undo.timeout,
                retry=undo.retry,
                holds=_holds(undo),
                call=call,
            )
        return replace(
            place,
            definition=definition,
            executor=definition.executor,
            queue=call.queue,
            timeout=definition.timeout,
            retry=definition.retry,
            has_rules=bool(definition.rules),
            has_pre=bool(definition.pre),
            by_hand=definition.completion is Completion.MANUAL,
            sleeps=definition.wait is not None and definition.wait.sleeps is True,
            gate=definition.approval or definition.hold,
            unmet=call.needs,
            dependents=self._followers(no, call),
            call=call,
            accepts=_accepts(definition, self.compile_test),
            enough=_enough(definition, self.compile_test),
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
        if isinstance(owner.growth, Worked):
            return _unknown_call(owner, segment, no)
        if isinstance(owner.growth, Switch):
            owner = _as_case(owner, owner.growth.cases[index % segment.width].step)
        if index < segment.width:
            return replace(
                owner,
                no=no,
                name=element_name(owner.name, index),
                queue=self.element_queue(segment, index),
                on_failure=OnFailure.CONTINUE,
                unmet=0,
                dependents=(),
                condition=None,
                has_rules=bool(owner.definition.rules),
                has_pre=bool(owner.definition.pre),
                gate=None,
                facts=None,
                segment=None,
                grower=None,
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
            is_call = isinstance(self.steps[segment.owner].growth, Worked)
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
    main = [_spec(step.executor, step.capabilities, step.queue) for step in steps]
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


def has_keys(limits: Iterable[Limit]) -> bool:
    """Whether one of these limits has an expression, which is evaluated when its step opens."""
    return any(limit.per is not msgspec.UNSET or isinstance(limit.units, str) for limit in limits)


def build_plan(
    definition: Definition,
    *,
    definition_id: int,
    digest: str,
    queues: Sequence[int],
    compile_condition: CompileCondition,
    compile_length: CompileLength = _no_length,
    compile_facts: CompileFacts = _no_facts,
    compile_policies: CompilePolicies = _no_policies,
    compile_test: CompileTest = _no_test,
    compile_growth: CompileGrowth = _no_growth,
    compile_keys: CompileKeys = _no_keys,
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
        PlannedStep(
            no=no,
            name=step.name,
            phase=Phase.MAIN,
            definition=step,
            executor=step.executor,
            queue=NO_QUEUE if isinstance(step.growth, Map | Loop | Switch) else queues[no],
            timeout=step.timeout,
            retry=step.retry,
            on_failure=step.on_failure,
            unmet=len(step.depends_on),
            dependents=tuple(followers[no]),
            condition=None if step.condition is None else compile_condition(step.condition, definition),
            sleep_length=_length(step, definition, compile_length),
            has_rules=bool(step.rules) and not isinstance(step.growth, Map | Loop | Switch),
            has_pre=bool(step.pre) and not isinstance(step.growth, Map | Loop | Switch),
            segment=by_owner.get(no),
            grower=compile_growth(step, definition) if isinstance(step.growth, Map | Loop | Switch | Then) else None,
            by_hand=step.completion is Completion.MANUAL,
            sleeps=step.wait is not None and step.wait.sleeps is True,
            holds=_holds(step),
            gate=step.approval or step.hold,
            facts=_facts(step.approval or step.hold, definition, compile_facts),
            keys=compile_keys(step.limits, definition) if step.limits and has_keys(step.limits) else None,
            accepts=_accepts(step, compile_test),
            enough=_enough(step, compile_test),
        )
        for no, step in enumerate(ordered)
    )
    undos = {
        size + step.no: _undo(step, size, queues[size + step.no]) for step in steps if step.definition.undo is not None
    }
    check = _check(definition, 2 * size, queues[2 * size]) if definition.rules else None
    has_flows = any(isinstance(step.growth, Flow) for step in steps)
    hooks = {undo.name: undo.no for undo in undos.values() if undo.no - size not in by_owner}
    last = {check.name: check.no} if check else {}
    duties = {numbers[name]: found for name, found in duties_of_execution(definition).items() if name in numbers}
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
        children=tuple(step.no for step in steps if _awaits_child(step.definition)),
        has_child_elements=any(step.segment is not None and _awaits_child(step.definition) for step in steps),
        undo_waits=has_flows or any(_undo_waits(step) for step in ordered),
        policies=compile_policies(definition),
        compile_test=compile_test,
        segments=segments,
        queues=tuple(queues) if segments else (),
        duties=duties,
        sets_aside=bool(duties) or any(step.resources or step.limits for step in definition.work),
        has_limits=any(step.limits for step in definition.work),
        has_duties=bool(definition.duties) or any(one.gate is not None and one.gate.excluded for one in steps),
        evaluates=any(
            one is not None
            for step in steps
            for one in (step.condition, step.sleep_length, step.facts, step.keys, step.grower)
        ),
    )


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


def _unknown_call(owner: PlannedStep, segment: Segment, no: int) -> PlannedStep:
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
        executor=None,
        queue=NO_QUEUE,
        timeout=owner.timeout,
        retry=owner.retry,
        on_failure=OnFailure.CONTINUE,
        owner=owner.no,
        index=index,
    )


def _awaits_child(step: StepDefinition) -> bool:
    """Whether a step, one of its elements or one of its cases waits for a child run. A call of a flow may."""
    awaited = [one.child is not msgspec.UNSET and one.child.detached is not True for one in templates_of(step)]
    return isinstance(step.growth, Flow) or any(awaited)


def _undo_waits(step: StepDefinition) -> bool:
    """Whether an undo step of this step, of an element or of a case rolls a child run back, or may hold."""
    undos = [one.undo for one in templates_of(step) if one.undo is not None]
    return any(isinstance(undo.executor, UndoChild) or _holds(undo) for undo in undos)


def _length(step: StepDefinition, definition: Definition, compile_length: CompileLength) -> SleepLength | None:
    length = msgspec.UNSET if step.wait is None else step.wait.length
    return None if length is msgspec.UNSET else compile_length(length, definition)


def _accepts(step: StepDefinition, compile_test: CompileTest) -> MessageTest | None:
    given = msgspec.UNSET if step.wait is None else step.wait.accepts
    return None if given is msgspec.UNSET else compile_test(given, False)


def _enough(step: StepDefinition, compile_test: CompileTest) -> MessageTest | None:
    given = msgspec.UNSET if step.wait is None else step.wait.enough
    return None if given is msgspec.UNSET else compile_test(given, True)


def _facts(gate: Approval | None, definition: Definition, compile_facts: CompileFacts) -> Facts | None:
    return None if gate is None or gate.facts is msgspec.UNSET else compile_facts(gate.facts, definition)


def _as_case(owner: PlannedStep, case: StepDefinition) -> PlannedStep:
    """The owner of a choice with what one of its cases does."""
    return replace(owner, definition=case, executor=case.executor, timeout=case.timeout, retry=case.retry)


def _undo(step: PlannedStep, size: int, queue: int) -> PlannedStep:
    undo = step.definition.undo
    assert undo is not None
    return PlannedStep(
        no=size + step.no,
        name=f"undo:{step.name}",
        phase=Phase.UNDO,
        definition=step.definition,
        executor=None if isinstance(undo.executor, UndoChild) else undo.executor,
        queue=queue,
        timeout=undo.timeout,
        retry=undo.retry,
        on_failure=OnFailure.CONTINUE,
        holds=_holds(undo),
    )


def _holds(what: StepDefinition | Undo) -> bool:
    return what.on_exhausted in (OnExhausted.HOLD, OnExhausted.HOLD_REQUIRED)


def _check(definition: Definition, no: int, queue: int) -> PlannedStep:
    rules = StepDefinition(name="check:run", order=no, executor=Rules(), rules=definition.rules)
    own = sum(rule.timeout for rule in definition.rules if rule.timeout is not msgspec.UNSET)
    return PlannedStep(
        no=no,
        name=rules.name,
        phase=Phase.CHECK,
        definition=rules,
        executor=rules.executor,
        queue=queue,
        timeout=max(rules.timeout, own),
        retry=HOOK_RETRY,
        on_failure=OnFailure.ABORT,
        has_rules=True,
    )
