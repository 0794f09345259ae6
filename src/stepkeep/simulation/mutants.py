"""Planted bugs: each is a mistake that somebody could make, and each must be caught within a bounded number of seeds.

A simulator that misses a bug is the bug. The list is data; `mutation` plants, `campaign` hunts.
"""

from __future__ import annotations

from stepkeep.simulation.mutation import Edit, Mutant


def _one(name: str, what: str, where: str, old: str, new: str) -> Mutant:
    return Mutant(name, what, (Edit(where, old, new),))


MUTANTS: tuple[Mutant, ...] = (
    # -- claims, leases and fences
    _one(
        "no-fence",
        "a report is believed whichever claim it was made under",
        "kernel.execution:report",
        "step.worker != event.worker or step.fence != event.fence",
        "step.worker != event.worker",
    ),
    _one(
        "no-holder",
        "a report is believed whoever makes it, and under whichever claim",
        "kernel.execution:report",
        "step.worker != event.worker or step.fence != event.fence",
        "step.worker is None",
    ),
    _one(
        "expired-believed",
        "a report is believed although its lease has run out",
        "kernel.execution:report",
        "step.due_at is None or step.due_at < draft.now",
        "step.due_at is None",
    ),
    _one(
        "lease-equality",
        "a lease is lost in the very microsecond in which it still stands",
        "kernel.timers:time_came",
        " or (step.worker is not None and step.due_at == draft.now)",
        "",
    ),
    _one(
        "fence-stays",
        "a claim does not raise the fence",
        "kernel.execution:claim",
        "fence=step.fence + 1",
        "fence=step.fence or 1",
    ),
    _one(
        "stale-sweep",
        "a sweep acts on what it found, although it is no longer due",
        "kernel.timers:time_came",
        "step.due_at > draft.now or ",
        "",
    ),
    _one(
        "renewal-forgotten",
        "leases of running handlers are not renewed",
        "worker.attempts:Attempts.review",
        "if aging:",
        "if not aging:",
    ),
    _one(
        "room-ignored",
        "chained claims take more than the worker has room for",
        "kernel.decide:_chain_claims",
        "taken >= claimer.room or ",
        "",
    ),
    _one(
        "room-per-run",
        "each run of a batch fills the worker's whole room",
        "operations.deliberation:Deliberation._decide",
        "self._chained = claimer.having(answer.claimed)",
        "self._chained = claimer",
    ),
    _one(
        "judged-holds-no-slot",
        "a step whose rules run next is thought to have left its slot",
        "worker.attempts:_frees_slot",
        "return not job.claim.planned.has_rules or job.code.is_rules or not isinstance(outcome, Completed)",
        "return True",
    ),
    _one(
        "given-up-yet-judged",
        "a worker judges what it has given up, in a slot that is taken",
        "worker.attempts:Attempts._answered",
        "if job in self.leases:",
        "if job is not None:",
    ),
    _one(
        "promise-forgotten",
        "a slot that a report under way has promised is given away when its job is given up",
        "worker.room:Places.set_aside",
        "self._promised |= leaving",
        "self._promised |= set()",
    ),
    Mutant(
        "stale-room",
        "a worker claims for the room it had before it read its queues",
        (
            Edit(
                "worker.loop:Worker._poll",
                "was_busy = self.held > 0",
                "was_busy, stale = self.held > 0, self._attempts.room(kind)",
            ),
            Edit("worker.loop:Worker._poll", "min(self._attempts.room(kind),", "min(stale,"),
        ),
    ),
    # -- attempts
    _one(
        "no-loss-cap",
        "a step that kills its worker is tried for ever",
        "kernel.retry:may_retry_lost",
        " and losses < retry.max_losses",
        "",
    ),
    _one(
        "one-attempt-more",
        "a step is tried once more than allowed",
        "kernel.retry:may_retry",
        "counted < retry.max_attempts",
        "counted <= retry.max_attempts",
    ),
    _one(
        "hopeless-retried",
        "failures that never heal are retried",
        "kernel.retry:may_retry",
        "category not in NEVER_RETRIED and category in retry.on",
        "(category in NEVER_RETRIED or category in retry.on)",
    ),
    _one(
        "no-backoff-cap",
        "backoff grows past its cap",
        "kernel.retry:delay_after",
        "min(_raw_delay(retry, counted, longest), longest)",
        "_raw_delay(retry, counted, longest)",
    ),
    _one(
        "drain-burns",
        "handing a step back uses up an attempt",
        "kernel.execution:_released",
        "StepTrigger.RELEASED, ready_at=draft.now",
        "StepTrigger.RELEASED, ready_at=draft.now, attempts=step.attempts + 1",
    ),
    _one(
        "drain-forgets",
        "a draining worker leaves what still runs to the end of its lease",
        "worker.attempts:Attempts.release_rest",
        "if not job.reported:",
        "if job.reported:",
    ),
    _one(
        "output-lost",
        "an accepted result is not kept",
        "kernel.execution:_completed",
        "output=outcome.output",
        "output=None",
    ),
    # -- messages and waits
    _one(
        "park-blind",
        "a handler that waits does not look into the inbox first",
        "kernel.execution:_waiting",
        "draft.take_message(outcome.event, step.no)",
        "None",
    ),
    _one(
        "lost-wake-up",
        "a message for a blocked run is kept, and nobody is woken",
        "kernel.decide:_listens",
        "(RunState.RUNNING, RunState.BLOCKED)",
        "(RunState.RUNNING,)",
    ),
    _one(
        "no-dedup",
        "the same message again is another message",
        "kernel.decide:message",
        "event.id in draft.snapshot.seen or ",
        "",
    ),
    _one(
        "message-twice",
        "a message that was taken from the inbox stays in it",
        "kernel.draft:Draft.take_message",
        "self.consumed.append(replace(message, consumed_by=no))",
        "pass",
    ),
    _one(
        "emits-dropped",
        "only the first event of an attempt is told",
        "kernel.draft:Draft.close_attempt",
        "for emitted in outcome.emit:",
        "for emitted in outcome.emit[:1]:",
    ),
    # -- the graph
    _one(
        "join-early",
        "a join opens before its last dependency",
        "kernel.progress:_tell",
        "if step.unmet:",
        "if step.unmet > 1:",
    ),
    _one(
        "join-counts-twice",
        "one dependency that settles counts as two at a join",
        "kernel.progress:_tell",
        "unmet=step.unmet - 1",
        "unmet=max(0, step.unmet - 2)",
    ),
    _one(
        "rejected-passes",
        "a rejected gate satisfies an edge that tolerates failures",
        "kernel.progress:settle",
        " and not news.hard",
        "",
    ),
    _one(
        "no-run-timeout",
        "the run's timeout is never set",
        "kernel.decide:begin",
        "None if timeout is None else draft.now + timeout",
        "None",
    ),
    # -- people
    _one(
        "double-click",
        "the second click on one gate passes the next",
        "kernel.people:_no_double_click",
        "for no in numbers:",
        "for no in ():",
    ),
    _one(
        "loser-told-yes",
        "who decides second is told yes, whatever was decided first",
        "kernel.people:_decided_before",
        'record.get("by") == actor and record.get("decision") == decision',
        '"decision" in record',
    ),
    _one(
        "any-token",
        "a step is completed with any token",
        "kernel.people:complete_by_hand",
        "note.token is None or not hmac.compare_digest(note.token, event.token)",
        "note.token is None",
    ),
    # -- stopping and undoing
    _one(
        "late-success-stays",
        "what succeeds while the run stops is not undone",
        "kernel.compensation:_to_undo",
        "if not _happened(step, definition):",
        "if not _happened(step, definition) or (step.settled or 0) >> 20 >= draft.seq:",
    ),
    _one(
        "undo-forwards",
        "hooks run in the order in which steps completed",
        "kernel.compensation:_to_undo",
        "reverse=True",
        "reverse=False",
    ),
    _one(
        "hook-failure-hidden",
        "a failed hook leaves the rollback complete",
        "kernel.failure:_fail_hook",
        "draft.rollback = Rollback.PARTIAL",
        "draft.rollback = draft.rollback",
    ),
    _one(
        "effect-forgotten",
        "an effect without a hook does not make the rollback partial",
        "kernel.compensation:_to_undo",
        "definition.effect is not Effect.READ",
        "definition.effect is Effect.IRREVERSIBLE",
    ),
    _one(
        "retry-while-stopping",
        "a stopping run tries its steps again",
        "kernel.execution:_after_failure",
        "if draft.state is RunState.STOPPING:",
        "if draft.state is RunState.COMPENSATING:",
    ),
    _one(
        "cancel-leaves-steps",
        "a cancel leaves what workers hold",
        "kernel.stopping:cancel_everything",
        "if step.state not in STEP_TERMINAL:",
        "if step.state not in STEP_TERMINAL and step.worker is None:",
    ),
    _one(
        "grace-never-ends",
        "what judges rules is not fenced off when the grace period ends",
        "kernel.stopping:fence_off",
        "if step.worker is not None:",
        "if step.state is StepState.RUNNING:",
    ),
    # -- starting
    _one(
        "key-for-any-body",
        "an idempotency key answers for another body",
        "operations.start:_answer",
        "if earlier.fingerprint != key.fingerprint:",
        "if False:",
    ),
    _one(
        "business-key-kept",
        "only success frees a business key",
        "operations.deliberation:gather",
        "run.state in RUN_TERMINAL",
        "run.state == 'succeeded'",
    ),
    # -- transactions
    _one(
        "refused-yet-written",
        "a transactional step commits its writes although its report was refused",
        "worker.transactional:attempt_in_transaction",
        "if isinstance(reply, Refused):",
        "if reply is None:",
    ),
    _one(
        "unheard-worker",
        "a worker that is heard again stays unresponsive",
        "operations.workers:beat",
        "if row.state is WorkerState.UNRESPONSIVE:",
        "if row.state is WorkerState.INITIALIZING:",
    ),
    # -- memory
    _one(
        "late-from-memory",
        "what was decided from memory is written though its lease has run out on the way",
        "simulation.database:Session._check_leases",
        "row.due_at < now",
        "row.due_at < 0",
    ),
    _one(
        "young-for-ever",
        "steps that were never read are thought to be as they were born, whatever has happened",
        "operations.memory:_learn",
        "is_young=plan.roots == (claimed.no,)",
        "is_young=True",
    ),
    _one(
        "shortened-lease",
        "a lease that goes on is written back as it was before it was renewed",
        "operations.memory:is_certain",
        " or len(leased) != len(decision.claimed)",
        "",
    ),
    _one(
        "silent-goodbye",
        "a worker that was thought lost and ends in good order is never said to have ended",
        "operations.workers:shut_down",
        "if trigger is None:",
        "if trigger is None or trigger is T.HEARD_AGAIN:",
    ),
    _one(
        "locks-unordered",
        "large transactions lock their runs the other way round",
        "simulation.store:_Change._lock",
        "sorted(keys, key=lock_order)",
        "sorted(keys, key=lock_order, reverse=len(keys) > 2)",
    ),
    Mutant(
        "no-lock-no-was",
        "runs are read without a lock and written without looking whether they moved",
        (
            Edit(
                "simulation.database:Session.lock_runs",
                'await self._database.locks.take(self, ("run", key))',
                "await asyncio.sleep(0)",
            ),
            Edit("simulation.tables:Tables.check", "before is None or before.seq != change.was", "before is None"),
            Edit(
                "simulation.tables:Tables._check_record",
                "if entry.seq in self.journal.get((entry.tenant, entry.run_id), {}):",
                "if False:",
            ),
        ),
    ),
)
