"""Adoption: a new run takes the finished steps of an earlier one instead of running them again.

`choose` says which steps are taken and why the others run again; `adopt_all` adds their rows to the new run. It reads
no store. `operations/continuation/going_on.py` chooses and previews, `create.py` adopts, `progress.py` goes on from
there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from stepkeep.edges.names import same_names
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.composition.versions import changed_behind
from stepkeep.kernel.decide.compensation import UndoPlan, has_child, may_remain, undo_plan
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.failure import Settled
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.decide.stopping import CHILD_ENDED, may_have_run
from stepkeep.kernel.definition import CompensateWhen, Completion, Covers, Effect, templates_of
from stepkeep.kernel.machine.rows import Adopted, Note, Persons, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.people.persons import persons_of, rows_below
from stepkeep.kernel.plan import Plan, PlannedStep


class Why(StrEnum):
    """Why a step is adopted, or runs again."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    CHOSEN = "chosen"
    """It is the named step."""
    FOLLOWS = "follows"
    """A step that it depends on runs again."""
    NOT_FINISHED = "not_finished"
    """It failed, was cancelled, or did not begin."""
    UNDONE = "undone"
    """The earlier run undid it, or began to."""
    INPUT_DIFFERS = "input_differs"
    """The input is another one, and people, a policy or a condition decide about it or below it."""
    INFORMS = "informs"
    """The input is another one, and a step that depends on it runs again for that reason: it would show what was."""
    OWN_DECISION = "own_decision"
    """The person that asks for the new run decided about it or below it, and may not do both."""
    PLAN_DIFFERS = "plan_differs"
    """Its approval covers the steps behind it, and the other version has others."""
    ELEMENTS = "elements"
    """Its elements have an undo, or it was skipped after some had effects. Only the run that has their rows can undo
    them, and the new run would be responsible."""
    IN_DOUBT = "in_doubt"
    """It was skipped, and may have had its effect. The new run would be responsible, and could not tell."""
    ADDED = "added"
    """The newer version adds it."""


ADOPTING = frozenset({Why.SUCCEEDED, Why.SKIPPED})


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one step. `of` is the step that it follows; `may_repeat`: its effect happened, or may have
    happened, and it runs again."""

    name: str
    why: Why
    of: str | None = None
    may_repeat: bool = False

    @property
    def adopted(self) -> bool:
        return self.why in ADOPTING


class ContinuationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for: how to go on, from which step, whether the input is the same, and who asks. `call` is the
    number of a call of the flow `start`, if it is the place to go on from."""

    how: ContinuationKind
    start: str | None = None
    call: int | None = None
    same_input: bool = True
    actor: str = ""


def choose(
    old: Plan,
    rows: Mapping[int, Step],
    new: Plan,
    asked: ContinuationRequest,
    undone: Collection[str] = (),
    live: Policy | None = None,
) -> list[Choice]:
    """What becomes of each step of the new plan, in its order. A step is adopted only with all that it depends on.

    `undone` are steps that another run has undone, which took over their undo. `live` is the policy of the tenant.
    """
    found: dict[str, Choice] = {}
    replanned = frozenset() if old is new else changed_behind(old.definition, new.definition)
    anew = {} if asked.same_input else _asked_anew(new, live)
    for no in _by_dependency(new):
        planned = new.steps[no]
        found[planned.name] = _choice(old, rows, planned, asked, undone, found, replanned, anew.get(planned.name))
    return [found[planned.name] for planned in new.steps]


def _asked_anew(plan: Plan, live: Policy | None) -> dict[str, Why]:
    """The steps that another input concerns: those about which or below which people or a policy may decide, and all
    that those depend on.

    Whether people are asked, and what they are shown, comes of the input: by a condition, a case, the code of a flow or
    the result of an earlier step. All of it is found out anew, also where nobody was asked before.
    """
    found: dict[str, Why] = {}
    policies = [one for one in (*plan.policies, live) if one is not None]
    for no in reversed([*_by_dependency(plan)]):
        step = plan.steps[no].definition
        if _may_ask(plan.steps[no]) or any("input" in one.reads(plan.definition.name, step.name) for one in policies):
            found[step.name] = Why.INPUT_DIFFERS
        if step.name in found:
            found |= {edge.step: Why.INFORMS for edge in step.depends_on}
    return found


def _may_ask(planned: PlannedStep) -> bool:
    """Whether people may decide about a step or below it: at a gate, by hand, in a child, or in added steps."""
    steps = (planned.definition, *templates_of(planned.definition))
    asks = [one.approval or one.hold or one.child or one.completion is Completion.MANUAL for one in steps]
    return planned.kind.grows_by_report or any(asks)


def _by_dependency(plan: Plan) -> Iterator[int]:
    """Every step after those that it depends on."""
    unmet = {planned.no: planned.unmet for planned in plan.steps}
    queue = [planned.no for planned in plan.steps if not planned.unmet]
    for no in queue:  # grows during the loop
        yield no
        for follower, _ in plan.steps[no].dependents:
            unmet[follower] -= 1
            if not unmet[follower]:
                queue.append(follower)


def _choice(
    old: Plan,
    rows: Mapping[int, Step],
    planned: PlannedStep,
    asked: ContinuationRequest,
    undone: Collection[str],
    found: Mapping[str, Choice],
    replanned: Collection[str],
    anew: Why | None,
) -> Choice:
    name, no = planned.name, old.number(planned.name)
    if no is None:
        return Choice(name=name, why=Why.ADDED)
    row = rows[no]
    undo = rows.get(no + old.size)
    owns = old.steps[no].segment is not None
    repeats = _have_effects(old, rows, no) if owns else had_effect(row, old.steps[no]) and not is_undone(undo)
    repeats = repeats and name not in undone

    def again(why: Why, of: str | None = None) -> Choice:
        return Choice(name=name, why=why, of=of, may_repeat=repeats)

    if name == asked.start:
        return again(Why.CHOSEN)
    for edge in planned.definition.depends_on:
        if not found[edge.step].adopted:
            return again(Why.FOLLOWS, edge.step)
    if row.state not in (StepState.SUCCEEDED, StepState.SKIPPED):
        return again(Why.NOT_FINISHED)
    if name in undone or (undo is not None and has_begun(undo)) or _are_undone(old, rows, no):
        return again(Why.UNDONE)
    if (reason := decided_anew(old, rows, no, asked, name in replanned)) is not None:
        return again(reason)
    if anew is not None:
        return again(anew)
    if asked.how.owns_undo and owns and repeats and (row.state is StepState.SKIPPED or _left(old, rows, no).undone):
        return again(Why.ELEMENTS)
    if asked.how.owns_undo and row.state is StepState.SKIPPED and _may_have_left(row, old.steps[no]):
        return again(Why.IN_DOUBT)
    return Choice(name=name, why=Why.SUCCEEDED if row.state is StepState.SUCCEEDED else Why.SKIPPED)


def decided_anew(
    old: Plan, rows: Mapping[int, Step], no: int, asked: ContinuationRequest, replanned: bool
) -> Why | None:
    """Why people, or a condition, must decide about a finished step, or below it, once more."""
    row, planned, persons = rows[no], old.of(rows[no]), persons_of(old, rows, no, {})
    family = [(one, old.of(one)) for one in (row, *rows_below(old, rows, no))]
    gates = [(one, its) for one, its in family if _is_gate(one, its)]
    skips = row.state is StepState.SKIPPED
    if skips and _is_gate(row, planned):
        return Why.NOT_FINISHED
    if persons.many or same_names([asked.actor], (*persons.decided, *persons.completed)):
        return Why.OWN_DECISION
    carriers = [one.note or Note() for one, its in family if _carries(one, its)]
    covers = [one.note.terms if one.note and one.note.terms else its.gate for one, its in gates]
    is_covered = any(one is None or one.covers is not Covers.SHOWN for one in covers)
    if replanned and (is_covered or any(note.persons and _is_decided(note.persons) for note in carriers)):
        return Why.PLAN_DIFFERS
    # A child that ended, or a step that was adopted, before persons were carried may have been decided, too.
    is_decided = bool(gates) or _is_decided(persons) or any(note.persons is None for note in carriers)
    reads = skips and planned.condition is not None and planned.condition.reads_input
    return Why.INPUT_DIFFERS if not asked.same_input and (is_decided or reads) else None


def _is_gate(row: Step, planned: PlannedStep) -> bool:
    """Whether people decide about this step itself, or did."""
    note = row.note or Note()
    return planned.gate is not None or note.held or note.permit is not None or bool(note.deciders)


def _carries(row: Step, planned: PlannedStep) -> bool:
    """Whether what stands below this step is in another run: a child, or the elements of an adopted step."""
    note = row.note or Note()
    return note.child is not None or (note.adopted is not None and planned.segment is not None)


def _is_decided(persons: Persons) -> bool:
    return bool(persons.decided or persons.completed or persons.shown)


def had_effect(row: Step, planned: PlannedStep) -> bool:
    """Whether the earlier run did something by this step that is more than reading, or may have: by an attempt, or by a
    child that succeeded, or that did not tell that nothing remains of it."""
    by_child = has_child(row) and not (row.error or "").startswith(CHILD_ENDED)
    happened = row.state is StepState.SUCCEEDED or may_have_run(row) or by_child
    return happened and _acts(planned)


def _acts(planned: PlannedStep) -> bool:
    return planned.definition.undo is not None or planned.definition.effect is not Effect.READ


def _may_have_left(row: Step, planned: PlannedStep) -> bool:
    """Whether a rollback of the earlier run would undo a step that did not succeed, or would be partial beside it."""
    definition = planned.definition
    attempted = definition.undo is not None and definition.compensate_when is CompensateWhen.ATTEMPTED
    return _acts(planned) and (may_remain(row) or (attempted and may_have_run(row)))


def _have_effects(plan: Plan, rows: Mapping[int, Step], owner: int) -> bool:
    """Whether elements of this owner did something, or may have, that was not undone."""
    # The definition does not know the calls of a flow and added steps: their rows have their templates.
    return any(
        had_effect(row, plan.of(row)) and not is_undone(rows.get(plan.undo_no(row.no)))
        for row in _elements(plan, rows, owner)
    )


def remains_of(plan: Plan, rows: Mapping[int, Step], no: int) -> str | None:
    """Why something remains of the elements of an adopted step, whose rows the new run has not, or of an adopted call
    that failed: the new run is told so."""
    if no < plan.size:
        left = _left(plan, rows, no).remains
    else:
        left = undo_plan(plan, [rows[no]]).remains if rows[no].state is StepState.SKIPPED else ()
    return left[0][1].value if left else None


def _left(plan: Plan, rows: Mapping[int, Step], owner: int) -> UndoPlan:
    """What a rollback would undo of the elements of a step, and what would remain of them."""
    return undo_plan(plan, _elements(plan, rows, owner))


def _elements(plan: Plan, rows: Mapping[int, Step], owner: int) -> list[Step]:
    """The rows of the elements of a step, by number; none for a step without elements."""
    segment = plan.steps[owner].segment
    if segment is None:
        return []
    return [rows[no] for no in sorted(rows) if segment.first <= no < segment.first + segment.width]


def _are_undone(plan: Plan, rows: Mapping[int, Step], owner: int) -> bool:
    """Whether the undo of any element of this owner was tried; False for a step without elements."""
    segment = plan.steps[owner].segment
    if segment is None:
        return False
    undos = range(segment.first + segment.width, segment.first + 2 * segment.width)
    return any(no in undos and has_begun(row) for no, row in rows.items())


def has_begun(undo: Step) -> bool:
    """Whether an undo step was tried: a worker claimed it, or it asked for the rollback of a child."""
    return undo.fence > 0 or (undo.note is not None and undo.note.activation is not None)


def is_undone(undo: Step | None) -> bool:
    return undo is not None and undo.state is StepState.SUCCEEDED


def is_adopted(step: Step) -> bool:
    """Whether this step takes the result of an earlier run."""
    return step.note is not None and step.note.adopted is not None


def adopt_all(draft: Draft, continuation: Continuation, plan: Plan, priority: int) -> None:
    """Add the rows of the adopted steps, in the order of their completion, and the checkpoints of flows that go on."""
    run = draft.snapshot.run
    for no, recorded in continuation.checkpoints.items():
        for one in recorded:
            draft.rows.add(replace(one, run_id=run.id, no=no, seq=draft.seq, at=draft.now))
    for no, note, reference in continuation.in_order():
        trigger = StepTrigger.ADOPTED_SKIPPED if reference.skipped else StepTrigger.ADOPTED
        category, error = continuation.failures.get(no, (None, None))
        row = Step(
            tenant=run.tenant,
            run_id=run.id,
            no=no,
            queue=plan.at(no).queue,
            priority=priority,
            category=category,
            error=error,
            note=note,
        )
        draft.add_settled(row, trigger, reference.digest)


def adopted_steps(draft: Draft) -> list[Settled]:
    """The main steps that the run adopted, in the order of their completion."""
    main = (step for step in draft.every_step() if step.no < draft.plan.size)
    taken = sorted((step.settled or 0, step.no, step.state) for step in main if is_adopted(step))
    return [Settled(no, state) for _, no, state in taken]


def reference_to(run_id: str, step: str, row: Step, place: int, owned: bool) -> Adopted:
    """The reference to a finished step; what the earlier run adopted itself keeps the run that executed it."""
    before = None if row.note is None else row.note.adopted
    if before is not None:
        # What remains is said by the run that is responsible, as is an undo.
        return replace(before, place=place, owned=owned and before.owned, remains=before.remains if owned else None)
    fence = row.fence if row.note is None or row.note.checked is None else row.note.checked
    return Adopted(
        run=run_id,
        step=step,
        place=place,
        fence=fence,
        skipped=row.state is StepState.SKIPPED,
        owned=owned and row.state is StepState.SUCCEEDED,
    )
