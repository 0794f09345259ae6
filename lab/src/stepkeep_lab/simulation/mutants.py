"""Planted bugs: each is a plausible mistake, and each must be caught within a limited number of seeds.

The list is data; `mutation` plants the bugs, and `campaign` hunts them.
"""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant


def _one(name: str, what: str, where: str, old: str, new: str) -> Mutant:
    return Mutant(name, what, (Edit(where, old, new),))


def _in_kernel(name: str, what: str, where: str, old: str, new: str) -> Mutant:
    return _one(name, what, f"kernel.{where}", old, new)


MUTANTS: tuple[Mutant, ...] = (
    # -- claims, leases and fences
    _in_kernel(
        "no-fence",
        "a report is believed whichever claim it was made under",
        "execution:report",
        "step.worker != event.worker or step.fence != event.fence",
        "step.worker != event.worker",
    ),
    _in_kernel(
        "no-holder",
        "a report is believed whoever makes it, and under whichever claim",
        "execution:report",
        "step.worker != event.worker or step.fence != event.fence",
        "step.worker is None",
    ),
    _in_kernel(
        "expired-believed",
        "a report is believed although its lease has run out",
        "execution:report",
        "step.due_at is None or step.due_at < draft.now",
        "step.due_at is None",
    ),
    _in_kernel(
        "lease-equality",
        "a lease is lost in the very microsecond in which it still stands",
        "timers:time_came",
        " or (step.worker is not None and step.due_at == draft.now)",
        "",
    ),
    _in_kernel(
        "fence-stays",
        "a claim does not raise the fence",
        "execution:claim",
        "fence=step.fence + 1",
        "fence=step.fence or 1",
    ),
    _in_kernel(
        "stale-sweep",
        "a sweep acts on what it found, although it is no longer due",
        "timers:time_came",
        "step.due_at > draft.now or ",
        "",
    ),
    _in_kernel(
        "deadline-unmet",
        "a claim or a report goes on with a run after its timeout, until a sweep comes",
        "decide:_answer",
        "if draft.due_at is not None and draft.due_at <= draft.now and type(event) in MEETS_DEADLINE:",
        "if False:",
    ),
    _in_kernel(
        "doubt-untold",
        "an attempt that is cancelled in flight leaves no trace of its effect",
        "stopping:cancel_step",
        "if _may_have_effect(draft, step):",
        "if False:",
    ),
    _one(
        "renewal-forgotten",
        "leases of running handlers are not renewed",
        "worker.lease_keeper:LeaseKeeper.review",
        "if aging:",
        "if not aging:",
    ),
    _in_kernel(
        "slots-ignored",
        "chained claims take more than the worker has slots for",
        "decide:_chain_claims",
        "taken >= claimer.slots or ",
        "",
    ),
    _in_kernel(
        "order-overtaken",
        "a chained claim overtakes a ready step of the same run with a lower number",
        "decide:_chain_claims",
        "if draft.moving - draft.leased > len(new):",
        "if False:",
    ),
    _one(
        "order-by-ready-time",
        "within a run the step that became ready first is claimed, whatever its number",
        "simulation.queries:by_number",
        "key=lambda step: step.no",
        "key=lambda step: (step.ready_at or 0, step.no)",
    ),
    _one(
        "slots-per-run",
        "each run of a batch fills the worker's slots again",
        "operations.batch:DecisionBatch._decide",
        "self._chained = claimer.having(answer.claimed)",
        "self._chained = claimer",
    ),
    _one(
        "judged-holds-no-slot",
        "a step whose rules run next is thought to have left its slot",
        "worker.reporting:_frees_slot",
        "return not job.claim.planned.has_rules or job.prepared.is_rules or not isinstance(outcome, Completed)",
        "return True",
    ),
    _one(
        "given-up-yet-judged",
        "a worker judges what it has given up, in a slot that is taken",
        "worker.reporting:Reporting._handle",
        "if job in self._shared.leases:",
        "if job is not None:",
    ),
    _one(
        "promise-forgotten",
        "a slot that a report under way has promised is given away when its job is given up",
        "worker.capacity:Slots.reserve",
        "self._promised |= leaving",
        "self._promised |= set()",
    ),
    Mutant(
        "stale-slots",
        "a worker claims for the slots it had before it read its queues",
        (
            Edit(
                "worker.loop:Worker._poll",
                "was_busy = self.held > 0",
                "was_busy, stale = self.held > 0, self._shared.slots.free.of(kind)",
            ),
            Edit("worker.loop:Worker._poll", "min(self._shared.slots.free.of(kind),", "min(stale,"),
        ),
    ),
    _in_kernel(
        "rules-forgotten",
        "a step is done although nobody has looked at its rules",
        "execution:_completed",
        "if planned.has_rules:",
        "if planned.has_rules and False:",
    ),
    # -- work that has a thread or a transaction to itself
    _one(
        "blocking-unlimited",
        "a worker claims more blocking work than it has threads",
        "worker.capacity:FreeSlots.of",
        "min(self.total, self.blocking)",
        "self.total",
    ),
    _in_kernel(
        "blocking-chained",
        "blocking steps are handed to a worker that has places but no threads",
        "decide:_chain_claims",
        "is_blocking and blocking >= claimer.blocking_slots",
        "is_blocking and False",
    ),
    _in_kernel(
        "blocking-per-run",
        "each run of a batch fills all the threads of a worker",
        "decision:Claimer.having",
        "blocking_slots=self.blocking_slots - blocking",
        "blocking_slots=self.blocking_slots",
    ),
    _in_kernel(
        "stranger-chained",
        "steps are handed to a worker that cannot run them",
        "decide:_chain_claims",
        " or step.queue not in claimer.queues",
        "",
    ),
    _in_kernel(
        "check-forgotten",
        "a run has succeeded although its own rules have not been evaluated",
        "rollup:_all_settled",
        "if check is None:",
        "if check is None or draft.moving == 0:",
    ),
    # -- attempts
    _in_kernel(
        "no-loss-cap",
        "a step that kills its worker is tried forever",
        "retry:may_retry_lost",
        " and losses < retry.max_losses",
        "",
    ),
    _in_kernel(
        "one-attempt-more",
        "a step is tried once more than allowed",
        "retry:may_retry",
        "counted < retry.max_attempts",
        "counted <= retry.max_attempts",
    ),
    _in_kernel(
        "hopeless-retried",
        "failures that never heal are retried",
        "retry:may_retry",
        "category not in NEVER_RETRIED and category in retry.on",
        "(category in NEVER_RETRIED or category in retry.on)",
    ),
    _in_kernel(
        "no-backoff-cap",
        "backoff grows past its cap",
        "retry:delay_after",
        "min(_raw_delay(retry, counted, longest), longest)",
        "_raw_delay(retry, counted, longest)",
    ),
    _in_kernel(
        "drain-burns",
        "handing a step back uses up an attempt",
        "execution:_released",
        "StepTrigger.RELEASED, ready_at=draft.now",
        "StepTrigger.RELEASED, ready_at=draft.now, attempts=step.attempts + 1",
    ),
    _one(
        "drain-forgets",
        "a draining worker leaves what still runs to the end of its lease",
        "worker.lease_keeper:LeaseKeeper.release_rest",
        "if not job.reported:",
        "if job.reported:",
    ),
    _in_kernel(
        "output-lost",
        "an accepted result is not kept",
        "execution:_completed",
        "output=outcome.output",
        "output=None",
    ),
    # -- messages and waits
    _in_kernel(
        "park-blind",
        "a handler that waits does not look into the inbox first",
        "execution:_waiting",
        "draft.take_message(outcome.event, step.no)",
        "None",
    ),
    _in_kernel(
        "lost-wake-up",
        "a message for a blocked run is kept, and nobody is woken",
        "decide:_listens",
        "(RunState.RUNNING, RunState.BLOCKED)",
        "(RunState.RUNNING,)",
    ),
    _in_kernel(
        "no-dedup",
        "the same message again is another message",
        "decide:message",
        "event.id in draft.snapshot.seen or ",
        "",
    ),
    _in_kernel(
        "message-twice",
        "a message that was taken from the inbox stays in it",
        "draft:Draft.take_message",
        "self.consumed.append(replace(message, consumed_by=no))",
        "pass",
    ),
    _in_kernel(
        "emits-dropped",
        "only the first event of an attempt is told",
        "draft:Draft.close_attempt",
        "for emitted in outcome.emit:",
        "for emitted in outcome.emit[:1]:",
    ),
    # -- the graph
    _in_kernel(
        "join-early",
        "a join opens before its last dependency",
        "progress:_tell",
        "if step.unmet:",
        "if step.unmet > 1:",
    ),
    _in_kernel(
        "join-counts-twice",
        "one dependency that settles counts as two at a join",
        "progress:_tell",
        "unmet=step.unmet - 1",
        "unmet=max(0, step.unmet - 2)",
    ),
    _in_kernel(
        "rejected-passes",
        "a rejected gate satisfies an edge that tolerates failures",
        "progress:settle",
        "news, news.state in allow and not news.hard)",
        "news, news.state in allow)",
    ),
    _in_kernel(
        "no-run-timeout",
        "the run's timeout is never set",
        "decide:begin",
        "None if timeout is None else draft.now + timeout",
        "None",
    ),
    # -- people
    _in_kernel(
        "double-click",
        "the second click on one gate passes the next",
        "people:_no_double_click",
        "for no in numbers:",
        "for no in ():",
    ),
    _in_kernel(
        "loser-told-yes",
        "who decides second is told yes, whatever was decided first",
        "people:_decided_before",
        'record.get("by") == actor and record.get("decision") == decision',
        '"decision" in record',
    ),
    _in_kernel(
        "any-token",
        "a step is completed with any token",
        "people:complete_by_hand",
        "note.token is None or not hmac.compare_digest(note.token, event.token)",
        "note.token is None",
    ),
    _in_kernel(
        "old-token-stays",
        "the token before it fits after a new one was issued",
        "people:reissue_token",
        "token=event.token",
        "token=step.note.token if step.note else None",
    ),
    _in_kernel(
        "new-token-new-time",
        "a new token takes the deadline of its step away",
        "people:reissue_token",
        "due_at=step.due_at, ",
        "",
    ),
    # -- stopping and undoing
    _in_kernel(
        "late-success-stays",
        "what succeeds while the run stops is not undone",
        "compensation:_to_undo",
        "if not _happened(step, definition):",
        "if not _happened(step, definition) or (step.settled or 0) >> 20 >= draft.seq:",
    ),
    _in_kernel(
        "undo-forwards",
        "hooks run in the order in which steps completed",
        "compensation:_to_undo",
        "reverse=True",
        "reverse=False",
    ),
    _in_kernel(
        "hook-failure-hidden",
        "a failed hook leaves the rollback complete",
        "failure:_fail_hook",
        "draft.rollback = Rollback.PARTIAL",
        "draft.rollback = draft.rollback",
    ),
    _in_kernel(
        "effect-forgotten",
        "an effect without a hook does not make the rollback partial",
        "compensation:_to_undo",
        "elif definition.effect is not Effect.READ",
        "elif definition.effect is Effect.IRREVERSIBLE",
    ),
    _in_kernel(
        "doubt-forgotten",
        "an effect in doubt that is not undone leaves the rollback complete",
        "compensation:_to_undo",
        "if _may_remain(step) and",
        "if step.fence < 0 and",
    ),
    _in_kernel(
        "loss-forgotten",
        "a lost lease whose effect is not undone leaves the rollback complete",
        "compensation:_may_remain",
        "is_effect_unknown(step.error)",
        '(step.error or "").startswith("IN_DOUBT")',
    ),
    _in_kernel(
        "work-before-rules-forgotten",
        "a step that failed by its rules and is not undone leaves the rollback complete",
        "compensation:_may_remain",
        "is_completed(step) or",
        "",
    ),
    _in_kernel(
        "retry-while-stopping",
        "a stopping run tries its steps again",
        "execution:_after_failure",
        "if draft.state is RunState.STOPPING:",
        "if draft.state is RunState.COMPENSATING:",
    ),
    _in_kernel(
        "cancel-leaves-steps",
        "a cancel leaves what workers hold",
        "stopping:cancel_everything",
        "if step.state not in STEP_TERMINAL:",
        "if step.state not in STEP_TERMINAL and step.worker is None:",
    ),
    _in_kernel(
        "grace-never-ends",
        "what judges rules is not fenced off when the grace period ends",
        "stopping:fence_off",
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
        "operations.batch:gather",
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
        "claimed-though-refused",
        "a claim that was refused because another worker came first counts as made",
        "operations.transact:Transactor._write_if_unchanged",
        "except Contended:\n        return False",
        "except Contended:\n        return unlocked.basis is Basis.READ",
    ),
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
        "operations.batch:DecisionBatch.is_certain",
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
        "quarantine-ignored",
        "a run that an operator has set aside is read and written like any other",
        (
            Edit("simulation.store:_Change._keep", "self._store.database.tables.is_quarantined(key)", "False"),
            Edit("simulation.tables:Tables.check", " or self.is_quarantined((before.tenant, before.id))", ""),
        ),
    ),
    _one(
        "quarantine-renewed",
        "a worker goes on renewing its lease in a run that was set aside",
        "simulation.database:Session.renew",
        "if self._live().is_quarantined(key):",
        "if False:",
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
