"""The rollback of a finished child: a run that takes its finished steps by reference and undoes them.

A run that has ended never changes, so that its undo steps run in another one, a child of the parent's undo step. It is
created and stopped in one decision, and owns the undo of every step that has one. `children.py` starts it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from stepkeep.kernel.composition.adoption import reference_to
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.decide.compensation import undo_plan
from stepkeep.kernel.decide.decision import asked_names, requesters_of
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound, Refused
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.payloads import read_reference
from stepkeep.kernel.machine.rows import Child, Note, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.people.persons import carried, persons_of
from stepkeep.kernel.plan import Plan
from stepkeep.operations.continuation.adopting import refuse_second_owner
from stepkeep.operations.continuation.going_on import MAX_ADOPTED_BYTES, copies_of, output_of
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.start import StartRequest
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.views import read_snapshot
from stepkeep.store.records import WholeRun


async def rollback_request(transactor: Transactor, child: Child, actor: str) -> StartRequest:
    """The start of the run that rolls `child.undoes` back. Refused if another run undoes its steps."""
    if child.undoes is None:
        raise NotFound(f"run {child.run_id} does not tell which child it is to undo")
    whole = await read_snapshot(transactor, child.undoes, tenant=child.tenant)
    run, plan = whole.record.run, await plan_for(transactor, whole.record.run)
    if run.state not in RUN_TERMINAL:
        raise Conflict(f"run {run.id} is still {run.state}; only a finished run is rolled back")
    continuation, digests = await _continuation(transactor, whole, plan)
    rows = await transactor.store.read_adoptions(child.tenant, [run.id])
    try:
        refuse_second_owner(continuation, child.tenant, [row for row in rows if row.run_id != child.child_id])
    except Conflict as problem:
        raise Refused(str(problem)) from None
    details = await transactor.payloads.detail(whole.record.details)
    parent = await transactor.store.read_run(child.tenant, child.run_id)
    if parent is None:
        raise NotFound(f"there is no run {child.run_id}")
    return StartRequest(
        plan=plan,
        caller=Caller(child.tenant, actor),
        input=details.input,
        run_id=child.child_id,
        operation="child",
        correlation_id=details.correlation_id,
        priority=parent.run.priority,
        rerun_of=run.id,
        labels=details.labels,
        asked_before=requesters_of(details, parent.details.created_by, *asked_names(parent.details.asked_before)),
        continuation=continuation,
        adopted_payloads=await copies_of(transactor, digests, child.tenant, run.id, child.child_id),
    )


async def _continuation(transactor: Transactor, whole: WholeRun, plan: Plan) -> tuple[Continuation, tuple[str, ...]]:
    """The notes of the adopted steps, and the digests of outputs that are kept outside their rows.

    Every finished step is taken, because undo steps read outputs. Of elements only those are that left something.
    """
    run = whole.record.run
    involved = (await transactor.store.read_involved([(run.tenant, run.id)])).get((run.tenant, run.id))
    found = undo_plan(plan, whole.steps)
    undone, remains = {step.no for step in found.undone}, {step.no: why for step, why in found.remains}
    rows = sorted(_taken(plan, whole.steps, undone | remains.keys()), key=lambda row: row.settled or 0)
    executors = {} if involved is None else involved.executors
    every = {row.no: row for row in whole.steps}
    notes: dict[int, Note] = {}
    digests: dict[str, None] = {}
    size = 0
    for place, row in enumerate(rows):
        output, before = output_of(whole, row), row.note or Note()
        size += len(output or b"")
        if size > MAX_ADOPTED_BYTES:
            raise InvalidInput(f"the outputs of run {run.id} have more than {MAX_ADOPTED_BYTES} bytes to be adopted")
        reference = reference_to(run.id, plan.at(row.no).name, row, place, False)
        # What remains of elements that the child itself adopted stands at their owner, which has no effect of its own.
        is_owner = row.no < plan.size and plan.steps[row.no].segment is not None
        why = remains.get(row.no) if row.state is not StepState.SUCCEEDED or is_owner else None
        notes[row.no] = Note(
            output=None if output is None else output.decode(),
            record=before.record,
            deciders=before.deciders,
            child=before.child,
            persons=carried(persons_of(plan, every, row.no, executors)),
            call=before.call,
            adopted=replace(
                reference,
                digest=payload_digest(output) if before.adopted is None else reference.digest,
                skipped=row.state is not StepState.SUCCEEDED,
                owned=row.no in undone or (row.no in remains and why is None),
                remains=None if why is None else why.value,
            ),
        )
        kept = read_reference(output)
        if kept is not None and kept.kept == "rows":
            digests[kept.digest] = None
    return Continuation(how=ContinuationKind.ROLLBACK, run_id=run.id, notes=notes), tuple(digests)


def _taken(plan: Plan, rows: Iterable[Step], left: Collection[int]) -> list[Step]:
    """The rows to adopt: main steps that have ended well, and elements that left something."""
    ended = (StepState.SUCCEEDED, StepState.SKIPPED)
    return [row for row in rows if (row.no < plan.size and row.state in ended) or row.no in left]
