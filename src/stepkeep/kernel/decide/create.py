"""Creates a run: its row, all its steps, the first entry of its journal, and optionally its start.

A start template is the creation decision of a plan, computed once and copied for each new run with its own ids and
values. Nothing here reads a store or a clock. `operations/pipeline/start.py` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.composition.adoption import adopt_all
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind, ContinuationRecord
from stepkeep.kernel.decide.decision import Decision, Snapshot
from stepkeep.kernel.decide.draft import Draft, vouched
from stepkeep.kernel.decide.execution_slots import waiting_numbers
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.decide.progress import begin, begin_rollback
from stepkeep.kernel.decide.rollup import roll_up
from stepkeep.kernel.machine.invariants import check_decision
from stepkeep.kernel.machine.journal import GENESIS, Cause, Hop, SealedEntry, chain, open_entry, payload_digest
from stepkeep.kernel.machine.rows import Origin, Run, Step
from stepkeep.kernel.machine.tables import RunTrigger
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.kernel.plan import Plan, PlannedStep

DUTY_RULES = 2
"""The rules of duties that a new run is judged by: they see below a step, and count decisions that share no name. A run
without this number was created before."""


JOURNAL_FORMAT = 2
"""What the entries of a new run tell: since 2, for what a handler waits, and that a cancelled attempt is in doubt. A
run without this number was created before, and its record is judged by what was told then."""


class OriginRecord(TypedDict, total=False):
    """What the journal has about where a run comes from. Only the first three are always there."""

    definition: str
    input: str | None
    format: int
    asked_before: msgspec.Raw
    duty_rules: int
    start_at: int
    policy_revision: int
    continues: ContinuationRecord
    awaits_slot: bool


def origin_of(plan: Plan, given: bytes, asked_before: bytes | None = None) -> OriginRecord:
    """What a run is created from: the digests of its definition and its input, the format of its journal, everyone else
    who caused it, and the rules of its duties if it has some."""
    said: OriginRecord = {"definition": plan.digest, "input": payload_digest(given), "format": JOURNAL_FORMAT}
    if asked_before is not None:
        said["asked_before"] = msgspec.Raw(asked_before)
    if plan.has_duties:
        said["duty_rules"] = DUTY_RULES
    return said


def create_run(
    plan: Plan,
    *,
    run_id: str,
    priority: int,
    business_key: str | None,
    given: bytes,
    caller: Caller,
    now: int,
    start: bool,
    start_at: int | None = None,
    labels: bytes | None = None,
    policy: Policy | None = None,
    spend: Mapping[str, Mapping[str, float]] | None = None,
    pin: int | None = None,
    authorities: Mapping[Caller, Authority] | None = None,
    asked_before: bytes | None = None,
    continuation: Continuation | None = None,
    awaits_slot: bool = False,
) -> Decision:
    """The decision that creates a run. Every run is created idle; "start now" is a second hop of the same entry.

    With `start_at`, a later moment, the run stays idle until its timer starts it. With `continuation` it takes the
    finished steps of an earlier run. With `awaits_slot` it stays queued until it is granted an execution slot. Raises
    Missing if a policy reads the standing of the actor, and `authorities` does not have it.
    """
    blank = Run(
        tenant=caller.tenant,
        id=run_id,
        definition_id=plan.definition_id,
        priority=priority,
        business_key=business_key,
        open=plan.size,
    )
    nothing_yet: dict[int, bytes | None] = dict.fromkeys(range(plan.size))
    snapshot = Snapshot(
        plan=plan,
        run=blank,
        steps={},
        whole=True,
        inbox=(),
        outputs=nothing_yet,
        input=given,
        authorities={} if authorities is None else authorities,
        policy=policy,
        origin=Origin(caller.actor, labels),
        costs=() if continuation is None else continuation.costs,
        kept={} if continuation is None else continuation.deadlines,
        spend={} if spend is None else spend,
    )
    draft = Draft(snapshot, now)
    is_later = start_at is not None and start_at > now
    origin = origin_of(plan, given, asked_before)
    if start_at is not None and start_at > now:
        origin["start_at"] = start_at
    if pin is not None:
        origin["policy_revision"] = pin
    if continuation is not None:
        origin["continues"] = continuation.to_detail(plan)
    waiting = waiting_numbers(plan, () if continuation is None else continuation.notes) if awaits_slot else frozenset()
    if waiting:
        origin["awaits_slot"] = True
    draft.caused_by("run_created", caller.actor, vouched(origin, caller))
    draft.move_run(RunTrigger.CREATED)
    if continuation is not None:
        adopt_all(draft, continuation, plan, priority)
    for planned in plan.steps:
        if planned.no in draft.new_steps:
            continue
        draft.add(
            Step(
                tenant=caller.tenant,
                run_id=run_id,
                no=planned.no,
                queue=planned.queue,
                priority=priority,
                unmet=planned.unmet + (planned.no in waiting),
                note=None if continuation is None else continuation.note_of(planned.no),
            )
        )
    if is_later:
        draft.due_at = start_at
    elif start:
        draft.caused_by("run_started", caller.actor)
        if continuation is not None and continuation.how is ContinuationKind.ROLLBACK:
            begin_rollback(draft, caller.actor, continuation.run_id)
        else:
            begin(draft, None if continuation is None else continuation.began_at)
        roll_up(draft)
    decision = draft.decision(())
    check_decision(plan, decision)
    return decision


_encode = msgspec.json.Encoder().encode


class _Body(msgspec.Struct, frozen=True, gc=False):
    """An `Entry` whose hops are already encoded."""

    tenant: str
    run_id: str
    seq: int
    at: int
    causes: tuple[Cause, ...]
    hops: msgspec.Raw


class StartTemplate(msgspec.Struct, frozen=True):
    """The creation of any run of a plan. `hops` are encoded in `text` unless they contain times."""

    plan: Plan
    run: Run
    steps: tuple[Step, ...]
    causes: tuple[Cause, ...]
    hops: tuple[Hop, ...]
    text: msgspec.Raw | None

    def instantiate(
        self,
        *,
        run_id: str,
        priority: int,
        business_key: str | None,
        given: bytes,
        caller: Caller,
        now: int,
        asked_before: bytes | None = None,
    ) -> Decision:
        """The decision that `create_run` would make for this run."""
        run, text = self.run, self.text
        if text is None:
            text = _written([replace(hop, due_at=_after(hop.due_at, now)) for hop in self.hops])
        first, *later = self.causes
        causes = (
            Cause(
                first.event,
                caller.actor,
                vouched(origin_of(self.plan, given, asked_before), caller),
            ),
            *[Cause(cause.event, caller.actor) for cause in later],
        )
        body = _encode(_Body(caller.tenant, run_id, run.seq, now, causes, text))
        entry = SealedEntry(caller.tenant, run_id, run.seq, now, body, chain(GENESIS, body))
        created = replace(
            run,
            tenant=caller.tenant,
            id=run_id,
            priority=priority,
            business_key=business_key,
            head=entry.hash,
            due_at=_after(run.due_at, now),
            started_at=_after(run.started_at, now),
            ended_at=_after(run.ended_at, now),
            moved_at=now,
        )
        steps = [
            replace(
                step,
                tenant=caller.tenant,
                run_id=run_id,
                priority=priority,
                ready_at=_after(step.ready_at, now),
                due_at=_after(step.due_at, now),
            )
            for step in self.steps
        ]
        return Decision(was=0, run=created, replies=(), added=tuple(steps), entry=entry)


def start_template(plan: Plan, *, start: bool) -> StartTemplate | None:
    """The template of a plan, if all its creations are alike."""
    if start and (plan.policies or any(_differs(plan.steps[no]) for no in plan.roots)):
        return None
    first = create_run(
        plan, run_id="", priority=0, business_key=None, given=b"null", caller=Caller("", ""), now=0, start=start
    )
    assert first.entry is not None
    entry = open_entry(first.entry.body)
    timed = any(hop.due_at is not None for hop in entry.hops)
    return StartTemplate(
        plan, first.run, first.added, entry.causes, entry.hops, None if timed else _written(entry.hops)
    )


def _differs(planned: PlannedStep) -> bool:
    """Whether the openings of this step differ in more than a shift of time."""
    wait = planned.kind.wait
    has_own_time = wait is not None and (wait.until is not msgspec.UNSET or wait.length is not msgspec.UNSET)
    owns = planned.segment is not None or planned.kind.starts_child
    return any((planned.condition, planned.gate, planned.keys, has_own_time, owns))


def _after(moment: int | None, now: int) -> int | None:
    return None if moment is None else moment + now


def _written(hops: Sequence[Hop]) -> msgspec.Raw:
    return msgspec.Raw(_encode(hops))
