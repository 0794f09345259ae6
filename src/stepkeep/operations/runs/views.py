"""Runs as JSON: the documented, stable shape behind `--json`, `show` and the engine's results.

It only reads. Times become UTC text only here. Payloads are decoded, costs are summed, and outputs are resolved.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.definition.expressions.conditions import render_output
from stepkeep.kernel.decide.decision import asked_names
from stepkeep.kernel.decide.stopping import is_in_doubt
from stepkeep.kernel.decide.stuck import choices_about
from stepkeep.kernel.definition import Case, Switch
from stepkeep.kernel.errors import ExpressionError, InvalidInput, NotFound, PayloadSealed, Unreadable
from stepkeep.kernel.machine.journal import RUN_ENTITY, Hop, SealedEntry, open_entry
from stepkeep.kernel.machine.rows import Attempt, Checkpoint, Run, Step, is_exhausted
from stepkeep.kernel.machine.states import STEP_TERMINAL, STEP_WAITING, AttemptState, Phase, RunState, StepState
from stepkeep.kernel.people.gates import gate_terms, holding_rule
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations import validate
from stepkeep.operations.continuation.continued import adopted_view, course
from stepkeep.operations.continuation.quarantine import QuarantineView
from stepkeep.operations.continuation.quarantine import view as quarantine_view
from stepkeep.operations.definitions.codes import handler_name, read_codes
from stepkeep.operations.instants import dated, instant
from stepkeep.operations.limits.slots import read_wait
from stepkeep.operations.operation import MOST_LISTED
from stepkeep.operations.people.cases import asked_people
from stepkeep.operations.pipeline.codec import HIDDEN
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.family import family
from stepkeep.operations.runs.progress import read_progress
from stepkeep.operations.runs.run_answers import (
    AttemptDetail,
    CheckpointView,
    CodeOf,
    Entered,
    Fired,
    JournalEnd,
    Progress,
    RunDetail,
    RunSummary,
    RunView,
    Skip,
    StepDetail,
    StepView,
    UnreadableRun,
    Waiting,
)
from stepkeep.operations.runs.skips import cascades, read_skips
from stepkeep.operations.runs.step_names import ambiguous
from stepkeep.operations.streams.logs import read_log
from stepkeep.store.reading import damage_of
from stepkeep.store.records import RunFilter, RunRecord, WholeRun

decode_json = msgspec.json.decode
UNCOUNTED = frozenset({AttemptState.WAITED, AttemptState.RELEASED})
BEGUN = STEP_WAITING | {StepState.RUNNING}
"""States of a step that has begun: a worker held it, or it opened for people or messages. A cancelled one may not
have."""


async def describe_run(transactor: Transactor, run_id: str, *, tenant: str) -> RunView:
    """Everything about one run, from one snapshot."""
    whole = await read_snapshot(transactor, run_id, tenant=tenant)
    return await view_of(transactor, whole, await plan_for(transactor, whole.record.run))


async def read_snapshot(transactor: Transactor, run_id: str, *, tenant: str, with_messages: bool = False) -> WholeRun:
    """The rows and the journal of a run as they were at one moment; on request also messages, gates and decisions."""
    asked = [validate.run_id(run_id)]
    for whole in await transactor.store.read_whole(tenant, asked, with_messages=with_messages):
        if (damage := damage_of(whole)) is not None:
            raise damage
        return whole
    raise NotFound(f"there is no run {run_id}")


async def view_of(transactor: Transactor, whole: WholeRun, plan: Plan) -> RunView:
    """The view of a run that was read. The names of workers never change, and a quarantine is no part of the run."""
    found, steps, tenant = whole.record, whole.steps, whole.record.run.tenant
    held = {step.worker for step in steps if step.worker is not None}
    numbers = held | {attempt.worker for attempt in whole.attempts}
    workers = await transactor.store.name_workers(tenant, numbers) if numbers else {}
    codes = await read_codes(transactor, tenant, {attempt.worker for attempt in whole.attempts})
    aside = await _set_aside(transactor, tenant)
    progress = await read_progress(transactor, tenant, found.run.id, steps)
    visible = transactor.payloads.seal.visible
    checkpoints: dict[int, list[CheckpointView]] = defaultdict(list)
    for one in await transactor.store.newest_checkpoints(tenant, found.run.id):
        checkpoints[one.no].append(_checkpoint(one, visible))
    attempts: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in whole.attempts:
        attempts[attempt.no].append(attempt)
    hops = _hops(whole.entries)
    times = _times(hops)
    skips = read_skips(plan, steps, (hop for hop, _ in hops))
    outputs = {step.no: _output(step, attempts[step.no]) for step in steps}
    result = await _result(transactor, plan, found, steps, outputs)
    described = [
        _step(
            plan,
            found.run,
            step,
            attempts[step.no],
            codes,
            None if (output := outputs[step.no]) is None else visible(output),
            times.get(step.no, []),
            workers,
            skips.get(step.no),
            progress.get(step.no),
            checkpoints[step.no],
            visible,
        )
        for step in steps
    ]
    cost = _add_up(attempt for rows in attempts.values() for attempt in rows)
    waits = await read_wait(transactor.store, found.run)
    fired = await _fired(transactor, tenant, [found.run.id])
    run = summarise(found, aside.get(found.run.id), fired.get(found.run.id)).extended(
        RunDetail,
        input=decode_json(visible(found.details.input)),
        output=result,
        cost=cost,
        warnings=[
            f"{step.name}: {step.error or step.category}"
            for step in described
            if step.state is StepState.SKIPPED and step.category is not None
        ]
        + cascades(plan, skips),
        waiting_for=[_waiting_for(plan, found.run, step) for step in steps if step.state.startswith("awaiting_")],
        **await family(transactor, found.run, plan, cost),
        **await course(transactor, found, whole.entries),
        waits_for_slot=None if waits is None else waits[1],
    )
    return RunView(run=run, steps=described)


async def _result(
    transactor: Transactor, plan: Plan, found: RunRecord, steps: Sequence[Step], outputs: Mapping[int, bytes | None]
) -> Any:
    """The output of a run, from values: large payloads are read, and sealed ones opened."""
    run, payloads = found.run, transactor.payloads
    if run.state is not RunState.SUCCEEDED:
        return None
    try:
        values = await payloads.outputs({(run.tenant, run.id, no): output for no, output in outputs.items()})
        full = replace(found, details=await payloads.detail(found.details))
    except PayloadSealed:
        return HIDDEN
    return _run_output(plan, full, steps, {no: value for (_, _, no), value in values.items()})


async def describe_step(transactor: Transactor, run_id: str, step: str, *, tenant: str) -> StepView:
    """One step with the evidence of its attempts."""
    view, kept = await asyncio.gather(
        describe_run(transactor, run_id, tenant=tenant), transactor.store.read_evidence(tenant, run_id)
    )
    found = next((one for one in view.steps if one.name == step), None)
    called = [one for one in view.steps if one.call == step and not one.name.startswith("undo:")]
    if found is None and len(called) > 1:
        raise ambiguous(f"run {run_id}", str(step), [one.name for one in called])
    if (found := found or next(iter(called), None)) is None:
        raise validate.no_such_step(f"run {run_id}", str(step), [one.name for one in view.steps])
    visible = transactor.payloads.seal.visible
    evidence = {one.fence: decode_json(visible(one.body)) for one in kept if one.no == found.no}
    for fence, lines in (await read_log(transactor, tenant, run_id, found.no)).items():
        evidence[fence] = {**evidence.get(fence, {}), "log": lines}
    tried = [replace(one, evidence=evidence.get(one.fence)) for one in found.attempts]
    found = replace(found, attempts=tried)
    return StepView(run=view.run, step=found)


def is_sleep(plan: Plan, step: Step) -> bool:
    """Whether the wait of this step ends by itself: it sleeps, is a loop between two of its elements, or waits for a
    child run. Whether that child goes on by itself is for `sleeping` to say."""
    planned = plan.of(step)
    if step.state is StepState.AWAITING_CHILDREN:
        return planned.kind.child is not None or (planned.kind.pauses and step.unmet == 0)
    return step.state is StepState.AWAITING_EVENT and planned.kind.sleeps


def accept_filter(which: RunFilter) -> None:
    """Refuse a malformed filter."""
    if type(which.limit) is not int or not 0 < which.limit <= MOST_LISTED:
        raise InvalidInput(f"the limit must be a whole number from 1 to {MOST_LISTED}")
    for name, key in (("workflow", which.workflow), ("key", which.business_key), ("id", which.correlation_id)):
        if key is not None:
            validate.key(f"the {name} to look for", key)
    if which.before is not None:
        validate.run_id(which.before)


async def summarise_all(transactor: Transactor, tenant: str, found: Sequence[RunRecord]) -> list[RunSummary]:
    """The summaries of these runs, quarantined ones marked, with what started them."""
    aside = await _set_aside(transactor, tenant)
    fired = await _fired(transactor, tenant, [record.run.id for record in found])
    return [summarise(record, aside.get(record.run.id), fired.get(record.run.id)) for record in found]


async def _fired(transactor: Transactor, tenant: str, run_ids: Sequence[str]) -> dict[str, Fired]:
    """The firings of runs that a trigger started."""
    found = await transactor.store.triggers.find_firings_of(tenant, run_ids) if run_ids else {}
    return {
        run_id: Fired(trigger=one.trigger_name, moment=one.moment, backfill=one.backfill)
        for run_id, one in found.items()
    }


async def _set_aside(transactor: Transactor, tenant: str) -> dict[str, QuarantineView]:
    """The quarantines of quarantined runs."""
    return {one.run_id: quarantine_view(one) for one in await transactor.store.list_quarantined(tenant)}


def unreadable_view(problem: Unreadable) -> UnreadableRun:
    """A run of which only the id is known, and perhaps its state as it is stored."""
    return UnreadableRun(
        id=problem.run_id,
        state=problem.state,
        table=problem.table,
        row=problem.row,
        reason=problem.reason,
        message=str(problem),
    )


def summarise(record: RunRecord, aside: QuarantineView | None = None, fired: Fired | None = None) -> RunSummary:
    """The summary of a run."""
    run, details = record.run, record.details
    return RunSummary(
        id=run.id,
        workflow=details.workflow,
        version=details.version,
        dialect=details.dialect,
        state=run.state,
        rollback=run.rollback,
        category=run.category,
        error=run.error,
        priority=run.priority,
        business_key=details.business_key,
        correlation_id=details.correlation_id,
        created_by=details.created_by,
        created_at=instant(details.created_at),
        starts_at=instant(run.due_at) if run.state is RunState.IDLE else None,
        started_at=instant(run.started_at),
        ended_at=instant(run.ended_at),
        rerun_of=details.rerun_of,
        asked_before=list(asked_names(details.asked_before)),
        labels=decode_json(details.labels) if details.labels else {},
        journal=JournalEnd(seq=run.seq, head=run.head.hex()),
        quarantined=aside,
        fired=fired,
    )


def _hops(entries: Sequence[SealedEntry]) -> list[tuple[Hop, int]]:
    """Every change of a step, and when it happened."""
    return [(hop, sealed.at) for sealed in entries for hop in open_entry(sealed.body).hops if hop.no != RUN_ENTITY]


def _times(hops: Sequence[tuple[Hop, int]]) -> dict[int, list[tuple[str, int]]]:
    """For each step, every state it entered and when."""
    times: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for hop, at in hops:
        times[hop.no].append((hop.target, at))
    return times


def waits_until(run: Run, step: Step) -> int | None:
    """When a wait ends by itself: at its deadline or at the run's timeout, whichever is earlier."""
    opening = None if step.note is None else step.note.opening
    # The timer of an open gate may be a reminder.
    due_at = step.due_at if opening is None else opening.deadline
    return min((at for at in (due_at, run.due_at) if at is not None), default=None)


def _choices(plan: Plan, run: Run, step: Step) -> list[str]:
    """What a person may decide about a step now: about an open gate, or about a step that holds or is stuck."""
    if step.state is StepState.AWAITING_APPROVAL and not is_exhausted(step):
        return ["approve", "reject"]
    return [choice.value for choice in choices_about(plan, run.state, step)]


def _step(
    plan: Plan,
    run: Run,
    step: Step,
    attempts: Sequence[Attempt],
    codes: Mapping[tuple[int, str], CodeOf],
    output: bytes | None,
    times: Sequence[tuple[str, int]],
    workers: Mapping[int, str],
    skip: Skip | None,
    progress: Progress | None,
    checkpoints: list[CheckpointView],
    visible: Callable[[bytes], bytes],
) -> StepDetail:
    planned, handler = plan.of(step), handler_name(plan.of(step).executor)
    begun = next((at for state, at in times if state in BEGUN), None)
    counted = sum(attempt.state not in UNCOUNTED for attempt in attempts)
    holding = step.worker is not None and not any(attempt.fence == step.fence for attempt in attempts)
    return StepDetail(
        no=step.no,
        name=planned.name,
        phase=planned.phase,
        kind=plan.of(step).kind.title,
        call=None if step.note is None or step.note.call is None else step.note.call.name,
        state=step.state,
        attempt_count=counted + holding,
        losses=step.losses,
        category=step.category,
        error=step.error,
        in_doubt=is_in_doubt(step.error),
        output=None if output is None else decode_json(output),
        depends_on=[edge.step for edge in planned.definition.depends_on] if planned.phase is Phase.MAIN else [],
        started_at=instant(begun),
        ended_at=instant(times[-1][1]) if times and step.state in STEP_TERMINAL else None,
        due_at=instant(step.due_at),
        record=_record(step, visible),
        adopted=adopted_view(step.note, has_undo=planned.definition.undo is not None),
        cost=_add_up(attempts),
        worker=None if step.worker is None else workers.get(step.worker),
        attempts=[_attempt(attempt, workers, codes, handler) for attempt in attempts],
        states=[Entered(state=state, at=instant(at)) for state, at in times],
        case=case_taken(step, planned) or UNSET,
        skipped=skip,
        until=instant(waits_until(run, step)) if step.state in STEP_WAITING else None,
        choices=_choices(plan, run, step),
        progress=progress,
        checkpoints=checkpoints,
    )


def _record(step: Step, visible: Callable[[bytes], bytes]) -> dict[str, object] | None:
    """What is on record about a decision, a message or a completion."""
    if step.note is None or not step.note.record:
        return None
    record = dated(decode_json(step.note.record))
    if "claim" in record:
        record["claim"] = decode_json(visible(msgspec.json.encode(record["claim"])))
    return record


def _checkpoint(one: Checkpoint, visible: Callable[[bytes], bytes]) -> CheckpointView:
    """What a handler recorded while it ran. A large value is shown as the reference to it."""
    return CheckpointView(name=one.name, value=decode_json(visible(one.value)), fence=one.fence, at=instant(one.at))


def _attempt(
    attempt: Attempt,
    workers: Mapping[int, str],
    codes: Mapping[tuple[int, str], CodeOf],
    handler: str,
) -> AttemptDetail:
    return AttemptDetail(
        number=attempt.number,
        fence=attempt.fence,
        worker=workers.get(attempt.worker),
        state=attempt.state,
        started_at=instant(attempt.started_at),
        ended_at=instant(attempt.ended_at),
        category=attempt.category,
        error=attempt.error,
        in_doubt=is_in_doubt(attempt.error),
        cost=None if attempt.cost is None else decode_json(attempt.cost),
        code=codes.get((attempt.worker, handler)),
    )


def _output(step: Step, attempts: Sequence[Attempt]) -> bytes | None:
    if step.note is not None and step.note.output is not None:
        return step.note.output.encode()
    for attempt in reversed(attempts):
        if attempt.state is AttemptState.SUCCEEDED and attempt.output is not None:
            return attempt.output
    return None


def _run_output(plan: Plan, found: RunRecord, steps: Sequence[Step], outputs: Mapping[int, bytes | None]) -> Any:
    """The output of a run that succeeded: its declared output, or that of its last steps."""
    by_name = {plan.of(step).name: outputs[step.no] for step in steps if step.no < plan.size}
    states = {plan.of(step).name: step.state for step in steps if step.no < plan.size}
    if plan.definition.output is not None:
        try:
            return render_output(plan.definition, found.run.id, found.details.input, by_name, states)
        except ExpressionError as error:
            return {"error": f"the declared output cannot be evaluated: {error}"}
    last = {planned.name: by_name.get(planned.name) for planned in plan.steps if not planned.dependents}
    return result_output(last)


def result_output(outputs: Mapping[str, bytes | None]) -> Any:
    """The output of a run that declares none: that of its last step, or of each of its last steps by name."""
    plain = {name: None if output is None else decode_json(output) for name, output in outputs.items()}
    return next(iter(plain.values())) if len(plain) == 1 else plain


def _waiting_for(plan: Plan, run: Run, step: Step) -> Waiting:
    planned, note = plan.of(step), step.note
    name, until = planned.name, instant(waits_until(run, step))
    if note is not None and is_exhausted(step):
        return Waiting(
            step=name,
            for_="decision",
            attempts=step.attempts - note.spent,
            category=step.category,
            error=step.error,
            until=until,
        )
    waits = step.state.removeprefix("awaiting_")
    if note is not None and note.grown is not None and step.state is StepState.AWAITING_CHILDREN:
        return Waiting(step=name, for_=waits, **element_counts(step), until=until)
    if planned.kind.sleeps:
        return Waiting(step=name, for_="sleep", until=instant(step.due_at))
    gate = gate_terms(step, planned)
    return Waiting(
        step=name,
        for_=waits,
        run_id=UNSET if note is None or note.child is None else note.child,
        event=UNSET if note is None or note.event is None else note.event,
        **(asked_people(gate, step) if gate is not None and step.state is StepState.AWAITING_APPROVAL else {}),
        rule=UNSET if (rule := holding_rule(step)) is None else rule,
        until=until,
    )


def case_taken(owner: Step, planned: PlannedStep) -> str | None:
    """The name of the case that a choice took; None for every other step, and before it took one."""
    case = _case_of(owner, planned)
    return None if case is None else case.name


def _case_of(owner: Step, planned: PlannedStep) -> Case | None:
    grown, growth = None if owner.note is None else owner.note.grown, planned.kind.growth
    if not isinstance(growth, Switch) or grown is None or grown.case is None:
        return None
    return growth.cases[grown.case]


class ElementCounts(TypedDict):
    elements: int
    settled: int
    failed: int


def element_counts(owner: Step) -> ElementCounts:
    """How many elements an owner has, or has begun, how many of them have settled, and how many failed."""
    grown = None if owner.note is None else owner.note.grown
    assert grown is not None
    return {"elements": grown.count, "settled": grown.count - owner.unmet, "failed": grown.failed}


def _add_up(attempts: Any) -> dict[str, float]:
    """The sum of what attempts cost, by kind (usd, tokens, …)."""
    total: dict[str, float] = {}
    for attempt in attempts:
        if attempt.cost is not None:
            for kind, amount in decode_json(attempt.cost).items():
                total[kind] = total.get(kind, 0) + amount
    return total
