"""What must be true at every commit, worked out from rows and journal alone.

The kernel keeps counters, timers and states as it goes; here each is counted again from scratch, before and after every
transaction of the model database. What it finds is a violation of one of the invariants I1 to I15 or of promise 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from stepkeep.kernel.definition import SECOND, Backoff, CompensateWhen, Effect, Retry
from stepkeep.kernel.journal import RUN_ENTITY, Entry, Hop, SealedEntry, open_entry
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Attempt, Run, Step
from stepkeep.kernel.states import (
    NEVER_RETRIED,
    RUN_TERMINAL,
    STEP_MOVING,
    STEP_TERMINAL,
    STEP_WAITING,
    AttemptState,
    OnFailure,
    Phase,
    Rollback,
    RunState,
    StepState,
)
from stepkeep.kernel.tables import RUN, STEP, RunTrigger, StepTrigger
from stepkeep.store.protocol import RunKey, Write
from stepkeep_lab.simulation.ledger import Ledger
from stepkeep_lab.simulation.stage import Stage
from stepkeep_lab.simulation.tables import Tables

BEFORE_STOPPING = frozenset({RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED, RunState.VALIDATING})
TOLD = frozenset(
    {
        AttemptState.SUCCEEDED,
        AttemptState.FAILED,
        AttemptState.TIMED_OUT,
        AttemptState.WAITED,
        AttemptState.RELEASED,
    }
)
"""Ends of an attempt that only its worker can tell of."""

UNHEALTHY_FOR = 70.0
"""How long a fault somewhere may hold up what others hold (seconds): locks of dead sessions, retries, pauses."""


class Memory:
    """What is remembered of one run between commits."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.folded: dict[int, str] = {}
        self.fences: dict[int, int] = {}
        self.claims: set[tuple[int, int]] = set()
        self.refused: set[int] = set()
        self.opened: list[int] = []
        self.entered: dict[int, tuple[int, int]] = {}
        self.failed_on = 0
        self.at = 0


class Auditor:
    """Listens to the database. `plan_of` gives a run's plan; `met` collects every (machine, state, trigger) seen."""

    def __init__(self, stage: Stage, plan_of: Callable[[Run], Plan]) -> None:
        self._stage, self._plan_of = stage, plan_of
        self._tables: Tables = stage.database.tables
        self._ledger: Ledger = stage.ledger
        self._runs: dict[RunKey, Memory] = {}
        self.met: set[tuple[str, str | None, str]] = set()
        self.commits = 0
        stage.database.before_commit = self.before
        stage.database.committed = self.after

    def _must(self, holds: bool, said: str) -> None:
        if not holds:
            self._ledger.violation(said)

    # -- before ------------------------------------------------------------------------------------------------------
    def before(self, what: Write, recorded_at: int | None) -> None:
        """A transaction against the rows it is about to replace. What was decided without a look was `recorded_at`."""
        entries = {(entry.tenant, entry.run_id): entry for entry in what.entries}
        for change in what.runs:
            old, new = self._tables.runs[change.run.tenant, change.run.id], change.run
            entry = entries.get((new.tenant, new.id))
            self._must(not self._is_aside(new.tenant, new.id), f"run {new.id} is quarantined and moves")
            self._must(old.state not in RUN_TERMINAL, f"I1: run {new.id} had ended {old.state} and changes")
            self._must(entry is not None and entry.seq == old.seq + 1 == new.seq, f"I9: run {new.id} has a gap")
            if entry is not None:
                self._chained(old, new, entry)
        for attempt in what.attempts:
            self._attempt(attempt, entries.get((attempt.tenant, attempt.run_id)), recorded_at)
        for step in what.steps:
            self._lease(step)
            self._must(not self._is_aside(step.tenant, step.run_id), f"a step of {step.run_id} moves in quarantine")
        if not what.runs and not what.new_runs:
            for step in what.steps:
                self._renewal(step)

    def _is_aside(self, tenant: str, run_id: str) -> bool:
        return any(
            (one.tenant, one.run_id) == (tenant, run_id) and one.released_at is None for one in self._tables.quarantine
        )

    def _chained(self, old: Run, new: Run, entry: SealedEntry) -> None:
        sealed = hashlib.sha256(old.head + entry.body).digest()
        self._must(new.head == entry.hash == sealed, f"I18: the chain of run {new.id} is broken at {entry.seq}")
        # Between two ticks of a coarse clock, who has read it knows better.
        latest = self._stage.now() + round(self._stage.scenario.tick * 1_000_000)
        memory = self._runs[new.tenant, new.id]
        self._must(memory.at <= entry.at <= latest, f"the journal of {new.id} goes back in time, or ahead of it")
        memory.at = entry.at

    def _renewal(self, step: Step) -> None:
        old = self._tables.steps[step.tenant, step.run_id][step.no]
        self._must(
            old.fence == step.fence and old.worker == step.worker and old.state is step.state,
            f"I3: a lease on step {step.no} of {step.run_id} was renewed for somebody else",
        )

    def _lease(self, step: Step) -> None:
        """I12: a lease that goes on never becomes shorter."""
        old = self._tables.steps[step.tenant, step.run_id][step.no]
        if old.worker is not None and (old.worker, old.fence) == (step.worker, step.fence):
            longer = old.due_at is not None and step.due_at is not None and old.due_at <= step.due_at
            self._must(longer, f"I12: the lease on step {step.no} of {step.run_id} became shorter")

    def _attempt(self, attempt: Attempt, entry: SealedEntry | None, recorded_at: int | None) -> None:
        """I2, I3: an outcome is taken from the holder of the latest claim, while its lease stands."""
        old = self._tables.steps[attempt.tenant, attempt.run_id][attempt.no]
        title = f"step {attempt.no} of {attempt.run_id} under fence {attempt.fence}"
        held = (old.worker, old.fence) == (attempt.worker, attempt.fence)
        self._must(held, f"I3: {title}: an outcome was taken from somebody who does not hold it")
        if entry is None or old.due_at is None:
            self._ledger.violation(f"I2: {title}: an outcome without a lease or an entry")
            return
        if attempt.state in TOLD:
            believed_at = max(entry.at, recorded_at or 0)
            self._must(old.due_at >= believed_at, f"I3: {title}: believed after its lease had run out")
        if attempt.state is AttemptState.LOST:
            self._must(old.due_at < entry.at, f"I12: {title}: declared lost while its lease stood")
            self._healthy_keep_their_leases(attempt, title)

    def _healthy_keep_their_leases(self, attempt: Attempt, title: str) -> None:
        """I12: while nothing goes wrong anywhere, nobody loses a lease."""
        if any(one.run_id == attempt.run_id for one in self._tables.quarantine):
            return
        quiet = self._stage.loop.time() - self._stage.trouble_at
        if quiet > UNHEALTHY_FOR and attempt.started_at > self._stage.now() - (quiet - UNHEALTHY_FOR) * SECOND:
            self._ledger.violation(f"I12: {title}: lost by a worker to which nothing happened")

    # -- after -------------------------------------------------------------------------------------------------------
    def after(self, what: Write) -> None:
        """The runs that a transaction touched, as they are now."""
        self.commits += 1
        for new in what.new_runs:
            memory = self._runs[new.run.tenant, new.run.id] = Memory(self._plan_of(new.run))
            memory.at = new.entry.at
            self._fold(memory, open_entry(new.entry.body))
        for sealed in what.entries:
            self._fold(self._runs[sealed.tenant, sealed.run_id], open_entry(sealed.body))
        for run in (*(new.run for new in what.new_runs), *(change.run for change in what.runs)):
            self._whole(self._tables.runs[run.tenant, run.id], self._runs[run.tenant, run.id])

    def _fold(self, memory: Memory, entry: Entry) -> None:
        """I9, I15: every hop is a row of its table and starts where the last one ended."""
        for hop in entry.hops:
            is_run = hop.no == RUN_ENTITY
            source = memory.folded.get(hop.no)
            kind = "run" if is_run else "step"
            self._must(hop.source == source, f"I9: {kind} {hop.no} of {entry.run_id} left {hop.source}, was {source}")
            if is_run:
                target = RUN.targets.get((_run_state(hop.source), RunTrigger(hop.trigger)))
            else:
                target = STEP.targets.get((_step_state(hop.source), StepTrigger(hop.trigger)))  # type: ignore[assignment]
            self._must(target == hop.target, f"I15: no row for {kind} {hop.source} by {hop.trigger} to {hop.target}")
            self.met.add((kind, hop.source, hop.trigger))
            if hop.trigger == StepTrigger.RULES_PASSED:
                self._judged(memory, hop, entry)
            if not is_run:
                self._fold_step(memory, hop, entry)
            memory.folded[hop.no], memory.entered[hop.no] = hop.target, (entry.seq, hop.by)

    def _judged(self, memory: Memory, hop: Hop, entry: Entry) -> None:
        """A step with rules succeeds only after they were evaluated, which takes an event of its own."""
        if hop.no == RUN_ENTITY:
            check = memory.plan.check
            looked = check is None or memory.folded.get(check.no) == StepState.SUCCEEDED
        else:
            planned = memory.plan.at(hop.no)
            rules = planned.has_rules and planned.phase is Phase.MAIN
            looked = not rules or memory.entered.get(hop.no) != (entry.seq, hop.by)
        self._must(looked, f"{_title(hop)} of {entry.run_id} passed its rules, but nobody looked at them")

    def _fold_step(self, memory: Memory, hop: Hop, entry: Entry) -> None:
        planned, title = memory.plan.at(hop.no), f"step {hop.no} of {entry.run_id}"
        if hop.trigger == StepTrigger.CLAIMED:
            fence = memory.fences[hop.no] = memory.fences.get(hop.no, 0) + 1
            self._must(hop.fence == fence, f"I3: {title}: its fence did not grow by one")
            memory.claims.add((hop.no, fence))
            self._must(planned.executor is not None, f"I4: {title}: a worker claimed what is not for workers")
            if planned.phase is Phase.MAIN:
                self._dependencies_settled(memory, hop.no, title)
        if hop.source == StepState.AWAITING_APPROVAL and hop.target in (StepState.FAILED, StepState.SKIPPED):
            memory.refused.add(hop.no)
        if hop.trigger == StepTrigger.DEPENDENCIES_MET and planned.phase is Phase.UNDO:
            memory.opened.append(hop.no)
        if hop.trigger == StepTrigger.RETRY_SCHEDULED:
            self._backoff(memory, hop, entry)
        if hop.target == StepState.FAILED and planned.phase is Phase.MAIN and planned.on_failure is OnFailure.CONTINUE:
            memory.failed_on += memory.folded[RUN_ENTITY] in BEFORE_STOPPING

    def _dependencies_settled(self, memory: Memory, no: int, title: str) -> None:
        """I4: what is claimed has every dependency settled in a way that its edge allows, and no gate refused."""
        for edge in memory.plan.steps[no].definition.depends_on:
            other = memory.plan.numbers[edge.step]
            fits = memory.folded.get(other) in edge.allow and other not in memory.refused
            self._must(fits, f"I4: {title} is claimed, but {edge.step} is {memory.folded.get(other)}")

    def _backoff(self, memory: Memory, hop: Hop, entry: Entry) -> None:
        """I10: a retry comes neither sooner nor later than its policy says."""
        retry, number = memory.plan.at(hop.no).retry, hop.attempt or 1
        hopeless = hop.category in NEVER_RETRIED or hop.category not in retry.on
        self._must(not hopeless, f"I10: step {hop.no} of {entry.run_id} retries a failure of category {hop.category}")
        if hop.due_at is None or (entry.run_id, hop.no, hop.fence or 0) in self._ledger.asked_delay:
            return
        longest = _longest(retry, number)
        delay = hop.due_at - entry.at
        fits = longest * (1 - retry.jitter) - 1 <= delay <= longest
        self._must(fits, f"I10: step {hop.no} of {entry.run_id} retries after {delay}, not after {longest}")

    # -- the whole run -----------------------------------------------------------------------------------------------
    def _whole(self, run: Run, memory: Memory) -> None:
        key = (run.tenant, run.id)
        rows = self._tables.steps[key]
        states = {no: str(row.state) for no, row in rows.items()} | {RUN_ENTITY: str(run.state)}
        self._must(states == memory.folded, f"I9: the rows of {run.id} are not what its journal says")
        self._counters(run, rows, memory)
        self._cause(run, rows, memory)
        self._limits(run, rows, memory)
        self._messages(run, rows)
        self._rollback(run, rows, memory)

    def _counters(self, run: Run, rows: dict[int, Step], memory: Memory) -> None:
        size, found = memory.plan.size, rows.values()
        kept = sum(message.consumed_by is None for message in self._tables.messages[run.tenant, run.id].values())
        counted = {
            "open": sum(row.no < size and row.state not in STEP_TERMINAL for row in found),
            "moving": sum(row.state in STEP_MOVING for row in found),
            "leased": sum(row.worker is not None for row in found),
            "undoing": sum(size <= row.no < 2 * size and row.state not in STEP_TERMINAL for row in found),
            "inbox": kept,
            "failed": memory.failed_on,
        }
        for name, number in counted.items():
            self._must(getattr(run, name) == number, f"I9: run {run.id} counts {name} wrong: {number} there are")
        live = run.business_key is not None and run.state not in RUN_TERMINAL
        holder = self._tables.business.get((run.tenant, run.business_key or ""))
        self._must(not live or holder == run.id, f"I14: run {run.id} lives without its business key")

    def _cause(self, run: Run, rows: dict[int, Step], memory: Memory) -> None:
        """Promise 6: a ready step, a live lease, a timer, or a declared wait; and the run's state says which."""
        moving = [row for row in rows.values() if row.state in STEP_MOVING]
        title = f"promise 6: run {run.id} is {run.state}"
        if run.state in RUN_TERMINAL:
            self._must(all(row.state in STEP_TERMINAL for row in rows.values()), f"{title} with open steps")
        elif run.state is RunState.IDLE:
            self._must(all(row.state is StepState.PENDING for row in rows.values()), f"{title}, yet steps moved")
        elif run.state is RunState.BLOCKED:
            waits = any(row.state in STEP_WAITING for row in rows.values())
            self._must(not moving and waits, f"{title} without cause")
        elif run.state is RunState.STOPPING:
            held = any(row.worker is not None for row in rows.values())
            loose = all(row.state in STEP_TERMINAL or row.worker is not None for row in rows.values())
            self._must(held and loose and run.due_at is not None, f"{title}, but not only what is in flight is left")
        else:
            self._must(bool(moving), f"{title}, but nothing moves")
        for row in moving:
            self._must(row.ready_at is not None or row.due_at is not None, f"{title}: nothing ever moves {row.no}")
        if run.state not in RUN_TERMINAL and run.state is not RunState.IDLE:
            for row in rows.values():
                forgotten = row.state is StepState.PENDING and row.no < memory.plan.size and row.unmet <= 0
                self._must(not forgotten, f"{title}: step {row.no} waits for nothing and was not opened")
            timed = memory.plan.definition.timeout is None or run.due_at is not None
            self._must(timed or run.state is RunState.COMPENSATING, f"{title} and forgot its timeout")

    def _limits(self, run: Run, rows: dict[int, Step], memory: Memory) -> None:
        """I10 and I2: attempts and losses have their caps, and every claim has one end or is held."""
        held = set()
        for row in rows.values():
            retry = memory.plan.at(row.no).retry
            self._must(row.attempts <= retry.max_attempts, f"I10: step {row.no} of {run.id}: {row.attempts} attempts")
            self._must(row.losses <= retry.max_losses, f"I10: step {row.no} of {run.id}: {row.losses} losses")
            checked = row.note is not None and row.note.checked == row.fence
            if row.worker is not None and not checked:
                held.add((row.no, row.fence))
        ended = set(self._tables.attempts[run.tenant, run.id])
        accounted = memory.claims == ended | held and not ended & held
        self._must(accounted, f"I2: the claims of {run.id} are not what its attempts and leases say")

    def _messages(self, run: Run, rows: dict[int, Step]) -> None:
        """I6: nobody waits for a message that lies in the inbox."""
        if run.state not in (RunState.RUNNING, RunState.BLOCKED) or not run.inbox:
            return
        messages = self._tables.messages[run.tenant, run.id].values()
        kept = {message.name for message in messages if message.consumed_by is None}
        for row in rows.values():
            waits = row.state is StepState.AWAITING_EVENT and row.note is not None and row.note.event in kept
            self._must(not waits, f"I6: step {row.no} of {run.id} waits for a message that has arrived")

    def _rollback(self, run: Run, rows: dict[int, Step], memory: Memory) -> None:
        """I7: hooks exist for exactly what is to be undone, and run one by one, last completed first."""
        size, plan = memory.plan.size, memory.plan
        hooks = {no: row for no, row in rows.items() if size <= no < 2 * size}
        if run.state in RUN_TERMINAL:
            self._undone(run, rows, memory)
        if not hooks:
            self._must(run.state not in (RunState.COMPENSATING, RunState.ROLLED_BACK), f"I7: {run.id} undoes nothing")
            return
        hooked = [rows[no] for no in range(size) if _happened(plan, rows[no]) and plan.undo_of(no) is not None]
        order = [row.no + size for row in sorted(hooked, key=lambda row: row.settled or 0, reverse=True)]
        self._must(sorted(hooks) == sorted(order), f"I7: {run.id} undoes {sorted(hooks)}, not {sorted(order)}")
        self._must(memory.opened == order[: len(memory.opened)], f"I7: {run.id} undoes out of order")
        one_by_one = all(hooks[no].state in STEP_TERMINAL for no in memory.opened[:-1] if no in hooks)
        self._must(one_by_one, f"I7: {run.id} runs two hooks at once")

    def _undone(self, run: Run, rows: dict[int, Step], memory: Memory) -> None:
        """I7: what was to be rolled back was, or the run says that it was not."""
        plan, size = memory.plan, memory.plan.size
        wants = run.policy is OnFailure.COMPENSATE or (run.cause is not None and plan.definition.compensate_always)
        stopped = "stopping" in self._states_of(run)
        happened = [rows[no] for no in range(size) if _happened(plan, rows[no])]
        hooked = [row for row in happened if plan.undo_of(row.no) is not None]
        if wants and stopped and hooked:
            ended = (RunState.ROLLED_BACK, RunState.FAILED)
            self._must(run.state in ended, f"I7: {run.id} ended {run.state} without undoing what it did")
            left = any(plan.steps[row.no].definition.effect is not Effect.READ for row in happened if row not in hooked)
            undone = all((no := row.no + size) in rows and rows[no].state is StepState.SUCCEEDED for row in hooked)
            expected = Rollback.COMPLETE if undone and not left else Rollback.PARTIAL
            self._must(run.rollback is expected, f"I7: {run.id} calls its rollback {run.rollback}, it is {expected}")
            whole = run.state is RunState.ROLLED_BACK
            self._must(whole == (expected is Rollback.COMPLETE), f"I7: {run.id} ended {run.state} after {expected}")

    def _states_of(self, run: Run) -> list[str]:
        entries = self._tables.journal[run.tenant, run.id].values()
        return [hop.target for entry in entries for hop in open_entry(entry.body).hops if hop.no == RUN_ENTITY]


def _happened(plan: Plan, row: Step) -> bool:
    attempted = plan.steps[row.no].definition.compensate_when is CompensateWhen.ATTEMPTED
    return row.state is StepState.SUCCEEDED or (attempted and row.fence > 0)


def _longest(retry: Retry, number: int) -> int:
    """The pause after the attempt of this number, without jitter."""
    growth = {Backoff.CONSTANT: 1.0, Backoff.LINEAR: float(number), Backoff.EXPONENTIAL: retry.factor ** (number - 1)}
    raw = int(retry.initial * growth[retry.backoff])
    return raw if retry.max is None else min(raw, retry.max)


def _title(hop: Hop) -> str:
    return "the run" if hop.no == RUN_ENTITY else f"step {hop.no}"


def _run_state(text: str | None) -> RunState | None:
    return None if text is None else RunState(text)


def _step_state(text: str | None) -> StepState | None:
    return None if text is None else StepState(text)
