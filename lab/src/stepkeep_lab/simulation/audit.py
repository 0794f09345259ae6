"""What must be true at every commit of the model database, beside the invariants of rows and journal.

It checks each transaction against the rows that it replaces (leases, chain, time, quarantine), and every run that it
touched afterwards. Violations go to the ledger. The simulation attaches it to its database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from msgspec import UNSET

from stepkeep.kernel.decide.resources import awaits_resources
from stepkeep.kernel.definition import SECOND, Backoff, Retry
from stepkeep.kernel.machine.journal import Entry, Hop, SealedEntry, open_entry
from stepkeep.kernel.machine.rows import Attempt, ChildState, Recall, Run, Step
from stepkeep.kernel.machine.states import (
    NEVER_RETRIED,
    RUN_TERMINAL,
    STEP_TERMINAL,
    AttemptState,
    Phase,
    RunState,
    StepState,
)
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import Plan
from stepkeep.store.change import NewRun, RunKey, Write
from stepkeep.store.rows import MailboxMessage, SlotRow
from stepkeep_lab.invariants.journal import Arrow, JournalFold
from stepkeep_lab.invariants.rows import check_rows
from stepkeep_lab.invariants.violation import Violation
from stepkeep_lab.simulation.gathering import missed
from stepkeep_lab.simulation.ledger import Ledger
from stepkeep_lab.simulation.reassigned import wrong_reassignments
from stepkeep_lab.simulation.stage import Stage
from stepkeep_lab.simulation.tables import Tables

TOLD = frozenset(
    {
        AttemptState.SUCCEEDED,
        AttemptState.FAILED,
        AttemptState.TIMED_OUT,
        AttemptState.WAITED,
        AttemptState.RELEASED,
    }
)
"""Ends of an attempt that only its worker can report."""

UNHEALTHY_FOR = 70.0
"""How long a fault may delay other workers (seconds): locks of dead sessions, retries, pauses."""


class Auditor:
    """Listens to the database. `plan_of` gives a run's plan; `met` collects every (machine, state, trigger) seen."""

    def __init__(self, stage: Stage, plan_of: Callable[[Run], Plan]) -> None:
        self._stage, self._plan_of = stage, plan_of
        self._tables: Tables = stage.database.tables
        self._ledger: Ledger = stage.ledger
        self._folds: dict[RunKey, JournalFold] = {}
        self._latest: dict[RunKey, int] = {}
        self.met: set[Arrow] = set()
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
                self._deadline(old, open_entry(entry.body))
                for said in wrong_reassignments(self._tables, self._plan_of(old), open_entry(entry.body)):
                    self._ledger.violation(said)
        for new_run in what.new_runs:
            self._migrated(new_run)
        for attempt in what.attempts:
            self._attempt(attempt, entries.get((attempt.tenant, attempt.run_id)), recorded_at)
        for step in what.steps:
            self._lease(step)
            self._child(step, what)
            self._must(not self._is_aside(step.tenant, step.run_id), f"a step of {step.run_id} moves in quarantine")
            self._order(step, what, entries.get((step.tenant, step.run_id)))
        if not what.runs and not what.new_runs:
            for step in what.steps:
                self._renewal(step)

    def _child(self, step: Step, what: Write) -> None:
        """A step that ends before its child has called the child back, now or before."""
        old = self._tables.steps[step.tenant, step.run_id][step.no]
        activation = None if old.note is None else old.note.activation
        if activation is None or old.state is not StepState.AWAITING_CHILDREN or step.state not in STEP_TERMINAL:
            return
        place = (step.tenant, step.run_id, step.no, activation)
        link = self._tables.children.links[place]
        lives = link.state in (ChildState.REQUESTED, ChildState.STARTED)
        called = link.recall or any(
            (one.tenant, one.run_id, one.no, one.activation) == place for one in what.rows.of(Recall)
        )
        self._must(not lives or bool(called), f"step {step.no} of {step.run_id} ended, and did not call its child back")

    def _migrated(self, made: NewRun) -> None:
        """The run in the place of a migrated one keeps its timeout, its slot, and the ends of what it waits for."""
        entry = open_entry(made.entries[0].body)
        told = (entry.causes[0].detail or {}).get("continues") or {}
        if told.get("as") != "migrate":
            return
        key = (made.run.tenant, told["run"])
        old, run, said = self._tables.runs[key], made.run, f"migration: run {made.run.id}"
        was, now = self._plan_of(old), self._plan_of(run)
        if was.definition.timeout == now.definition.timeout and run.state not in RUN_TERMINAL:
            self._must(run.due_at == old.due_at, f"{said} times out at {run.due_at}, and was to at {old.due_at}")
        slot = self._tables.slots.rows.get(key)
        if slot is not None and slot.granted_at is not None:
            held = any(one.granted_at is not None for one in made.rows.of(SlotRow))
            self._must(held, f"{said} gave the slot back that it had")
        waiting = {was.at(row.no).name: row for row in self._tables.steps[key].values() if row.no < was.size}
        for row in made.steps:
            before = waiting.get(now.at(row.no).name)
            asleep = before is not None and before.state is row.state is StepState.AWAITING_EVENT and not before.fence
            if asleep and before is not None and now.at(row.no).definition.wait == was.at(before.no).definition.wait:
                ends = before.due_at if before.due_at is None else max(before.due_at, entry.at)
                self._must(row.due_at == ends, f"{said} ends the wait {row.no} at {row.due_at}, and was to at {ends}")

    def _order(self, step: Step, what: Write, entry: SealedEntry | None) -> None:
        """I19: a claim never overtakes a claimable step of the same run and queue with a lower number. Steps that need
        resources are claimed in an order of their own."""
        rows = self._tables.steps[step.tenant, step.run_id]
        if entry is None or step.worker is None or step.fence == rows[step.no].fence:
            return
        if awaits_resources(rows[step.no].ready_at):
            return
        changed = {row.no: row for row in what.steps if row.run_id == step.run_id}
        # A decision on remembered rows may be ahead of a coarse clock by one tick.
        before = entry.at - round(self._stage.scenario.tick * SECOND)
        overtaken = [
            no
            for no, old in rows.items()
            if no < step.no
            and (row := changed.get(no, old)).ready_at is not None
            and row.ready_at <= before
            and row.queue == step.queue
        ]
        self._must(not overtaken, f"I19: step {step.no} of {step.run_id} was claimed before {overtaken}")

    def _is_aside(self, tenant: str, run_id: str) -> bool:
        return any(
            (one.tenant, one.run_id) == (tenant, run_id) and one.released_at is None for one in self._tables.quarantine
        )

    def _chained(self, old: Run, new: Run, entry: SealedEntry) -> None:
        sealed = hashlib.sha256(old.head + entry.body).digest()
        self._must(new.head == entry.hash == sealed, f"I18: the chain of run {new.id} is broken at {entry.seq}")
        # Between two ticks of a coarse clock, who has read it knows better.
        latest = self._stage.now() + round(self._stage.scenario.tick * 1_000_000)
        key = (new.tenant, new.id)
        self._must(
            self._latest[key] <= entry.at <= latest, f"the journal of {new.id} goes back in time, or ahead of it"
        )
        self._latest[key] = entry.at

    def _deadline(self, old: Run, entry: Entry) -> None:
        """Nothing goes on with a run after its timeout: whatever comes later meets the timeout first."""
        has_timeout = old.due_at is not None and old.state not in (RunState.IDLE, RunState.STOPPING)
        late = has_timeout and old.due_at is not None and old.due_at <= entry.at
        met = entry.causes[0].event in ("time_came", "cancel_requested")
        self._must(met or not late, f"{entry.causes[0].event} went on with run {old.id} after its deadline")

    def _renewal(self, step: Step) -> None:
        old = self._tables.steps[step.tenant, step.run_id][step.no]
        self._must(
            old.fence == step.fence and old.worker == step.worker and old.state is step.state,
            f"I3: a lease on step {step.no} of {step.run_id} was renewed for another worker",
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
        if entry is not None and old.worker is None and self._went_ahead(attempt, old, open_entry(entry.body)):
            return
        held = (old.worker, old.fence) == (attempt.worker, attempt.fence)
        self._must(held, f"I3: {title}: an outcome was taken from a worker that does not hold it")
        if entry is None or old.due_at is None:
            self._ledger.violation(f"I2: {title}: an outcome without a lease or an entry")
            return
        if attempt.state in TOLD:
            believed_at = max(entry.at, recorded_at or 0)
            self._must(old.due_at >= believed_at, f"I3: {title}: believed after its lease had run out")
        if attempt.state is AttemptState.CANCELLED:
            self._traced(attempt, old, open_entry(entry.body), title)
        if attempt.state is AttemptState.LOST:
            self._must(old.due_at < entry.at, f"I12: {title}: declared lost while its lease stood")
            self._healthy_keep_their_leases(attempt, title)

    def _went_ahead(self, attempt: Attempt, old: Step, entry: Entry) -> bool:
        """Whether a flow was claimed and reported in one entry, after the end of one of its calls."""
        plan = self._folds[attempt.tenant, attempt.run_id].plan
        claims = [
            place
            for place, hop in enumerate(entry.hops)
            if (hop.no, hop.trigger, hop.fence) == (attempt.no, StepTrigger.CLAIMED, attempt.fence)
        ]
        if len(claims) != 1 or attempt.fence != old.fence + 1:
            return False
        return any(
            hop.target == StepState.SUCCEEDED and hop.no >= plan.size and plan.at(hop.no).owner == attempt.no
            for hop in entry.hops[: claims[0]]
        )

    def _traced(self, attempt: Attempt, old: Step, entry: Entry, title: str) -> None:
        """An attempt that was cancelled without a report of its worker is in doubt; rules have no effect."""
        planned = self._folds[attempt.tenant, attempt.run_id].plan.at(attempt.no)
        rules = planned.phase is Phase.CHECK or old.state is StepState.VALIDATING
        reported = any(hop.no == attempt.no and entry.causes[hop.by].event == "step_reported" for hop in entry.hops)
        said = attempt.error is not None and attempt.error.startswith("IN_DOUBT")
        traced = said or reported or rules
        self._must(traced, f"{title}: cancelled in flight, and nothing says that its effect is in doubt")

    def _healthy_keep_their_leases(self, attempt: Attempt, title: str) -> None:
        """I12: while no fault is injected, no worker loses a lease. A renewal may wait for any of its runs."""
        if any(one.run_id == attempt.run_id for one in self._tables.quarantine):
            return
        loop, locks = self._stage.loop, self._stage.database.locks
        crowded_at = max(locks.crowded_at.values(), default=None)
        if crowded_at is not None and attempt.started_at < self._stage.now() - (loop.time() - crowded_at) * SECOND:
            return
        quiet = loop.time() - self._stage.trouble_at
        if quiet > UNHEALTHY_FOR and attempt.started_at > self._stage.now() - (quiet - UNHEALTHY_FOR) * SECOND:
            self._ledger.violation(f"I12: {title}: lost by a worker to which nothing happened")

    # -- after -------------------------------------------------------------------------------------------------------
    def after(self, what: Write) -> None:
        """The runs that a transaction touched, as they are now."""
        self.commits += 1
        for one in what.attempts:
            self._ledger.committed[one.run_id, one.no, one.fence] = self._stage.now()
        for sent in what.rows.of(MailboxMessage):
            self._ledger.saved_at[sent.key, sent.id] = self._stage.now()
        for new in what.new_runs:
            key = (new.run.tenant, new.run.id)
            self._folds[key], self._latest[key] = JournalFold(self._plan_of(new.run)), new.entries[0].at
            for entry in new.entries[:-1]:
                self.met.update(self._folds[key].take(open_entry(entry.body)))
        last = [*(new.entries[-1] for new in what.new_runs), *what.entries]
        touched = {(entry.tenant, entry.run_id): entry for entry in last}
        for key, sealed in touched.items():
            try:
                self._check(key, open_entry(sealed.body))
            except Violation as found:
                self._ledger.violation(str(found))

    def _check(self, key: RunKey, entry: Entry) -> None:
        fold, run, rows = self._folds[key], self._tables.runs[key], self._tables.steps[key]
        self.met.update(fold.take(entry))
        for hop in entry.hops:
            if hop.trigger == StepTrigger.RETRY_SCHEDULED:
                self._backoff(fold.plan, hop, entry)
        fold.check(run, rows, self._tables.attempts[key].keys())
        inbox = [message for message in self._tables.messages[key].values() if message.consumed_by is None]
        check_rows(fold.plan, run, rows, [message.name for message in inbox])
        if run.state in (RunState.RUNNING, RunState.BLOCKED, RunState.PAUSED):
            for said in missed(fold.plan, rows.values(), inbox):
                self._ledger.violation(f"I6: run {run.id}: {said}")
        live = run.business_key is not None and run.state not in RUN_TERMINAL
        holder = self._tables.business.get((run.tenant, run.business_key or ""))
        self._must(not live or holder == run.id, f"I14: run {run.id} lives without its business key")

    def _backoff(self, plan: Plan, hop: Hop, entry: Entry) -> None:
        """I10: a retry comes neither sooner nor later than its policy says."""
        row = self._tables.steps[entry.tenant, entry.run_id][hop.no]
        retry, number = plan.of(row).retry, (hop.attempt or 1) - (0 if row.note is None else row.note.spent)
        hopeless = hop.category in NEVER_RETRIED or hop.category not in retry.on
        self._must(not hopeless, f"I10: step {hop.no} of {entry.run_id} retries a failure of category {hop.category}")
        said = (entry.causes[hop.by].detail or {}).get("error_class")
        named = retry.classes is UNSET or said is None or said in retry.classes
        self._must(named, f"I10: step {hop.no} of {entry.run_id} retries a failure of the class {said}")
        if hop.due_at is None or (entry.run_id, hop.no, hop.fence or 0) in self._ledger.asked_delay:
            return
        longest = _longest(retry, number)
        delay = hop.due_at - entry.at
        fits = longest * (1 - retry.jitter) - 1 <= delay <= longest
        self._must(fits, f"I10: step {hop.no} of {entry.run_id} retries after {delay}, not after {longest}")


def _longest(retry: Retry, number: int) -> int:
    """The pause after the attempt of this number, without jitter."""
    growth = {Backoff.CONSTANT: 1.0, Backoff.LINEAR: float(number), Backoff.EXPONENTIAL: retry.factor ** (number - 1)}
    raw = int(retry.initial * growth[retry.backoff])
    return raw if retry.max is None else min(raw, retry.max)
