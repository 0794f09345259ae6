"""One simulated run: its rows in memory, its clock in a variable, its decisions made by the kernel.

A world can be forked at any time for the cost of one copy of its rows; paths share their beginning that way. It does
not know the next event (`script`) or the set of paths (`explore`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stepkeep.definition.expressions.conditions import CompiledCondition, compile_condition
from stepkeep.definition.native.lint import unstated_writes
from stepkeep.kernel.compiler import Compiler, ConditionView
from stepkeep.kernel.composition.segments import Segment
from stepkeep.kernel.decide.create import create_run
from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Decision, Involved, Snapshot
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.decide.stopping import is_in_doubt, leaves_effect
from stepkeep.kernel.definition import (
    Approval,
    Case,
    Definition,
    Effect,
    Limit,
    Loop,
    OnDeadline,
    StepDefinition,
    Switch,
    Undo,
    Wait,
    digest_of,
    encode_definition,
)
from stepkeep.kernel.errors import ExpressionError, InvariantBroken, Refused
from stepkeep.kernel.machine.events import Event
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, AttemptState, RunState, StepState
from stepkeep.kernel.people.authority import Caller, OnlyVouched
from stepkeep.kernel.plan import Plan, PlannedStep, build_plan, queue_specs
from stepkeep.simulate.children import UNKNOWN, ChildEnds, child_key
from stepkeep.simulate.fates import Deviation, Fate, FatePoint, Part, case_place

TENANT, RUN_ID, WORKER = "simulate", "simulate", 1
WALKED = 2
"""How many elements of a map or a loop a simulated run has, if its definition allows as many."""

UNSURE = frozenset({AttemptState.TIMED_OUT, AttemptState.LOST, AttemptState.CANCELLED})
"""Attempt states after which it is unknown whether the handler had its effect."""


def without_jitter(definition: Definition) -> Definition:
    """The definition with the longest delays that it allows: jitter only shortens them."""

    def undone(undo: Undo | None) -> Undo | None:
        return None if undo is None else replace(undo, retry=replace(undo.retry, jitter=0.0))

    def calm(step: StepDefinition) -> StepDefinition:
        growth = step.growth
        if isinstance(growth, Switch):
            growth = replace(growth, cases=tuple([replace(case, step=calm(case.step)) for case in growth.cases]))
        return replace(step, retry=replace(step.retry, jitter=0.0), undo=undone(step.undo), growth=growth)

    return replace(definition, steps=tuple([calm(step) for step in definition.steps]))


def _without_moments(definition: Definition) -> Definition:
    """The definition with every moment in the past: a simulated run has no date, so such a sleep takes no time. A sleep
    whose length is an expression takes none either."""

    def asleep(wait: Wait | None) -> Wait | None:
        if wait is None or (wait.until is UNSET and wait.length is UNSET):
            # The message that a simulated run is sent passes every filter, and is enough.
            return wait if wait is None else replace(wait, accepts=UNSET, count=UNSET, enough=UNSET)
        return replace(wait, until=UNSET, length=UNSET, deadline=0)

    return replace(definition, steps=tuple(replace(step, wait=asleep(step.wait)) for step in definition.steps))


def _with_plain_gates(definition: Definition) -> Definition:
    """The definition with one person for each gate: a simulated run has no people. Levels become one deadline."""

    def plain(gate: Approval | None) -> Approval | None:
        if gate is None:
            return None
        ends = [level.deadline for level in gate.levels] if gate.on_deadline is OnDeadline.ESCALATE else [gate.deadline]
        deadline = None if None in ends else sum(end for end in ends if end is not None)
        escalates = gate.on_deadline is OnDeadline.ESCALATE
        return Approval(deadline=deadline, on_deadline=OnDeadline.REJECT if escalates else gate.on_deadline)

    steps = tuple(
        replace(step, approval=plain(step.approval), hold=plain(step.hold), limits=_with_one_key(step.limits))
        for step in definition.steps
    )
    return replace(definition, steps=steps, duties=UNSET)


def _with_one_key(limits: tuple[Limit, ...] | UnsetType) -> tuple[Limit, ...] | UnsetType:
    """Limits without expressions: a simulated run is alone, and has a place under any key."""
    return tuple([Limit(name=limit.name) for limit in limits]) if limits else UNSET


class Stage:
    """Shared by all worlds of one exploration: the plan, how its conditions are evaluated, and the budget used so
    far."""

    def __init__(
        self, definition: Definition, given: bytes | None = None, children: Mapping[str, ChildEnds] | None = None
    ) -> None:
        self.children = children or {}
        definition, self.given = _with_plain_gates(_without_moments(without_jitter(definition))), given
        self.asking: World | None = None
        self.asked: list[FatePoint] = []
        self.work = 0
        self.plan: Plan = build_plan(
            definition,
            WalkedCompiler(self),
            definition_id=1,
            digest=digest_of(encode_definition(definition)),
            queues=range(1, len(queue_specs(definition)) + 1),
        )
        elements = [
            segment.element(index)
            for segment in self.plan.segments
            for index in range(segment.width if cases_of(definition_of(self.plan, segment)) else WALKED)
        ]
        self.outputs: dict[int, bytes | None] = dict.fromkeys((*range(self.plan.size), *elements))
        unstated, harmless = unstated_writes(definition), {Effect.READ, Effect.UNKNOWN}

        def acts(planned: PlannedStep) -> bool:
            """Whether a step may leave an effect; the owner of elements leaves none itself."""
            one = planned.definition
            if planned.kind.starts_child and not self.ends_of(planned).has_effects:
                return False
            is_unstated = one.effect is Effect.UNKNOWN and one.name in unstated
            return planned.segment is None and (one.effect not in harmless or one.undo is not None or is_unstated)

        self.effects = frozenset(no for no in (*range(self.plan.size), *elements) if acts(self.plan.at(no)))

    def ends_of(self, planned: PlannedStep) -> ChildEnds:
        """How the child of this step may end, as far as its workflow is known."""
        return self.children.get(child_key(planned), UNKNOWN)

    def fate(self, place: FatePoint) -> Fate:
        """What the path that asks has here; it goes well where none does."""
        return Fate.GOES_WELL if self.asking is None else self.asking.fate(place)


class WalkedCompiler(Compiler):
    """Compiles what a walk needs: a path answers conditions that it does not know, and policies are not simulated."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def condition(self, text: str, definition: Definition) -> Answered:
        return Answered(compile_condition(text, definition), text, self._stage)

    def grower(self, step: StepDefinition, definition: Definition) -> WalkedGrowth | WalkedChoice:
        if not (cases := cases_of(step)):
            return WalkedGrowth(step)
        tests = [None if one.when is None else compile_condition(one.when, definition) for one in cases]
        return WalkedChoice(step.name, tests, self._stage)

    def policies(self, definition: Definition) -> tuple[Policy, ...]:
        return ()


def cases_of(step: StepDefinition) -> tuple[Case, ...]:
    """The cases of a step that chooses; nothing for any other."""
    return step.growth.cases if isinstance(step.growth, Switch) else ()


def definition_of(plan: Plan, segment: Segment) -> StepDefinition:
    return plan.steps[segment.owner].definition


class WalkedGrowth:
    """The elements of a map or a loop as a simulated run has them: a few, because no list and no output is known."""

    reads: frozenset[str] = frozenset()
    reads_input = False

    def __init__(self, step: StepDefinition) -> None:
        growth = step.growth
        assert growth is not UNSET
        self._count = min(WALKED, growth.max)
        self._is_until = isinstance(growth, Loop) and growth.until is not None

    def items(self, view: ConditionView) -> tuple[int, bytes]:
        return self._count, b"[]"

    def goes_on(self, view: ConditionView) -> bool:
        return (view.index or 0) + self._is_until < self._count

    def chosen(self, view: ConditionView) -> int | None:
        raise InvariantBroken("only a choice has cases")

    def join(self, outputs: Sequence[bytes | None]) -> bytes:
        return b"[]"

    def join_added(self, own: bytes | None, added: Sequence[tuple[str, bytes | None]]) -> bytes:
        return b"{}"


class WalkedChoice(WalkedGrowth):
    """The cases of a choice. Conditions that need no outputs are evaluated; otherwise the path says which case it
    takes, and the first one is taken where it says nothing."""

    def __init__(self, name: str, tests: Sequence[CompiledCondition | None], stage: Stage) -> None:
        self._name, self._tests, self._stage = name, tests, stage
        written = [test for test in tests if test is not None]
        self.reads = frozenset[str]().union(*(test.reads for test in written))
        self.reads_input = any(test.reads_input for test in written)
        self._is_open = bool(self.reads) or (self.reads_input and stage.given is None)

    def chosen(self, view: ConditionView) -> int | None:
        if not self._is_open:
            return next((place for place, test in enumerate(self._tests) if test is None or test.holds(view)), None)
        whole = FatePoint(Part.CHOICE, self._name)
        self._stage.asked.append(whole)
        match self._stage.fate(whole):
            case Fate.IS_BROKEN:
                raise ExpressionError("the path says so")
            case Fate.IS_FALSE:
                return None
        numbers = range(1, len(self._tests))
        taken = (one for one in numbers if self._stage.fate(case_place(self._name, one)) is Fate.IS_TAKEN)
        return next(taken, 0)


class Answered:
    """A condition of the plan. One that needs no outputs is evaluated; the others follow the path."""

    def __init__(self, condition: CompiledCondition, text: str, stage: Stage) -> None:
        self._condition, self._text, self._stage = condition, text, stage
        self.reads, self.reads_input = condition.reads, condition.reads_input
        self._open = "output" in text or (condition.reads_input and stage.given is None)

    def holds(self, view: ConditionView) -> bool:
        stage = self._stage
        if not self._open:
            return self._condition.holds(view)
        place = FatePoint(Part.CONDITION, self._text)
        stage.asked.append(place)
        fate = stage.fate(place)
        if fate is Fate.IS_BROKEN:
            raise ExpressionError("what it reads is not there")
        return fate is not Fate.IS_FALSE


class World:
    """The run as it stands on one path. `live` has the rows that are neither pending nor terminal."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.now = 0
        self.run = Run(tenant=TENANT, id=RUN_ID, definition_id=1)
        self.rows: dict[int, Step] = {}
        self.live: dict[int, Step] = {}
        self.ready: dict[int, None] = {}
        self.fresh: list[int] = []
        self.done: frozenset[int] = frozenset()
        self.unsure: frozenset[int] = frozenset()
        self.fates: dict[FatePoint, Fate] = {}
        self.deviations: tuple[Deviation, ...] = ()
        self.seen: frozenset[RunState] = frozenset()
        self.slow = False
        self.events = 0

    @staticmethod
    def born(stage: Stage) -> World:
        world = World(stage)
        decision = create_run(
            stage.plan,
            run_id=RUN_ID,
            priority=0,
            business_key=None,
            given=stage.given or b"{}",
            caller=Caller(TENANT, "simulate"),
            now=world.now,
            start=False,
        )
        world.apply(decision)
        return world

    def fork(self) -> World:
        twin = World(self.stage)
        twin.now, twin.run, twin.events, twin.slow = self.now, self.run, self.events, self.slow
        twin.rows, twin.live, twin.ready = dict(self.rows), dict(self.live), dict(self.ready)
        twin.fresh, twin.fates = list(self.fresh), dict(self.fates)
        twin.done, twin.unsure, twin.deviations = self.done, self.unsure, self.deviations
        twin.seen = self.seen
        return twin

    def deviate(self, what: Deviation) -> World:
        """Choose another fate from now on."""
        self.fates[what.place] = what.fate
        self.deviations = (*self.deviations, what)
        return self

    # -- looking -----------------------------------------------------------------------------------------------------
    @property
    def over(self) -> bool:
        return self.run.state in RUN_TERMINAL

    def fate(self, place: FatePoint) -> Fate:
        return self.fates.get(place, Fate.GOES_WELL)

    def name(self, no: int) -> str:
        return self.stage.plan.at(no).name

    # -- changing ----------------------------------------------------------------------------------------------------
    def decide(self, event: Event) -> Decision:
        """The kernel's decision on this event, before it is applied."""
        stage = self.stage
        stage.asking = self
        stage.asked.clear()
        snapshot = Snapshot(
            plan=stage.plan,
            run=self.run,
            steps=self.rows,
            whole=True,
            waiting=True,
            inbox=(),
            outputs=stage.outputs,
            input=stage.given or b"{}",
            authorities=OnlyVouched(),
            involved=Involved(frozenset()),
        )
        decision = decide(snapshot, (event,), self.now)
        if not isinstance(decision, Decision):
            raise InvariantBroken(f"the kernel wants more than everything: {decision}")
        (reply,) = decision.replies
        if isinstance(reply, Refused):
            raise InvariantBroken(f"a simulated event was refused: {reply}")
        return decision

    def apply(self, decision: Decision) -> None:
        self.run = decision.run
        self.events += 1
        self.stage.work += 16 + len(decision.changed) + len(decision.added)
        for row in (*decision.changed, *decision.added):
            self._put(row)
        for attempt in decision.attempts:
            if attempt.state is AttemptState.SUCCEEDED:
                self.done |= {attempt.no} & self.stage.effects
            elif attempt.state in UNSURE:
                self.unsure |= {attempt.no} & self.stage.effects
        for row in decision.changed if self.stage.plan.children else ():
            # A child has its effect when it succeeds; no attempt of its step tells.
            if self.stage.plan.of(row).kind.starts_child and row.no in self.stage.effects:
                if row.state is StepState.SUCCEEDED:
                    self.done |= {row.no}
                elif row.state in STEP_TERMINAL and is_in_doubt(row.error):
                    self.unsure |= {row.no}
                elif row.state in STEP_TERMINAL and leaves_effect(row.error):
                    self.done |= {row.no}

    def _put(self, row: Step) -> None:
        no = row.no
        before = self.live.pop(no, None)
        self.ready.pop(no, None)
        self.rows[no] = row
        if row.state is StepState.PENDING or row.state in STEP_TERMINAL:
            return
        self.live[no] = row
        if row.ready_at is not None:
            self.ready[no] = None
        elif before is None or before.state is not row.state:
            self.fresh.append(no)

    def renew(self, lease: int, only: int | str | None = None) -> None:
        """Renew the leases of attempts in flight (or of `only` this one), as workers do all the time."""
        for no, row in list(self.live.items()):
            if row.worker is not None and only in (None, no):
                self.rows[no] = self.live[no] = replace(row, due_at=self.now + lease)
