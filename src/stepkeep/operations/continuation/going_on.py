"""Goes on with a finished run in a new one: retry, rerun from a step, fork. Finished steps are adopted by reference.

It reads the earlier run, asks the kernel which steps are adopted and starts the new run. A preview does everything but
the start. Terminal runs never change, so that what is read here still holds when the new run starts. The engine, the
command line and the service call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from stepkeep.kernel.composition.adoption import (
    Choice,
    Continuation,
    ContinuationKind,
    ContinuationRequest,
    Why,
    choose,
    has_begun,
    reference_to,
    remains_of,
)
from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.composition.versions import obstacles
from stepkeep.kernel.decide.decision import requesters_of
from stepkeep.kernel.definition import Effect
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.payloads import read_reference
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.people.persons import carried, persons_of
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.continuation.adopting import refuse_second_owner
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.operations.people.live_policies import compiled
from stepkeep.operations.pipeline.plans import plan_for, plan_of
from stepkeep.operations.pipeline.start import Started, Starter, StartRequest
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.views import read_snapshot
from stepkeep.store.change import ANY_CALLER
from stepkeep.store.records import WholeRun
from stepkeep.store.rows import Payload

_canonical = msgspec.json.Encoder(order="sorted").encode

MAX_ADOPTED_BYTES = 64 * 1024 * 1024
"""How large the outputs of all adopted steps may be together."""

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


class ContinuationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks for. `given` is another input, as JSON; `version` another version of the workflow."""

    how: ContinuationKind
    start: str | None = None
    given: bytes | None = None
    version: int | None = None


class PreparedContinuation(msgspec.Struct, frozen=True, kw_only=True):
    """The earlier run with its plan, the plan of the new one, what becomes of its steps, and the outputs to copy."""

    whole: WholeRun
    old: Plan
    plan: Plan
    input: bytes
    choices: tuple[Choice, ...]
    continuation: Continuation
    references: tuple[str, ...]


async def continue_run(
    transactor: Transactor,
    starter: Starter,
    run_id: str,
    wanted: ContinuationOptions,
    *,
    caller: Caller,
    idempotency_key: str | None = None,
    scope: str = ANY_CALLER,
) -> Started:
    """Start a run that goes on with a finished one, and adopts what that one finished."""
    found = await prepare(transactor, run_id, wanted, caller=caller)
    request = await request_for(transactor, found, wanted, caller=caller)
    return await starter.start(replace(request, idempotency_key=idempotency_key, scope=scope))


async def request_for(
    transactor: Transactor, found: PreparedContinuation, wanted: ContinuationOptions, *, caller: Caller
) -> StartRequest:
    """The start of the new run."""
    details, run, new_id = found.whole.record.details, found.whole.record.run, str(uuid7())
    return StartRequest(
        plan=found.plan,
        names_version=wanted.version is not None,
        caller=caller,
        input=found.input,
        run_id=new_id,
        operation=str(wanted.how),
        business_key=None if wanted.how is ContinuationKind.FORK else details.business_key,
        correlation_id=details.correlation_id,
        priority=run.priority,
        rerun_of=run.id,
        labels=details.labels,
        asked_before=requesters_of(details),
        continuation=found.continuation,
        adopted_payloads=await copies_of(transactor, found.references, caller.tenant, run.id, new_id),
    )


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
    return ContinuationPreview(
        run_id=run_id,
        as_=wanted.how,
        from_=wanted.start,
        version=found.plan.definition.version,
        adopted=[one.step for one in steps if one.adopted],
        runs_again=[one.step for one in steps if not one.adopted],
        reopens=[one.step for one in steps if one.reason in ASKS_ANEW and one.was is StepState.SUCCEEDED],
        may_repeat=[one.step for one in steps if one.may_repeat],
        owns_undo=[one.step for one in steps if one.adopted and one.undo and wanted.how is ContinuationKind.RETRY],
        continued_by=await transactor.store.find_reruns(caller.tenant, run_id),
        child_of=await _parent_of(transactor, caller.tenant, run_id),
        steps=steps,
    )


async def _parent_of(transactor: Transactor, tenant: str, run_id: str) -> str | None:
    """The run that started this one as its child. It does not wait for a run that goes on with it."""
    link = await transactor.store.children.read_link(tenant, run_id) if is_child(run_id) else None
    return None if link is None else link.run_id


def _step_fate(choice: Choice, old: Plan, rows: Mapping[int, Step], new: Plan) -> StepFate:
    definition = new.steps[new.numbers[choice.name]].definition
    no = old.number(choice.name)
    return StepFate(
        step=choice.name,
        adopted=choice.adopted,
        reason=choice.why,
        says=SAYS[choice.why] + (f" ({choice.of})" if choice.of else ""),
        was=None if no is None else rows[no].state,
        effect=definition.effect,
        undo=definition.undo is not None,
        may_repeat=choice.may_repeat,
    )


def _check_start(plan: Plan, start: str) -> None:
    """Refuse a step that the definition does not have, and one that only its owner stands for."""
    number = plan.number(start)
    if number is None or number == 2 * plan.size:
        raise validate.no_such_step(plan.definition.name, start, [step.name for step in plan.steps])
    if number >= plan.size:
        owner = plan.at(number).definition.name
        raise InvalidInput(f"{start} is part of {owner}, which is repeated as a whole. Name {owner}.")


# -- the earlier run -------------------------------------------------------------------------------------------------
async def prepare(
    transactor: Transactor, run_id: str, wanted: ContinuationOptions, *, caller: Caller
) -> PreparedContinuation:
    whole = await read_snapshot(transactor, run_id, tenant=caller.tenant)
    run = whole.record.run
    _check_state(run_id, run.state, wanted.how)
    await refuse_rollback_run(transactor, caller.tenant, run_id)
    old = await plan_for(transactor, run)
    plan = (
        old
        if wanted.version is None
        else await find_plan(transactor, old.definition.name, wanted.version, tenant=caller.tenant)
    )
    if wanted.start is not None:
        _check_start(plan, wanted.start)
    before = (await transactor.payloads.detail(whole.record.details)).input
    given = before if wanted.given is None else wanted.given
    asked = ContinuationRequest(
        how=wanted.how, start=wanted.start, same_input=_is_same(before, given), actor=caller.actor
    )
    undone = await _undone_elsewhere(transactor, whole, old, caller.tenant)
    live = None if asked.same_input else await transactor.store.read_policy(caller.tenant)
    policy = None if live is None else compiled(live, transactor.plans.live.opened)
    choices = choose(old, {step.no: step for step in whole.steps}, plan, asked, undone, policy)
    adopted = [choice.name for choice in choices if choice.adopted]
    is_migrated = wanted.how is ContinuationKind.MIGRATE
    if plan is not old and not is_migrated and (found := list(obstacles(old.definition, plan.definition, adopted))):
        raise Conflict(
            f"run {run_id} cannot go on under version {plan.definition.version}: {found[0]}.", {"reasons": found}
        )
    continuation, references = await _continuation(transactor, whole, old, plan, wanted, adopted)
    return PreparedContinuation(
        whole=whole,
        old=old,
        plan=plan,
        input=given,
        choices=tuple(choices),
        continuation=continuation,
        references=references,
    )


async def refuse_rollback_run(transactor: Transactor, tenant: str, run_id: str) -> None:
    """Refuse to go on with a run that only rolled another one back."""
    link = await transactor.store.children.read_link(tenant, run_id) if is_child(run_id) else None
    if link is not None and link.undoes is not None:
        raise Conflict(
            f"run {run_id} rolled run {link.undoes} back; nothing of it can be repeated. "
            f"Go on with its parent {link.run_id}.",
            {"parent": link.run_id, "undoes": link.undoes},
        )


def _check_state(run_id: str, state: RunState, how: ContinuationKind) -> None:
    if how is ContinuationKind.MIGRATE:
        return  # `migrating.py` tells every reason against it
    if state not in RUN_TERMINAL:
        raise Conflict(f"run {run_id} is still {state}; cancel it or wait for its end before a {how}.")
    if how is ContinuationKind.RETRY and state is RunState.SUCCEEDED:
        raise Conflict(f"run {run_id} has succeeded; nothing of it is left to retry. Rerun it from a step, or fork it.")


def _is_same(before: bytes, given: bytes) -> bool:
    """Whether people would be shown the same: equal as text, because 1, 1.0 and true are equal values in Python."""
    return _canonical(msgspec.json.decode(before)) == _canonical(msgspec.json.decode(given))


async def _undone_elsewhere(transactor: Transactor, whole: WholeRun, plan: Plan, tenant: str) -> frozenset[str]:
    """Steps whose effect another run has undone, or began to: one that took over their undo."""
    run_id = whole.record.run.id
    sources = {run_id, *(step.note.adopted.run for step in whole.steps if step.note and step.note.adopted)}
    rows = await transactor.store.read_adoptions(tenant, sorted(sources))
    others = sorted({row.run_id for row in rows if row.run_id != run_id})
    begun: set[tuple[str, str]] = set()
    for other in await transactor.store.read_whole(tenant, others, [], with_messages=False) if others else ():
        size = (await plan_for(transactor, other.record.run)).size
        tried = {step.no - size for step in other.steps if size <= step.no < 2 * size and has_begun(step)}
        begun |= {
            (row.source_run, row.source_step) for row in rows if row.run_id == other.record.run.id and row.no in tried
        }
    return frozenset(
        plan.steps[step.no].name for step in whole.steps[: plan.size] if _source(run_id, plan, step) in begun
    )


def _source(run_id: str, plan: Plan, step: Step) -> tuple[str, str]:
    adopted = None if step.note is None else step.note.adopted
    return (run_id, plan.steps[step.no].name) if adopted is None else (adopted.run, adopted.step)


# -- what is adopted -------------------------------------------------------------------------------------------------
async def _continuation(
    transactor: Transactor, whole: WholeRun, old: Plan, new: Plan, wanted: ContinuationOptions, adopted: Sequence[str]
) -> tuple[Continuation, tuple[str, ...]]:
    """The notes of the adopted steps, and the digests of outputs that are kept outside their rows."""
    run = whole.record.run
    involved = (await transactor.store.read_involved([(run.tenant, run.id)])).get((run.tenant, run.id))
    executors = {} if involved is None else involved.executors
    every = {row.no: row for row in whole.steps}
    rows = sorted((whole.steps[old.numbers[name]] for name in adopted), key=lambda row: row.settled or 0)
    outputs = {row.no: output_of(whole, row) for row in rows}
    if (size := sum(len(output or b"") for output in outputs.values())) > MAX_ADOPTED_BYTES:
        raise InvalidInput(
            f"the outputs of the finished steps are {size} bytes; at most {MAX_ADOPTED_BYTES} can be adopted. "
            "Rerun the run from its beginning."
        )
    notes: dict[int, Note] = {}
    for place, row in enumerate(rows):
        name, output = old.steps[row.no].name, outputs[row.no]
        reference = reference_to(run.id, name, row, place, wanted.how.owns_undo)
        if row.note is None or row.note.adopted is None:
            left = remains_of(old, every, row.no) if wanted.how.owns_undo else None
            reference = replace(reference, digest=payload_digest(output), remains=left)
        before = row.note or Note()
        notes[new.numbers[name]] = Note(
            output=None if output is None else output.decode(),
            record=before.record,
            deciders=before.deciders,
            terms=before.terms,
            child=before.child,
            persons=carried(persons_of(old, every, row.no, executors)),
            adopted=reference,
        )
    kept = [found for output in outputs.values() if (found := read_reference(output)) is not None]
    digests = tuple(dict.fromkeys(one.digest for one in kept if one.kept == "rows"))
    return Continuation(how=wanted.how, run_id=run.id, start=wanted.start, notes=notes), digests


def output_of(whole: WholeRun, row: Step) -> bytes | None:
    """What a finished step produced, as it is stored."""
    if row.note is not None and row.note.output is not None:
        return row.note.output.encode()
    if row.state is not StepState.SUCCEEDED:
        return None
    fence = row.fence if row.note is None or row.note.checked is None else row.note.checked
    for attempt in whole.attempts:
        if (attempt.no, attempt.fence) == (row.no, fence) and attempt.state is AttemptState.SUCCEEDED:
            return attempt.output
    return None


async def copies_of(
    transactor: Transactor, digests: Iterable[str], tenant: str, run_id: str, new_id: str
) -> tuple[Payload, ...]:
    """Outputs that are kept outside their rows, for the new run: retention may delete those of the old one."""
    copies = []
    for digest in digests:
        body = await transactor.store.read_payload(tenant, run_id, digest)
        if body is None:
            raise NotFound(f"an output of run {run_id} is missing ({digest}); rerun the run from its beginning.")
        copies.append(Payload(tenant, new_id, digest, body))
    return tuple(copies)


OPERATION = "rerun"


async def rerun(
    transactor: Transactor,
    starter: Starter,
    run_id: str,
    *,
    caller: Caller,
    given: bytes | None = None,
    idempotency_key: str | None = None,
    scope: str = ANY_CALLER,
) -> Started:
    """Start a new run like the old one. The old run stays as it is, because terminal states are never left."""
    found = await transactor.store.read_run(caller.tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    if found.run.state not in RUN_TERMINAL:
        raise Conflict(f"run {run_id} is still {found.run.state}; cancel it or wait for its end before a rerun.")
    return await starter.start(
        StartRequest(
            plan=await plan_of(transactor, caller.tenant, run_id),
            caller=caller,
            input=(await transactor.payloads.detail(found.details)).input if given is None else given,
            operation=OPERATION,
            idempotency_key=idempotency_key,
            scope=scope,
            business_key=found.details.business_key,
            correlation_id=found.details.correlation_id,
            priority=found.run.priority,
            rerun_of=run_id,
            labels=found.details.labels,
            asked_before=requesters_of(found.details),
        )
    )
