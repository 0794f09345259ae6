"""Goes on with a finished run in a new one: retry, rerun from a step, fork. Finished steps are adopted by reference.

It reads the earlier run, asks the kernel which steps and calls are adopted and starts the new run. Terminal runs never
change, so that what is read here still holds when the new run starts. `previewing` tells what it would do. The engine,
the command line and the service call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from stepkeep.kernel.composition.adoption import (
    Choice,
    ContinuationRequest,
    choose,
    has_begun,
    reference_to,
    remains_of,
)
from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.composition.kept_calls import FlowCourse, courses
from stepkeep.kernel.composition.versions import changed_behind, obstacles
from stepkeep.kernel.decide.decision import requesters_of
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.payloads import read_reference
from stepkeep.kernel.machine.rows import Checkpoint, Note, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState, Category, Phase, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.people.persons import carried, persons_of
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.operations.people.live_policies import compiled
from stepkeep.operations.pipeline.plans import plan_for, plan_of
from stepkeep.operations.pipeline.start import Started, Starter, StartRequest
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.step_names import number_of
from stepkeep.operations.runs.views import read_snapshot
from stepkeep.store.change import ANY_CALLER
from stepkeep.store.records import FIRST_CHECKPOINT, WholeRun
from stepkeep.store.rows import Payload

_canonical = msgspec.json.Encoder(order="sorted").encode

MAX_ADOPTED_BYTES = 64 * 1024 * 1024
"""How large the outputs of all adopted steps may be together."""


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
    courses: tuple[FlowCourse, ...]
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


def _place_of(plan: Plan, old: Plan, whole: WholeRun, start: str) -> tuple[str, int | None]:
    """The step from which to go on, and the number of its call if that is the place. Refuses a step that the definition
    does not have, a call that the run did not make, and what only its owner stands for."""
    number = plan.number(start)
    if number is None and plan.segments:
        start = old.at(number_of(old, whole.steps, f"run {whole.record.run.id}", start)).name
        number = plan.number(start)
    if number is None or number == 2 * plan.size:
        raise validate.no_such_step(plan.definition.name, start, [step.name for step in plan.steps])
    if number < plan.size:
        return start, None
    planned = plan.at(number)
    if planned.phase is Phase.MAIN and planned.owner is not None and plan.steps[planned.owner].kind.is_flow:
        made, call = {step.no for step in whole.steps}, old.number(start)
        if call not in made:
            raise NotFound(f"run {whole.record.run.id} made no call {start}.")
        return plan.steps[planned.owner].name, call
    owner = planned.definition.name
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
    start, call = (None, None) if wanted.start is None else _place_of(plan, old, whole, wanted.start)
    before = (await transactor.payloads.detail(whole.record.details)).input
    given = before if wanted.given is None else wanted.given
    asked = ContinuationRequest(
        how=wanted.how, start=start, call=call, same_input=_is_same(before, given), actor=caller.actor
    )
    undone = await _undone_elsewhere(transactor, whole, old, caller.tenant)
    live = None if asked.same_input else await transactor.store.read_policy(caller.tenant)
    policy = None if live is None else compiled(live, transactor.plans.live.opened)
    rows = {step.no: step for step in whole.steps}
    choices = choose(old, rows, plan, asked, undone, policy)
    adopted = [choice.name for choice in choices if choice.adopted]
    is_migrated = wanted.how is ContinuationKind.MIGRATE
    if plan is not old and not is_migrated and (found := list(obstacles(old.definition, plan.definition, adopted))):
        raise Conflict(
            f"run {run_id} cannot go on under version {plan.definition.version}: {found[0]}.", {"reasons": found}
        )
    replanned = () if plan is old else changed_behind(old.definition, plan.definition)
    flows = () if is_migrated else courses(old, rows, choices, asked, undone, replanned)
    continuation, references = await _continuation(transactor, whole, old, plan, wanted, adopted, flows)
    return PreparedContinuation(
        whole=whole,
        old=old,
        plan=plan,
        input=given,
        choices=tuple(choices),
        courses=tuple(flows),
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
        its = await plan_for(transactor, other.record.run)
        tried = {step.no for step in other.steps if its.is_undo(step.no) and has_begun(step)}
        begun |= {
            (row.source_run, row.source_step)
            for row in rows
            if row.run_id == other.record.run.id and its.undo_no(row.no) in tried
        }
    return frozenset(
        plan.at(step.no).name
        for step in whole.steps
        if (step.no < plan.size or plan.is_element(step.no)) and _source(run_id, plan, step) in begun
    )


def _source(run_id: str, plan: Plan, step: Step) -> tuple[str, str]:
    adopted = None if step.note is None else step.note.adopted
    return (run_id, plan.at(step.no).name) if adopted is None else (adopted.run, adopted.step)


# -- what is adopted -------------------------------------------------------------------------------------------------
async def _continuation(
    transactor: Transactor,
    whole: WholeRun,
    old: Plan,
    new: Plan,
    wanted: ContinuationOptions,
    adopted: Sequence[str],
    flows: Sequence[FlowCourse],
) -> tuple[Continuation, tuple[str, ...]]:
    """The notes of the adopted steps and calls, and the digests of payloads that are kept outside their rows."""
    run = whole.record.run
    involved = (await transactor.store.read_involved([(run.tenant, run.id)])).get((run.tenant, run.id))
    executors = {} if involved is None else involved.executors
    every = {row.no: row for row in whole.steps}
    calls = [row for flow in flows for row in flow.adopted]
    rows = sorted([*(whole.steps[old.numbers[name]] for name in adopted), *calls], key=lambda row: row.settled or 0)
    outputs = {row.no: output_of(whole, row) for row in rows}
    if (size := sum(len(output or b"") for output in outputs.values())) > MAX_ADOPTED_BYTES:
        raise InvalidInput(
            f"the outputs of the finished steps are {size} bytes; at most {MAX_ADOPTED_BYTES} can be adopted. "
            "Rerun the run from its beginning."
        )
    notes: dict[int, Note] = {}
    failures: dict[int, tuple[Category, str]] = {}
    for place, row in enumerate(rows):
        name, output = old.at(row.no).name, outputs[row.no]
        if (no := new.number(name)) is None:
            raise InvalidInput(f"{name} has no place in version {new.definition.version}, which allows fewer calls.")
        reference = reference_to(run.id, name, row, place, wanted.how.owns_undo)
        if row.note is None or row.note.adopted is None:
            left = remains_of(old, every, row.no) if wanted.how.owns_undo else None
            reference = replace(reference, digest=payload_digest(output), remains=left)
        before = row.note or Note()
        if row.category is not None and row.error is not None:
            failures[no] = (row.category, row.error)
        notes[no] = Note(
            output=None if output is None else output.decode(),
            record=before.record,
            deciders=before.deciders,
            terms=before.terms,
            child=before.child,
            persons=carried(persons_of(old, every, row.no, executors)),
            adopted=reference,
            call=before.call,
        )
    numbers = {flow.owner: new.numbers[old.steps[flow.owner].name] for flow in flows}
    recorded = {
        numbers[flow.owner]: await _checkpoints(transactor, run.tenant, run.id, flow.owner)
        for flow in flows
        if flow.goes_on
    }
    payloads = [*outputs.values(), *(one.value for some in recorded.values() for one in some)]
    payloads += [note.call.arguments.encode() for note in notes.values() if note.call is not None]
    kept = [found for payload in payloads if (found := read_reference(payload)) is not None]
    digests = tuple(dict.fromkeys(one.digest for one in kept if one.kept == "rows"))
    continuation = Continuation(
        how=wanted.how,
        run_id=run.id,
        start=wanted.start,
        notes=notes,
        flows={numbers[flow.owner]: flow.grown for flow in flows if flow.grown is not None},
        checkpoints={no: some for no, some in recorded.items() if some},
        failures=failures,
    )
    return continuation, digests


CHECKPOINTS_AT_ONCE = 100


async def _checkpoints(transactor: Transactor, tenant: str, run_id: str, no: int) -> tuple[Checkpoint, ...]:
    """Everything that the handler of a step recorded while it ran. The rows of a finished run do not change."""
    found: list[Checkpoint] = []
    after = FIRST_CHECKPOINT
    while True:
        page = await transactor.store.read_checkpoints(tenant, run_id, no, after, CHECKPOINTS_AT_ONCE)
        found += page
        if len(page) < CHECKPOINTS_AT_ONCE:
            return tuple(found)
        after = (page[-1].seq, page[-1].name)


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
