"""What a retry, rerun or fork would do: what is adopted, what runs again and under which keys, what may happen twice.

It prepares the continuation as `going_on` does, and writes nothing. The engine and the command line call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from stepkeep.kernel.composition.adoption import Choice, Why
from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.composition.kept_calls import FlowCourse
from stepkeep.kernel.definition import Effect
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.continuation.adopting import refuse_second_owner
from stepkeep.operations.continuation.going_on import ContinuationOptions, PreparedContinuation, prepare
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor

SAYS: Mapping[Why, str] = {
    Why.SUCCEEDED: "it succeeded",
    Why.SKIPPED: "it was skipped",
    Why.CHOSEN: "it is the step to go on from",
    Why.FOLLOWS: "a step that it depends on runs again",
    Why.NOT_FINISHED: "it did not finish",
    Why.UNDONE: "it was undone, or its undo began",
    Why.INPUT_DIFFERS: "the input differs, and people, a policy or a condition decide about it or below it",
    Why.INFORMS: "the input differs, and what it says is shown to people, or decides whether they are asked",
    Why.ELEMENTS: "its elements had effects, which only their own run can undo",
    Why.IN_DOUBT: "it was skipped, and may have had its effect",
    Why.OWN_DECISION: "you decided about it, or below it, in the earlier run, and would now ask for it",
    Why.PLAN_DIFFERS: "its approval covers the steps behind it, and the other version changes them",
    Why.ADDED: "the other version adds it",
}

ASKS_ANEW = (Why.INPUT_DIFFERS, Why.OWN_DECISION, Why.PLAN_DIFFERS)
"""Why people are asked once more about a step that they decided."""


class StepFate(Answer, kw_only=True):
    """What would become of a step."""

    step: str
    adopted: bool
    reason: Why
    says: str
    was: Annotated[StepState | None, says("Its state in the earlier run; null where that has no such step.")]
    effect: Effect
    undo: bool
    may_repeat: Annotated[bool, says("Its effect happened, or may have happened, and it would run again.")]


class CallFate(Answer, kw_only=True):
    """What would become of a call that is not adopted."""

    step: str
    call: Annotated[str, says("What it calls.")]
    reason: Why
    says: str
    was: StepState
    may_repeat: Annotated[bool, says("Its effect happened, or may have happened, and it may be made again.")]
    key: Annotated[
        str | None,
        says("The idempotency key that it keeps if the flow makes it again with equal arguments; null: a new one."),
    ]


class CallsFate(Answer, kw_only=True):
    """What would become of the calls of a flow."""

    flow: str
    adopted: Annotated[int, says("How many calls it is given as they ended.")]
    again: Annotated[list[CallFate], says("The other calls, which it makes again if it still does.")]


class ContinuationPreview(Answer, rename={"as_": "as", "from_": "from"}, kw_only=True):
    """What a new run would adopt and run again."""

    run_id: str
    as_: ContinuationKind
    from_: str | None
    version: int
    adopted: list[str]
    runs_again: list[str]
    reopens: Annotated[list[str], says("Steps that people decided about, and are asked about anew.")]
    may_repeat: list[str]
    owns_undo: Annotated[list[str], says("Adopted steps that the new run would undo in a rollback.")]
    calls: Annotated[list[CallsFate], says("The calls of each flow that runs again and keeps some of them.")]
    continued_by: Annotated[list[str], says("Runs that repeat or continue this one already, newest first.")]
    child_of: Annotated[str | None, says("The parent of the run, which does not wait for the new run.")]
    steps: list[StepFate]


async def preview(
    transactor: Transactor, run_id: str, wanted: ContinuationOptions, *, caller: Caller
) -> ContinuationPreview:
    """What would run again, what would be adopted, and which effects may happen twice. It writes nothing."""
    found = await prepare(transactor, run_id, wanted, caller=caller)
    if wanted.how is ContinuationKind.RETRY:
        # The start itself asks in its transaction, after it has looked for the idempotency key.
        sources = sorted({one.run for _, _, one in found.continuation.in_order()})
        refuse_second_owner(
            found.continuation, caller.tenant, await transactor.store.read_adoptions(caller.tenant, sources)
        )
    old = await plan_for(transactor, found.whole.record.run)
    rows = {step.no: step for step in found.whole.steps}
    steps = [_step_fate(choice, old, rows, found.plan) for choice in found.choices]
    flows = {old.steps[course.owner].name for course in found.courses}
    return ContinuationPreview(
        run_id=run_id,
        as_=wanted.how,
        from_=wanted.start,
        version=found.plan.definition.version,
        adopted=[one.step for one in steps if one.adopted],
        runs_again=[one.step for one in steps if not one.adopted],
        reopens=[one.step for one in steps if one.reason in ASKS_ANEW and one.was is StepState.SUCCEEDED],
        may_repeat=[one.step for one in steps if one.may_repeat and one.step not in flows]
        + [one.choice.name for course in found.courses for one in course.again if one.choice.may_repeat],
        owns_undo=_undone_by(found, old, steps),
        calls=[_calls_fate(found.old, course) for course in found.courses],
        continued_by=await transactor.store.find_reruns(caller.tenant, run_id),
        child_of=await _parent_of(transactor, caller.tenant, run_id),
        steps=steps,
    )


async def _parent_of(transactor: Transactor, tenant: str, run_id: str) -> str | None:
    """The run that started this one as its child. It does not wait for a run that goes on with it."""
    link = await transactor.store.children.read_link(tenant, run_id) if is_child(run_id) else None
    return None if link is None else link.run_id


def _undone_by(found: PreparedContinuation, old: Plan, steps: Sequence[StepFate]) -> list[str]:
    """The adopted steps and calls that a rollback of the new run would undo."""
    if not found.continuation.how.owns_undo:
        return []
    calls = [row for course in found.courses for row in course.adopted if row.state is StepState.SUCCEEDED]
    own = [old.at(row.no).name for row in calls if old.of(row).definition.undo is not None]
    return [one.step for one in steps if one.adopted and one.undo] + own


def _calls_fate(plan: Plan, course: FlowCourse) -> CallsFate:
    return CallsFate(
        flow=plan.steps[course.owner].name,
        adopted=len(course.adopted),
        again=[
            CallFate(
                step=one.choice.name,
                call=one.row.note.call.name if one.row.note and one.row.note.call else "",
                reason=one.choice.why,
                says=_reason(one.choice),
                was=one.row.state,
                may_repeat=one.choice.may_repeat,
                key=None if one.kept is None else f"{one.kept.run}:{one.choice.name}",
            )
            for one in course.again
        ],
    )


def _reason(choice: Choice) -> str:
    return SAYS[choice.why] + (f" ({choice.of})" if choice.of else "")


def _step_fate(choice: Choice, old: Plan, rows: Mapping[int, Step], new: Plan) -> StepFate:
    definition = new.steps[new.numbers[choice.name]].definition
    no = old.number(choice.name)
    return StepFate(
        step=choice.name,
        adopted=choice.adopted,
        reason=choice.why,
        says=_reason(choice),
        was=None if no is None else rows[no].state,
        effect=definition.effect,
        undo=definition.undo is not None,
        may_repeat=choice.may_repeat,
    )
