"""A decision being made: the snapshot overlaid with changes, and the hops that record them.

Every change of state goes through `move` or `move_run`, which consult the tables, update the run's counters and record
the hop. Nothing else in the kernel assigns a state. A draft never changes its snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Decision, Need, Reply, Snapshot
from stepkeep.kernel.decide.resources import AWAITS_RESOURCES, awaits_resources, is_set_aside
from stepkeep.kernel.errors import NotFound
from stepkeep.kernel.machine.events import Request
from stepkeep.kernel.machine.journal import RUN_ENTITY, Cause, Entry, Hop, seal
from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.kernel.machine.rows import (
    Attempt,
    Consumed,
    Gate,
    GateChange,
    Message,
    Note,
    OutboxEntry,
    Rows,
    Run,
    Step,
)
from stepkeep.kernel.machine.states import (
    RUN_TERMINAL,
    STEP_MOVING,
    STEP_TERMINAL,
    AttemptState,
    Category,
    OnFailure,
    Rollback,
    RunState,
    StepState,
    StopCause,
)
from stepkeep.kernel.machine.tables import RUN, STEP, RunTrigger, StepTrigger
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.kernel.plan import PlannedStep

HELD_BACK = 253_402_300_799_999_999
"""The `ready_at` of a claimable step while its run is paused: the last microsecond of the year 9999."""

HOP_BITS = 20
"""Completion order is one number: journal sequence above, hop number in the entry below."""

QUIET_IN_BLOCKED = frozenset(
    {
        StepTrigger.CANCELLED,
        StepTrigger.TOKEN_REISSUED,
        StepTrigger.DECISION_RECORDED,
        StepTrigger.CHANGES_REQUESTED,
        StepTrigger.REASSIGNED,
        StepTrigger.ESCALATED,
        StepTrigger.REMINDED,
    }
)
"""Triggers that leave a blocked run blocked: after them its steps wait as before, or do nothing more."""

QUIET_IN_QUEUE = frozenset({StepTrigger.PLANNED, StepTrigger.DEPENDENCIES_MET, StepTrigger.CANCELLED})
"""Triggers that leave a queued run queued: they claim, open and settle nothing."""

STEP_EFFECTS = {
    (row.source, row.trigger): (
        row.target,
        row.target in STEP_TERMINAL,
        (row.target in STEP_MOVING) - (row.source in STEP_MOVING),
    )
    for row in STEP.rows
}
"""For each row of the step table: the target state, whether it is terminal, and the change in the number of runnable
steps."""

_encode = msgspec.json.Encoder().encode


def _refuse(source: StepState, trigger: StepTrigger) -> NoReturn:
    STEP.target(source, trigger)
    raise AssertionError(f"the table has a row for {trigger} of {source}")


def vouched(detail: Mapping[str, Any] | None, by: Request | Caller) -> Mapping[str, object]:
    """The detail of a cause, with the program that vouched for its actor and the id of the key that was used."""
    voucher = {} if by.vouched_by is None else {"vouched_by": by.vouched_by}
    return {**(detail or {}), **voucher, **({} if by.key is None else {"key": by.key})}


def json_text(value: Any) -> str:
    """JSON as text, as notes store it."""
    return _encode(value).decode()


class Missing(Exception):
    """The snapshot lacks something; the draft is dropped and made again from a larger snapshot."""

    def __init__(self, need: Need) -> None:
        super().__init__()
        self.need = need


class Draft:
    """Mutable state of one decision."""

    __slots__ = (
        "attempts",
        "category",
        "cause",
        "causes",
        "claimed",
        "clock",
        "decoded",
        "due_at",
        "ended_at",
        "error",
        "failed",
        "hops",
        "inbox",
        "inbox_count",
        "leased",
        "line",
        "moving",
        "new_steps",
        "now",
        "only_hot",
        "open",
        "owners",
        "plan",
        "policy",
        "ready",
        "rollback",
        "rows",
        "seq",
        "snapshot",
        "started_at",
        "state",
        "steps",
        "undoing",
    )

    def __init__(self, snapshot: Snapshot, now: int) -> None:
        run = snapshot.run
        self.snapshot = snapshot
        self.plan = snapshot.plan
        # Time never goes back for a run: after the clock was set back, it stands still until the clock catches up. Only
        # `ready_at`, which the claim query compares, uses the clock itself.
        self.now, self.clock = max(now, run.moved_at), now
        self.seq = run.seq + 1
        self.state = run.state
        self.open = run.open
        self.moving = run.moving
        self.leased = run.leased
        self.failed = run.failed
        self.undoing = run.undoing
        self.inbox_count = run.inbox
        self.cause: StopCause | None = run.cause
        self.policy: OnFailure | None = run.policy
        self.category: Category | None = run.category
        self.error: str | None = run.error
        self.rollback: Rollback = run.rollback
        self.due_at = run.due_at
        self.started_at = run.started_at
        self.ended_at = run.ended_at
        self.steps: dict[int, Step] = {}
        self.new_steps: set[int] = set()
        self.inbox: list[Message] | None = None if snapshot.inbox is None else list(snapshot.inbox)
        self.hops: list[Hop] = []
        self.causes: list[Cause] = []
        self.attempts: list[Attempt] = []
        self.rows = Rows()
        self.ready: list[int] = []
        self.line: list[int] | None = None
        self.claimed: list[int] = []
        self.owners: dict[int, str] = {}
        self.decoded: dict[str, tuple[bytes, Any]] = {}
        self.only_hot = True

    # -- looking ---------------------------------------------------------------------------------------------------
    @property
    def run_id(self) -> str:
        return self.snapshot.run.id

    @property
    def stopping(self) -> bool:
        return self.state is RunState.STOPPING

    def step(self, no: int) -> Step:
        found = self.steps.get(no) or self.snapshot.steps.get(no)
        if found is None:
            raise Missing(Need(steps=frozenset((no,))))
        return found

    def lacks(self, no: int) -> bool:
        """Whether this step is not loaded."""
        return no not in self.steps and no not in self.snapshot.steps

    def known(self, no: int) -> Step | None:
        """The step if it has a row; requires the whole run before it returns None."""
        found = self.steps.get(no) or self.snapshot.steps.get(no)
        if found is None and not self.snapshot.whole:
            raise Missing(Need(steps=frozenset((no,)), whole=True))
        return found

    def named(self, no: int) -> Step:
        """The step that an event names, which may not exist."""
        found = self.known(no)
        if found is None:
            raise NotFound(f"run {self.run_id} has no step {self.plan.name_of(no) or no}")
        return found

    def require(self, numbers: Iterable[int]) -> None:
        """Make sure that all these steps are loaded; all missing ones are requested at once."""
        changed, loaded = self.steps, self.snapshot.steps
        missing = [no for no in numbers if no not in changed and no not in loaded]
        if missing:
            raise Missing(Need(steps=frozenset(missing)))

    def every_step(self) -> list[Step]:
        """All rows of the run, in step order."""
        if not self.snapshot.whole:
            raise Missing(Need(whole=True))
        return [step for _, step in sorted({**self.snapshot.steps, **self.steps}.items())]

    def waiting_steps(self, state: StepState) -> list[Step]:
        """All steps in this waiting state, in step order."""
        if not (self.snapshot.waiting or self.snapshot.whole):
            raise Missing(Need(waiting=True))
        rows = {**self.snapshot.steps, **self.steps}
        return [step for _, step in sorted(rows.items()) if step.state is state]

    def next_claimable(self, queues: Collection[int]) -> Step | None:
        """The loaded step with the lowest number that a worker of these queues may claim now."""
        if self.line is None:
            rows = {**self.snapshot.steps, **self.steps}
            self.line = sorted([no for no, step in rows.items() if step.ready_at is not None], reverse=True)
        while self.line and self.step(self.line[-1]).ready_at is None:
            self.line.pop()
        for no in reversed(self.line):
            step = self.step(no)
            if step.queue in queues and self.may_be_claimed(step):
                if self.plan.sets_aside and is_set_aside(self.plan, self.planned(step)):
                    continue
                return step
        return None

    def may_be_claimed(self, step: Step, *, aside: bool = False) -> bool:
        """The rule of which steps are claimable; the claim queries of the stores propose by the same one. Steps of a
        paused run are held back by their time, and so are those that are set aside, but for a claim that names one."""
        if step.ready_at is None or step.worker is not None:
            return False
        return step.ready_at <= self.now or (aside and awaits_resources(step.ready_at))

    def planned(self, step: Step) -> PlannedStep:
        return self.plan.of(step)

    # -- changing --------------------------------------------------------------------------------------------------
    def authority(self, caller: Caller) -> Authority:
        """What this caller brings to the decision."""
        try:
            return self.snapshot.authorities[caller]
        except KeyError:
            raise Missing(Need(people=frozenset((caller,)))) from None

    def requested(self, event: str, by: Request, detail: Mapping[str, Any] | None = None) -> None:
        """Set the cause of the following hops: a request, with what stood for its actor."""
        self.caused_by(event, by.actor, vouched(detail, by))

    def caused_by(self, event: str, actor: str, detail: Mapping[str, Any] | None = None) -> None:
        """Set the cause of the following hops."""
        self.causes.append(Cause(event, actor, dict(detail) if detail else None))

    def move(
        self,
        step: Step,
        trigger: StepTrigger,
        *,
        of: int | None = None,
        ready_at: int | None = None,
        due_at: int | None = None,
        fence: int | None = None,
        worker: int | None = None,
        claimed_at: int | None = None,
        keep_lease: bool = False,
        digest: str | None = None,
        **rare: Any,
    ) -> Step:
        """The only way a step changes state. Lease and timers end with the old state unless they are kept or given.

        `rare` are the columns that do not change in the common case (attempts, losses, category, error, note).
        """
        source, by = step.state, len(self.causes) - 1
        target, is_terminal, moving = STEP_EFFECTS.get((source, trigger)) or _refuse(source, trigger)
        if source is StepState.AWAITING_APPROVAL and target is not source:
            self._close_gate(step, trigger, rare)
        if keep_lease:
            worker, claimed_at, due_at = step.worker, step.claimed_at, step.due_at
        if self.state is not RunState.RUNNING:
            self._resume_run_on_change(trigger)
        if fence is None:
            fence = step.fence
        if ready_at is not None:
            self.line = None
        moved = replace(
            step,
            state=target,
            ready_at=ready_at,
            due_at=due_at,
            fence=fence,
            worker=worker,
            claimed_at=claimed_at,
            settled=(self.seq << HOP_BITS) + len(self.hops) if is_terminal else None,
        )
        category = error = None
        if rare:
            category, error = rare.get("category"), rare.get("error")
            moved = self._with_rare(moved, rare)
        self.hops.append(
            Hop(
                step.no,
                trigger,
                source,
                target,
                by,
                of,
                fence or None,
                step.attempts + 1 if fence else None,
                None if step.claimed_at is None or claimed_at is not None else self.now - step.claimed_at,
                due_at,
                category,
                error,
                digest,
            )
        )
        self.steps[step.no] = moved
        self.moving += moving
        self.leased += (worker is not None) - (step.worker is not None)
        if is_terminal:
            self._count_out(step.no)
        return moved

    def _with_rare(self, step: Step, rare: Mapping[str, Any]) -> Step:
        """The row with these columns too; in the common case they have these values already."""
        changes = {name: value for name, value in rare.items() if getattr(step, name) != value}
        if not changes:
            return step
        self.only_hot = False
        return replace(step, **changes)

    def _close_gate(self, step: Step, trigger: StepTrigger, rare: dict[str, Any]) -> None:
        """Record how the open gate of a step ends; the note of the row keeps no opening."""
        note: Note | None = rare.get("note", step.note)
        if note is None or note.opening is None:
            return
        rare["note"] = replace(note, opening=None, shown=note.opening.shown)
        self.change_gate(step, note.opening.activation, note.opening.level, closed_at=self.now, outcome=trigger)

    def change_gate(self, step: Step, activation: int, level: int, **changes: Any) -> None:
        """Change the row of a gate. One that opens in this entry is written as it is at the end of the entry."""
        for place, gate in enumerate(self.rows.of(Gate) if activation == self.seq else ()):
            if gate.no == step.no:
                plain = {name: str(value) if name == "outcome" else value for name, value in changes.items()}
                self.rows[Gate][place] = replace(gate, level=level, **plain)
                return
        self.rows.add(
            GateChange(
                tenant=step.tenant, run_id=step.run_id, no=step.no, activation=activation, level=level, **changes
            )
        )

    def pass_through(self, step: Step, trigger: StepTrigger) -> Step:
        """Enter a state and leave it at once: the hop is recorded, and the row is written by the next move."""
        source, target = step.state, STEP.target(step.state, trigger)
        if self.state is not RunState.RUNNING:
            self._resume_run_on_change(trigger)
        by, number = len(self.causes) - 1, step.attempts + 1
        self.hops.append(Hop(step.no, trigger, source, target, by, None, step.fence, number, None, step.due_at))
        return replace(step, state=target)

    def _resume_run_on_change(self, trigger: StepTrigger) -> None:
        """A blocked or queued run continues when one of its steps changes."""
        if self.state is RunState.BLOCKED and trigger not in QUIET_IN_BLOCKED:
            self.move_run(RunTrigger.RESUMED)
        elif self.state is RunState.QUEUED and trigger not in QUIET_IN_QUEUE:
            self.move_run(RunTrigger.PROGRESSED)

    def _count_out(self, no: int) -> None:
        if no < self.plan.size:
            self.open -= 1
        elif self.plan.is_undo(no):
            self.undoing -= 1

    def make_ready(self, step: Step, trigger: StepTrigger, **changes: Any) -> Step:
        moved = self.move(step, trigger, ready_at=self.claimable_from(step, self.clock), **changes)
        self.ready.append(step.no)
        return moved

    def claimable_from(self, step: Step, moment: int) -> int:
        """From when a worker may claim a step that is ready at this moment. One that is set aside is claimed by a query
        of its own."""
        if self.plan.sets_aside and is_set_aside(self.plan, self.planned(step)):
            moment += AWAITS_RESOURCES
        return HELD_BACK if self.state is RunState.PAUSED else moment

    def set_claimable(self, step: Step, ready_at: int) -> None:
        """Hold a claimable step back, or release it. Its state is unchanged."""
        self.line = None
        self.put(replace(step, ready_at=ready_at))

    def put(self, step: Step) -> None:
        """Keep a changed row whose state is unchanged."""
        self.steps[step.no] = step

    def noted(self, step: Step, **noted: Any) -> Step:
        """The step with these fields of its note, for the move that follows."""
        self.only_hot = False
        return replace(step, note=replace(step.note or Note(), **noted))

    def add(self, step: Step) -> Step:
        """Add a new row, pending."""
        self.new_steps.add(step.no)
        self.steps[step.no] = step
        self.hops.append(Hop(step.no, StepTrigger.PLANNED, None, StepState.PENDING, len(self.causes) - 1))
        return step

    def add_settled(self, step: Step, trigger: StepTrigger, digest: str | None) -> None:
        """Add a new row of a main step that an earlier run has settled."""
        target = STEP.target(None, trigger)
        self.new_steps.add(step.no)
        self.steps[step.no] = replace(step, state=target, settled=(self.seq << HOP_BITS) + len(self.hops))
        self.hops.append(Hop(step.no, trigger, None, target, len(self.causes) - 1, digest=digest))
        self._count_out(step.no)

    def move_run(self, trigger: RunTrigger, *, of: int | None = None) -> None:
        """The only way a run changes state."""
        before = None if trigger is RunTrigger.CREATED else self.state
        self.state = RUN.target(before, trigger)
        if self.state in RUN_TERMINAL:
            self.ended_at, self.due_at = self.now, None
        self.hops.append(
            Hop(
                RUN_ENTITY,
                trigger,
                before,
                self.state,
                len(self.causes) - 1,
                of,
                category=self.category if self.state in RUN_TERMINAL else None,
                error=self.error if self.state in RUN_TERMINAL else None,
            )
        )

    def blame(self, category: Category | None, error: str | None) -> None:
        """Record the first failure as the failure of the run."""
        if self.category is None:
            self.category, self.error = category, error

    def close_attempt(self, step: Step, state: AttemptState, outcome: Outcome | None = None, **said: Any) -> None:
        """Record how the attempt that holds the lease ended."""
        if step.worker is None or step.claimed_at is None:
            return
        if step.note is not None and step.note.checked == step.fence:
            return
        if said.get("category") is not None or said.get("error") is not None:
            self.only_hot = False
        self.attempts.append(
            Attempt(
                tenant=step.tenant,
                run_id=step.run_id,
                no=step.no,
                fence=step.fence,
                number=step.attempts + 1,
                state=state,
                worker=step.worker,
                started_at=step.claimed_at,
                ended_at=self.now,
                cost=self._cost(outcome),
                **said,
            )
        )
        if outcome:
            for emitted in outcome.emit:
                self.emit(emitted.name, emitted.payload)

    def _cost(self, outcome: Outcome | None) -> bytes | None:
        """What an attempt cost. One without a cost is found all the same where a shared budget counts attempts."""
        cost, policy = None if outcome is None else outcome.cost, self.snapshot.policy
        return b"{}" if cost is None and policy is not None and policy.counts_attempts else cost

    def emit(self, name: str, payload: bytes) -> None:
        run = self.snapshot.run
        self.rows.add(
            OutboxEntry(
                tenant=run.tenant,
                run_id=run.id,
                seq=self.seq,
                number=len(self.rows.of(OutboxEntry)),
                name=name,
                payload=payload,
                created_at=self.now,
            )
        )

    # -- messages --------------------------------------------------------------------------------------------------
    def take_message(self, name: str, no: int, accepts: Callable[[Message], bool] | None = None) -> Message | None:
        """Consume the oldest unconsumed message of this name that is accepted, if any."""
        if self.inbox_count == 0:
            return None
        if self.inbox is None:
            raise Missing(Need(inbox=True))
        for message in self.inbox:
            if message.name == name and (accepts is None or accepts(message)):
                self.inbox.remove(message)
                self.inbox_count -= 1
                taken = Consumed(tenant=message.tenant, run_id=message.run_id, id=message.id, consumed_by=no)
                self.rows.add(taken)
                return message
        return None

    def keep_message(self, message: Message) -> None:
        self.rows.add(message)
        if message.consumed_by is None:
            self.inbox_count += 1
            if self.inbox is not None:
                self.inbox.append(message)

    def _changed(self) -> tuple[Step, ...]:
        if not self.new_steps:
            return tuple(self.steps.values())
        return tuple([step for no, step in self.steps.items() if no not in self.new_steps])

    def _still_held(self) -> tuple[Step, ...]:
        """Steps that were claimed in this decision and are still claimed at its end."""
        rows = [self.steps[no] for no in dict.fromkeys(self.claimed)]
        return tuple([step for step in rows if step.worker is not None])

    # -- the end ---------------------------------------------------------------------------------------------------
    def decision(self, replies: Iterable[Reply]) -> Decision:
        before = self.snapshot.run
        answers = tuple(replies)
        if not self.causes:
            return Decision(was=before.seq, run=before, replies=answers)
        entry = seal(
            Entry(before.tenant, before.id, self.seq, self.now, tuple(self.causes), tuple(self.hops)), before.head
        )
        run = replace(
            before,
            state=self.state,
            seq=self.seq,
            head=entry.hash,
            open=self.open,
            moving=self.moving,
            leased=self.leased,
            due_at=self.due_at,
            ended_at=self.ended_at,
            moved_at=self.now,
        )
        only_hot = self.only_hot and not self.new_steps
        if self._has_rare_changes(before):
            only_hot, run = False, self._with_rare_fields(run)
        return Decision(
            was=before.seq,
            run=run,
            replies=answers,
            changed=self._changed(),
            added=tuple([self.steps[no] for no in sorted(self.new_steps)]) if self.new_steps else (),
            claimed=self._still_held() if self.claimed else (),
            attempts=tuple(self.attempts),
            rows=self.rows,
            entry=entry,
            only_hot=only_hot,
        )

    def _has_rare_changes(self, before: Run) -> bool:
        """Whether a field of the run changes that is unchanged in the common case."""
        return (
            self.failed != before.failed
            or self.undoing != before.undoing
            or self.inbox_count != before.inbox
            or self.category is not before.category
            or self.error != before.error
            or self.cause is not before.cause
            or self.policy is not before.policy
            or self.rollback is not before.rollback
            or self.started_at != before.started_at
        )

    def _with_rare_fields(self, run: Run) -> Run:
        return replace(
            run,
            failed=self.failed,
            undoing=self.undoing,
            inbox=self.inbox_count,
            cause=self.cause,
            policy=self.policy,
            category=self.category,
            error=self.error,
            rollback=self.rollback,
            started_at=self.started_at,
        )
