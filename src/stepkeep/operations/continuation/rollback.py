"""What a cancel with compensation would undo, in words: the kernel's own decision on each run of the tree.

It reads and changes nothing. Engines, the command line and the service call it.
"""

from __future__ import annotations

from typing import Annotated, Any

from stepkeep.kernel.decide.compensation import Remains, undo_plan
from stepkeep.kernel.decide.decision import Need, Snapshot
from stepkeep.kernel.decide.preview import Preview, preview_rollback
from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import Rollback, RunState, StepState
from stepkeep.kernel.plan import Plan
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.views import read_snapshot
from stepkeep.store.records import WholeRun

WHY: dict[Remains, str] = {
    Remains.NO_UNDO: "it succeeded, and its definition has no undo",
    Remains.NOT_FINISHED: "its handler completed and its rules did not pass, so that its undo does not apply",
    Remains.ATTEMPTED: "nothing tells how its last attempt ended, and its undo applies to success only",
    Remains.CHILD: "its child had not ended, or ended without success and left something of what it had done",
}


class Undo(Answer, kw_only=True):
    """A step that would be undone."""

    position: Annotated[int, says("Its place in the order, counted from 1.")]
    step: str
    undo: Annotated[str, says("The step that undoes it.")]
    run_id: Annotated[str, says("The run of the tree that the step belongs to.")]
    level: Annotated[int, says("How far below the run that was asked about: 0 is that run itself.")]


class Remaining(Answer, kw_only=True):
    """A step whose effect would remain."""

    step: str
    state: StepState
    reason: Remains
    says: str
    run_id: str
    level: int


class RunningStep(Answer, kw_only=True):
    """A step with an attempt or a child in flight, and what becomes of it."""

    step: str
    says: str
    run_id: str
    level: int


class RollbackPreview(Answer, kw_only=True):
    """What a cancel with `compensate` would do now, if every undo succeeds and what runs is cut off."""

    run_id: str
    state: RunState
    possible: bool
    refusal: Annotated[str | None, says("Why the run cannot be cancelled.")]
    ends: Annotated[RunState, says("The state in which the run would end.")]
    rollback: Rollback
    undo: list[Undo]
    cannot_undo: list[Remaining]
    running: list[RunningStep]


async def rollback_preview(transactor: Transactor, run_id: str, *, tenant: str) -> RollbackPreview:
    """What would be undone now in the whole tree, in which order, and what cannot be undone and why."""
    whole = await read_snapshot(transactor, run_id, tenant=tenant)
    tree = _Tree(transactor, tenant, await transactor.store.now())
    found = await tree.add_run(whole, 0)
    ends, rollback, refusal = found.ends, found.rollback, found.refusal
    if refusal is None and whole.record.run.state is RunState.CANCELLED:
        # A cancel of it is repeated without harm, and undoes nothing.
        refusal = f"run {run_id} is cancelled already; what it left is not undone any more. Start a new run instead."
    if refusal is None:
        is_partial = bool(tree.remains)
        if found.undone:
            ends = RunState.FAILED if is_partial else RunState.ROLLED_BACK
        whole_one = Rollback.COMPLETE if found.undone else Rollback.NONE
        rollback = Rollback.PARTIAL if is_partial else whole_one
    return RollbackPreview(
        run_id=whole.record.run.id,
        state=whole.record.run.state,
        possible=refusal is None,
        refusal=refusal,
        ends=ends,
        rollback=rollback,
        undo=tree.undone,
        cannot_undo=tree.remains,
        running=tree.running,
    )


class _Tree:
    """The undo steps of a run and of the runs below it, in the order in which they would run."""

    def __init__(self, transactor: Transactor, tenant: str, now: int) -> None:
        self._transactor, self._tenant, self._now = transactor, tenant, now
        self.undone: list[Undo] = []
        self.remains: list[Remaining] = []
        self.running: list[RunningStep] = []

    async def add_run(self, whole: WholeRun, level: int) -> Preview:
        """Add a run that goes on: its live children undo themselves before its own undo steps begin."""
        run = whole.record.run
        plan = await plan_for(self._transactor, run)
        steps = {step.no: step for step in whole.steps}
        snapshot = Snapshot(plan=plan, run=run, steps=steps, whole=True, waiting=True)
        found = preview_rollback(snapshot, self._now)
        if isinstance(found, Need):
            raise InvariantBroken(f"the rollback of run {run.id} cannot be decided from its steps: {found}")
        if found.refusal is not None:
            return found
        place: dict[str, Any] = {"run_id": run.id, "level": level}
        waiting = [step for step in whole.steps if step.state is StepState.AWAITING_CHILDREN]
        awaited = [step for step in waiting if plan.of(step).kind.starts_child]
        for step in awaited:
            self.running.append(RunningStep(step=plan.at(step.no).name, says=CALLED_BACK, **place))
            await self._add_below(_child_of(step), level + 1)
        self.running += [
            RunningStep(step=plan.at(no).name, says=_running(plan, found, no), **place) for no in found.running
        ]
        for no in found.undone:
            await self._add_hook(plan, steps, no, place)
        self._add_remains(plan, steps, [(no, why) for no, why in found.remains if steps[no] not in awaited], place)
        return found

    async def _add_finished(self, whole: WholeRun, level: int) -> None:
        """Add a child that has succeeded: another run undoes what it did."""
        run = whole.record.run
        plan, steps = await plan_for(self._transactor, run), {step.no: step for step in whole.steps}
        place: dict[str, Any] = {"run_id": run.id, "level": level}
        found = undo_plan(plan, whole.steps)
        for step in found.undone:
            await self._add_hook(plan, steps, step.no, place)
        self._add_remains(plan, steps, [(step.no, why) for step, why in found.remains], place)

    async def _add_hook(self, plan: Plan, steps: dict[int, Step], no: int, place: dict[str, Any]) -> None:
        undo = plan.at(plan.undo_no(no))
        position = len(self.undone) + 1
        self.undone.append(Undo(position=position, step=plan.at(no).name, undo=undo.name, **place))
        if undo.kind.undoes_child:
            below = place["level"] + 1
            if not await self._add_below(_child_of(steps.get(undo.no)), below):
                await self._add_below(_child_of(steps[no]), below)

    def _add_remains(
        self, plan: Plan, steps: dict[int, Step], found: list[tuple[int, Remains]], place: dict[str, Any]
    ) -> None:
        self.remains += [
            Remaining(step=plan.at(no).name, state=steps[no].state, reason=why, says=WHY[why], **place)
            for no, why in found
        ]

    async def _add_below(self, child: str | None, level: int) -> bool:
        """Add a child, if it was started. One that undid itself has nothing to undo."""
        found = await self._transactor.store.read_run(self._tenant, child) if child is not None else None
        if found is None or child is None:
            return False
        whole = await read_snapshot(self._transactor, child, tenant=self._tenant)
        if whole.record.run.state is RunState.SUCCEEDED:
            await self._add_finished(whole, level)
        else:
            await self.add_run(whole, level)
        return True


def _child_of(step: Step | None) -> str | None:
    return None if step is None or step.note is None else step.note.child


CALLED_BACK = (
    "its child is called back and undoes itself; if that takes longer than the grace period, effects may remain"
)


def _running(plan: Plan, found: Preview, no: int) -> str:
    """What becomes of an attempt in flight."""
    has_undo = plan.at(no).definition.undo is not None
    cut_off = "it is undone" if no in found.undone else "its effect may remain"
    in_time = "it is undone first" if has_undo else "its effect remains"
    return f"if it succeeds within the grace period, {in_time}; if it is cut off, {cut_off}"
