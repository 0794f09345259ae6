"""Attempts in flight: from a claim to its job, from the job to its report, from the report to the next claims.

It runs on the worker's loop and calls no user code. It holds each attempt until the database has answered its report. A
lost lease, a timeout or a drain ends the attempt early; a later result of its handler is dropped. The worker loop calls
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from stepkeep.errors import InvalidInput, Refused, StoreError, Unreadable
from stepkeep.kernel.decision import Accepted, Claimer
from stepkeep.kernel.events import StepReported
from stepkeep.kernel.outcomes import Completed, Failed, Outcome, Released, RulesFailed, RulesPassed, TimedOut
from stepkeep.kernel.rows import Worker
from stepkeep.kernel.states import Category, RunState, StepState
from stepkeep.operations.batch import Answer
from stepkeep.operations.transact import Claim, ClaimsInDoubt, Transactor
from stepkeep.safe_text import exception_text
from stepkeep.worker.cancellation import Why
from stepkeep.worker.capacity import ChainBudget, Slots
from stepkeep.worker.classify import failure_of
from stepkeep.worker.evidence import EvidenceKeeper
from stepkeep.worker.executor import Job
from stepkeep.worker.inputs import Inputs
from stepkeep.worker.leases import Leases
from stepkeep.worker.membership import Membership
from stepkeep.worker.outage import Outage
from stepkeep.worker.payloads import storable_text
from stepkeep.worker.prepared import PreparedSteps
from stepkeep.worker.queues import Kind
from stepkeep.worker.reports import Report, Reports
from stepkeep.worker.runner import Finished, HandlerRunner
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings
from stepkeep.worker.transactional import attempt_in_transaction

log = logging.getLogger("stepkeep.worker")

SECOND = 1_000_000


class Attempts:
    """All held attempts, and everything that may happen to them.

    `changed` is called when a report was recorded or a slot became free, `more_work` when unclaimed steps are known to
    be ready, `ability_changed` when a kind of handler can no longer be run, or can be run again.
    """

    def __init__(
        self,
        transactor: Transactor,
        runner: HandlerRunner,
        codes: PreparedSteps,
        membership: Membership,
        *,
        settings: Settings,
        runtime: Runtime,
        outage: Outage,
        changed: Callable[[], None],
        more_work: Callable[[], None],
        due_in: Callable[[float], None],
        ability_changed: Callable[[], None],
    ) -> None:
        self._transactor, self._runner, self._codes, self._membership = transactor, runner, codes, membership
        self._settings, self._runtime, self._outage = settings, runtime, outage
        self._changed, self._more_work, self._due_in = changed, more_work, due_in
        self._ability_changed = ability_changed
        self._inputs = Inputs(transactor.store)
        self.leases = Leases(settings.lease)
        self.reports = Reports(transactor.store.lanes, self._commit, runtime.sleep)
        self.evidence = EvidenceKeeper(transactor.store, settings.log_lines)
        self.slots = Slots(settings, self.leases)
        self.attention = asyncio.Event()
        self.may_chain = True
        self._doubtful: dict[tuple[str, str, int, int], Claim] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Bind to the running event loop."""
        self._inputs.open()
        self.evidence.open()
        self._runner.open(self.finished, self._ability_changed)

    # -- slots -----------------------------------------------------------------------------------------------------
    def free_slots(self, kind: Kind) -> int:
        """How many attempts of this kind could be claimed from the queues."""
        return self.slots.free.of(kind)

    def _claimer(self, queues: frozenset[int], slots: int, blocking_slots: int = 0) -> Claimer:
        row = self._membership.row
        return Claimer(
            actor=row.id,
            worker=row.no,
            lease=self._settings.lease,
            slots=slots,
            queues=queues,
            blocking=self.slots.queues.blocking,
            blocking_slots=blocking_slots,
        )

    async def claim(self, kind: Kind, limit: int, after: int | None) -> list[Claim]:
        """Claim from the queues of one kind, and start the claimed attempts."""
        blocking = limit if kind is Kind.BLOCKING else 0
        try:
            with self.slots.reserve(limit, blocking):
                # First of all: the same step claimed again would have the same fence as the claim whose commit is
                # unknown.
                await self.settle_doubts()
                claimer = self._claimer(self.slots.queues.of(kind), limit, blocking)
                claims = await self._transactor.claim(claimer, limit=limit, after=after)
        except ClaimsInDoubt as doubt:
            self._doubtful |= {_name(claim): claim for claim in doubt.claims}
            raise
        self.accept(claims)
        return claims

    @property
    def has_doubts(self) -> bool:
        """Whether there are claims with an unknown commit. No query finds these as work."""
        return bool(self._doubtful)

    async def settle_doubts(self) -> None:
        """Release claims whose commit was not confirmed. If the commit never happened, the release is refused and
        ignored."""
        doubtful, self._doubtful = self._doubtful, {}
        if not doubtful:
            return
        log.info("handing back up to %d steps whose claim was never confirmed", len(doubtful))
        try:
            row = self._membership.row
            await self._transactor.submit_all([_event(row, claim, Released()) for claim in doubtful.values()])
        except StoreError:
            self._doubtful |= doubtful
            raise
        self._more_work()

    async def _settle_doubts_soon(self) -> None:
        try:
            await self.settle_doubts()
        except StoreError as problem:
            self._outage.met(problem)

    # -- from claims to jobs -----------------------------------------------------------------------------------------
    def accept(self, claims: Sequence[Claim], lane: int | None = None) -> None:
        """Hold these claims, load their inputs, and start them.

        Claims that a report made ready stay in its lane, because their run is there.
        """
        if not claims:
            return
        now = self._runtime.monotonic()
        quiet = self._lane_to_fill() if lane is None else lane
        jobs = []
        for claim in claims:
            if not self.may_chain:
                # It was claimed by a commit that was under way when the worker began to drain.
                job = Job(claim, self._codes.unprepared(claim), renewed_at=now, lane=self._lane_of(claim))
                self._hold([job])
                self._report(job, Released())
                continue
            try:
                code = self._codes.of(claim)
            except Exception as problem:  # noqa: BLE001 - a step that cannot be prepared fails, its neighbours run
                self._refuse(claim, now, problem)
                continue
            way = quiet if lane is not None or code.runs_alone else self._lane_of(claim)
            job = Job(claim, code, now + code.planned.timeout / SECOND, now, self._inputs.fetch, way)
            if code.is_manual:
                job.completion_token = self._runtime.token()
            jobs.append(job)
        self._hold(jobs)
        self._begin(jobs)

    def _refuse(self, claim: Claim, now: float, problem: Exception) -> None:
        job = Job(claim, self._codes.unprepared(claim), renewed_at=now, lane=self._lane_of(claim))
        self._hold([job])
        outcome: Outcome = failure_of(problem)
        if job.code.is_rules:
            outcome = RulesFailed(error=storable_text(exception_text(problem)))
        self._report(job, outcome)

    def _lane_of(self, claim: Claim) -> int:
        """The lane of a run with several attempts under way: always the same one."""
        return ord(claim.run_id[-1]) % self.reports.lanes

    def _lane_to_fill(self) -> int:
        """The lane for claims of one batch: all go to one lane, because two halves would need two commits. It is the
        fullest lane that is not full, for the same reason."""
        held = Counter(dict.fromkeys(range(self.reports.lanes), 0))
        held.update([job.lane for job in self.leases])
        full = -(-self._settings.concurrency // self.reports.lanes)
        open_lanes = [lane for lane in held if held[lane] < full]
        return max(open_lanes, key=held.__getitem__) if open_lanes else min(held, key=held.__getitem__)

    def _hold(self, jobs: Sequence[Job]) -> None:
        if self.leases.add(jobs):
            self.attention.set()

    def _begin(self, jobs: list[Job]) -> None:
        lacking = self._inputs.fill(jobs)
        if lacking:
            self._spawn(self._load(lacking))
            absent = set(lacking)
            jobs = [job for job in jobs if job not in absent]
        self._launch(jobs)

    async def _load(self, jobs: list[Job]) -> None:
        """Read the inputs of these jobs while they are held."""
        tries = 0
        while jobs := [job for job in jobs if job in self.leases and not job.reported]:
            try:
                await self._inputs.load(jobs)
            except StoreError as problem:
                self._outage.met(problem)
                await self._outage.pause(tries)
                tries += 1
            except Exception as problem:  # noqa: BLE001 - a row that cannot be read fails its step, its neighbours run
                await self._load_apart(jobs, problem)
                return
            else:
                self._launch([job for job in jobs if job in self.leases and not job.reported])
                return

    async def _load_apart(self, jobs: list[Job], problem: Exception) -> None:
        """The inputs of some job cannot be read: load each job alone, and fail those that cannot be loaded."""
        if len(jobs) > 1:
            for job in jobs:
                await self._load([job])
            return
        [job] = jobs
        log.error("what %s needs cannot be read", job.title, exc_info=problem)
        said = storable_text(f"what this attempt needs cannot be read from the database: {exception_text(problem)}")
        self._report(job, Failed(category=Category.UNKNOWN, error=said))

    def _launch(self, jobs: list[Job]) -> None:
        plain = []
        for job in jobs:
            job.running = True
            if job.code.is_transactional:
                self._spawn(self._transact(job))
            else:
                plain.append(job)
        if plain:
            self._runner.start(plain)

    # -- from jobs to reports ----------------------------------------------------------------------------------------
    def finished(self, batch: Finished) -> None:
        """Handlers ended; report those whose attempts are still held."""
        held = []
        for job, outcome in batch:
            job.running = False
            if job.waiter is not None:
                if not job.waiter.done():
                    job.waiter.set_result(outcome)
            elif job in self.slots.orphaned:
                self.slots.orphaned.discard(job)
                self._changed()
            elif not job.reported:
                job.reported = True
                held.append((job, self._taken(job, outcome)))
        self.reports.put(held)

    def _report(self, job: Job, outcome: Outcome) -> None:
        job.reported = True
        self.reports.put([(job, self._taken(job, outcome))])

    def _taken(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome to report; its evidence is kept apart."""
        return _verdict(outcome) if job.code.is_rules else self.evidence.take(job, outcome)

    async def _commit(self, batch: list[Report]) -> int:
        """Report a batch, claim the steps it made ready, and start them. Returns how many were started. Raises
        nothing."""
        tries = began = 0
        doubtful: dict[tuple[str, str, int, int], Claim] = {}
        while batch := [report for report in batch if report[0] in self.leases]:
            leaving = {job for job, outcome in batch if _frees_slot(job, outcome)} if self.may_chain else set()
            budget = self.slots.chain_budget(batch, leaving) if self.may_chain else ChainBudget()
            claimer = (
                self._claimer(self.slots.queues.all, budget.slots, budget.blocking_slots) if budget.slots else None
            )
            try:
                row = self._membership.row
                events = [_event(row, job.claim, outcome) for job, outcome in batch]
                with self.slots.reserve(budget.spare, budget.blocking_spare, leaving):
                    replies, claims = await self._transactor.report(events, claimer)
            except StoreError as problem:
                if isinstance(problem, ClaimsInDoubt):
                    doubtful |= {_name(claim): claim for claim in problem.claims}
                self._outage.met(problem)
                await self._outage.pause(tries)
                tries += 1
                continue
            except Exception as problem:  # noqa: BLE001 - a defect must not take the whole batch with it
                await self._commit_apart(batch, problem)
                break
            self._outage.over()
            for (job, outcome), reply in zip(batch, replies, strict=True):
                self._settle(job, outcome, reply)
            self.accept(claims, batch[0][0].lane)
            for claim in claims:
                doubtful.pop(_name(claim), None)
            self._changed()
            await self.evidence.write(job for job, _ in batch)
            began = len(claims)
            if budget.slots and began == budget.slots < budget.follow:
                self._more_work()
            break
        if doubtful:
            # Claimed by an unconfirmed commit, if at all: no other worker would run these steps while their leases
            # last.
            self._doubtful |= doubtful
            self._spawn(self._settle_doubts_soon())
        return began

    async def _commit_apart(self, batch: list[Report], problem: Exception) -> None:
        """One report made the whole batch fail: report each alone, and give up those that fail alone."""
        if len(batch) > 1:
            for report in batch:
                await self._commit([report])
            return
        self._give_up(*batch[0], problem)

    def _give_up(self, job: Job, outcome: Outcome, problem: Exception) -> None:
        """An outcome that cannot be recorded is replaced by a failure without any data of the handler. If even that
        cannot be recorded, the lease is left to expire."""
        is_second = job.gave_up
        job.gave_up = True
        claim = job.claim
        which = (claim.planned.name, claim.run_id)
        if isinstance(problem, InvalidInput):
            log.warning("the report on step %s of run %s is refused: %s", *which, problem)
        else:
            log.error("the report on step %s of run %s cannot be processed", *which, exc_info=problem)
        if is_second or isinstance(outcome, Released):
            self._transactor.forget(claim)
            self._let_go(job)
            return
        said = storable_text(f"what the handler answered cannot be recorded: {exception_text(problem)}")
        self._report(job, Failed(category=Category.VALIDATION, error=said, final=True))

    def _settle(self, job: Job, outcome: Outcome, reply: Answer) -> None:
        """Handle the reply to one report. A defect here costs the lease of this job only."""
        try:
            self._answered(job, outcome, reply)
        except Exception:
            log.exception("the answer to the report on %s cannot be processed", job.title)
            self._transactor.forget(job.claim)
            self._let_go(job)

    def _answered(self, job: Job, outcome: Outcome, reply: Answer) -> None:
        if isinstance(reply, Refused) and not isinstance(reply, InvalidInput):
            log.info("dropped: %s", reply)
            self._let_go(job)
            return
        if isinstance(reply, Unreadable):
            self._transactor.unreadable.note(reply)
            self._transactor.forget(job.claim)
            self._let_go(job)
            return
        if not isinstance(reply, Accepted):
            self._give_up(job, outcome, reply)
            return
        state = reply.record.get("state")
        if state == StepState.SUCCEEDED:
            self._inputs.remember(job, outcome)
        elif state == StepState.VALIDATING and isinstance(outcome, Completed) and not job.code.is_rules:
            if job in self.leases:
                # A job that was given up meanwhile has lost its slot too; its lease is left to expire.
                self._judge(job, outcome)
            return
        elif "due_in" in reply.record:
            self._due_in(reply.record["due_in"] / SECOND)
        self._let_go(job)

    def _judge(self, job: Job, outcome: Completed) -> None:
        """The handler completed and the lease is still valid: its rules run next, under the same fence."""
        now = self._runtime.monotonic()
        self._let_go(job)
        claim = job.claim
        judged = Job(claim, self._codes.rules_of(claim), now + claim.planned.timeout / SECOND, job.renewed_at)
        judged.details, judged.own_output, judged.lane = job.details, (outcome.output,), job.lane
        self._hold([judged])
        self._begin([judged])

    def _let_go(self, job: Job) -> None:
        if self.leases.drop(job) and job.running:
            self.slots.orphaned.add(job)

    async def _transact(self, job: Job) -> None:
        """A transactional step: its handler, its writes and its report are one transaction."""
        outcome, reply = await attempt_in_transaction(
            self._transactor,
            self._runner.start,
            job,
            lambda outcome: _event(self._membership.row, job.claim, outcome),
            lambda: job in self.leases and not job.reported,
        )
        job.running, job.waiter = False, None
        if job in self.slots.orphaned:
            self.slots.orphaned.discard(job)
        elif not job.reported and job in self.leases:
            # If another report is under way (the attempt timed out during the commit), the slot is reserved for it.
            if reply is not None and isinstance(outcome, Completed):
                job.reported = True
                self._settle(job, outcome, reply)
            else:
                self._report(job, outcome)
        if reply is not None:
            # Nothing was chained to this commit, so any worker may claim the steps it made ready.
            self._more_work()
        self._changed()

    # -- the two clocks ----------------------------------------------------------------------------------------------
    async def review(self) -> None:
        """Time out attempts that ran too long, give up lost leases, renew leases that need it."""
        overdue, expired, aging = self.leases.review(self._runtime.monotonic())
        for job in expired:
            self._lose(job, "its lease ran out before it could be renewed")
        for job in overdue:
            self._time_out(job)
        if aging:
            self._spawn(self._renew(aging))

    async def _renew(self, jobs: list[Job]) -> None:
        try:
            standing = await self._transactor.store.renew(self.leases.renewal(jobs))
        except StoreError as problem:
            self._outage.met(problem)
            return
        now = self._runtime.monotonic()
        states = {(each.run_id, each.no, each.fence): each.run_state for each in standing}
        for job in jobs:
            claim = job.claim
            state = states.get((claim.run_id, claim.step.no, claim.step.fence))
            if state is None:
                # A report that was just accepted also ends the lease; its reply is on the way.
                if not job.reported:
                    self._lose(job, "another claim, an expiry or a cancel came first")
                continue
            job.renewed_at = now
            if state is RunState.STOPPING and not job.code.is_rules:
                job.cancelled.set(Why.RUN_STOPPING)

    def _time_out(self, job: Job) -> None:
        seconds = job.code.planned.timeout / SECOND
        log.warning("step %s of run %s ran past its timeout of %g s", job.claim.planned.name, job.claim.run_id, seconds)
        spent = None if job.context is None else job.context.spent
        self._report(job, TimedOut(error=f"the attempt ran past its timeout of {seconds:g} s", cost=spent))
        self._end(job, Why.TIMED_OUT)

    def _lose(self, job: Job, why: str) -> None:
        if job not in self.leases:
            return
        log.warning("step %s of run %s is lost: %s", job.claim.planned.name, job.claim.run_id, why)
        self._transactor.forget(job.claim)
        self._let_go(job)
        self._end(job, Why.LEASE_LOST)
        self._changed()

    def _end(self, job: Job, why: Why) -> None:
        job.cancelled.set(why)
        if job.running:
            self._runner.stop(job)

    # -- ending ------------------------------------------------------------------------------------------------------
    def lose_all(self, why: str) -> None:
        for job in self.leases:
            self._lose(job, why)

    def release_unstarted(self) -> None:
        """Release claims whose handler has not begun; nothing is counted."""
        for job in self.leases:
            if not job.running and not job.reported:
                self._report(job, Released())

    def release_rest(self) -> None:
        """Release everything that is still running, and stop it."""
        for job in self.leases:
            if not job.reported:
                self._report(job, Released())
                self._end(job, Why.DRAINED)

    def cancel_tasks(self) -> list[asyncio.Task[None]]:
        """Cancel background tasks; await the returned tasks to know that they ended."""
        self.evidence.close()
        tasks = [*self.reports.tasks, *self._tasks]
        for task in tasks:
            task.cancel()
        return tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a part of the worker broke", exc_info=task.exception())


def _name(claim: Claim) -> tuple[str, str, int, int]:
    return (claim.tenant, claim.run_id, claim.step.no, claim.step.fence)


def _event(worker: Worker, claim: Claim, outcome: Outcome) -> StepReported:
    step = claim.step
    return StepReported(
        tenant=claim.tenant,
        run_id=claim.run_id,
        actor=worker.id,
        no=step.no,
        fence=step.fence,
        worker=step.worker or worker.no,
        outcome=outcome,
    )


def _verdict(outcome: Outcome) -> Outcome:
    """Rules are not retried: any error in their evaluation fails the step."""
    if isinstance(outcome, RulesPassed | RulesFailed | Released):
        return outcome
    return RulesFailed(error=getattr(outcome, "error", "the rules could not be judged"))


def _frees_slot(job: Job, outcome: Outcome) -> bool:
    """Whether a report frees a slot: its handler has ended, and no rules run in the same slot."""
    if job.running:
        return False
    return not job.claim.planned.has_rules or job.code.is_rules or not isinstance(outcome, Completed)
