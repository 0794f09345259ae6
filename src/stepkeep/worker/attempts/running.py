"""From claims to running handlers: prepares jobs, loads their inputs, starts and stops their handlers.

It runs on the worker's loop and calls no user code; the runner does, in its pools. It knows nothing of reports: what a
job came to goes to `report`. `attempts` calls it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.errors import PayloadSealed, StoreError
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, Released, RulesFailed, RulesPassed
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.plan import queue_specs
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.group_commit import DIVIDED
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.runs.spans import Trace, trace_of
from stepkeep.worker.attempts.checkpoints import CheckpointKeeper
from stepkeep.worker.attempts.classify import failure_of
from stepkeep.worker.attempts.executor import Job, Prepared, rules_job
from stepkeep.worker.attempts.inputs import Inputs
from stepkeep.worker.attempts.misfits import MisfitError
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.attempts.prepared import PreparedSteps
from stepkeep.worker.attempts.secrets import MissingSecret
from stepkeep.worker.attempts.streams import StreamKeeper
from stepkeep.worker.attempts.transactional import attempt_in_transaction
from stepkeep.worker.cancellation import Why
from stepkeep.worker.code import build_of
from stepkeep.worker.shared import Shared, ends_of

log = logging.getLogger("stepkeep.worker")

SECOND = 1_000_000
LEAVE_SECONDS = 0.25
"""How long a handler of a stopping run that takes a context may take to end by itself."""


def require_untried(claim: Claim, prepared: Prepared) -> None:
    """Refuse a flow that has tried the code which is here: other workers have other code for it."""
    tried = () if claim.step.note is None else claim.step.note.tried
    if tried and prepared.is_flow and prepared.spec is not None and (code := build_of(prepared.spec.function)) in tried:
        name = prepared.spec.name
        said = f"the code of flow {name} that is here does not fit what run {claim.run_id} has called"
        raise MisfitError(name, said, is_usual=True, unfit=code)


class Running:
    """The handlers of one worker. `report` takes the outcome of a job that this part itself ended; `answered` takes the
    reply to a report that was committed in the handler's own transaction."""

    def __init__(
        self,
        shared: Shared,
        prepared: PreparedSteps,
        *,
        lanes: int,
        report: Callable[[Job, Outcome], None],
        answered: Callable[[Job, Outcome, Answer], None],
    ) -> None:
        self._shared, self._prepared, self._lanes = shared, prepared, lanes
        self._report, self._answered = report, answered
        self._seal = shared.transactor.payloads.seal
        transactor = shared.transactor
        self.inputs = Inputs(transactor.store, transactor.payloads, shared.secrets, calls=transactor.calls)
        transactor.claiming = self.inputs.expect
        self.checkpoints = CheckpointKeeper(
            shared.transactor,
            lambda: (shared.membership.row.id, shared.membership.row.no),
            lambda job: job in shared.leases and not job.reported,
            self._sit_out,
        )
        self.streams = StreamKeeper(
            transactor.streams.append,
            lambda job: job in shared.leases,
            self._sit_out,
            shared.spawn,
            shared.runtime.sleep,
            shared.settings.log_lines,
        )

    # -- from claims to jobs -----------------------------------------------------------------------------------------
    def accept(self, claims: Sequence[Claim], lane: int | None = None) -> None:
        """Hold these claims, load their inputs, and start them.

        Claims that a report made ready stay in its lane, because their run is there.
        """
        if not claims:
            return
        now = self._shared.runtime.monotonic()
        batch_lanes = self._lanes_to_fill(len(claims)) if lane is None else (lane,)
        share = -(-len(claims) // len(batch_lanes))
        jobs = []
        for place, claim in enumerate(claims):
            batch_lane = batch_lanes[place // share]
            if not self._shared.may_claim:
                # It was claimed by a commit that was under way when the worker began to drain.
                self._report(self._held_unprepared(claim, now), Released())
                continue
            try:
                prepared = self._prepared.of(claim)
                if prepared.is_transactional and not self._shared.transactor.has_database:
                    said = "a transactional step needs a worker with the database"
                    raise MisfitError(claim.planned.name, said, is_usual=True)
                require_untried(claim, prepared)
            except MisfitError as problem:
                self._misfit(self._held_unprepared(claim, now), problem)
                continue
            except Exception as problem:  # noqa: BLE001 - a step that cannot be prepared fails, its neighbours run
                self._refuse(self._held_unprepared(claim, now), problem)
                continue
            job_lane = batch_lane if lane is not None or prepared.runs_alone else self._lane_for(claim, batch_lane)
            deadline = now + prepared.planned.timeout / SECOND
            job = Job(claim, prepared, deadline, now, self.inputs.fetch, job_lane)
            job.progressed, job.keeper, job.stream_keeper = self._shared.progress.note, self.checkpoints, self.streams
            if claim.planned.call is not None and self._shared.transactor.has_database:
                job.calls.kept = self.inputs.flows.of_call(job)
            if claim.run_due_at is not None:
                job.run_deadline = now + (claim.run_due_at - claim.claimed_at) / SECOND
            if self._seal.is_on:
                job.loaded.opened = self._seal.opened_value
            else:
                job.loaded.checks_seal = self._shared.has_sealed_runs
            job.tracing.is_traced = self._shared.transactor.spans is not None and not prepared.is_rules
            if prepared.is_manual:
                job.completion_token = self._shared.runtime.token()
            jobs.append(job)
        self._shared.hold(jobs)
        self._begin(jobs)

    def run_rules(self, job: Job, outcome: Completed) -> None:
        """The handler completed and the lease is still valid: its rules run next, under the same fence."""
        now, claim = self._shared.runtime.monotonic(), job.claim
        self._shared.let_go(job)
        checked = Job(claim, self._prepared.rules_of(claim), now + claim.planned.timeout / SECOND, job.renewed_at)
        checked.loaded.details, checked.own_output, checked.lane = job.loaded.details, (outcome.output,), job.lane
        checked.loaded.opened = job.loaded.opened
        self._shared.hold([checked])
        self._begin([checked])

    def _held_unprepared(self, claim: Claim, now: float) -> Job:
        job = Job(claim, self._prepared.unprepared(claim), renewed_at=now, lane=self._lane_of(claim))
        self._shared.hold([job])
        return job

    def _misfit(self, job: Job, problem: MisfitError) -> None:
        """This worker cannot serve a step that others may: it is handed back, with the reason on record."""
        self._shared.misfits.note(job.claim, problem)
        self._report(job, Released(reason=storable_text(str(problem)), unfit=problem.unfit))
        self._shared.signals.ability_changed()

    def _refuse(self, job: Job, problem: Exception) -> None:
        if job.prepared.is_rules:
            self._report(job, RulesFailed(error=storable_text(exception_text(problem))))
        else:
            self._report(job, failure_of(problem))

    def _lane_of(self, claim: Claim) -> int:
        """The lane of a run with several attempts under way: always the same one."""
        return ord(claim.run_id[-1]) % self._lanes

    def _lane_for(self, claim: Claim, batch_lane: int) -> int:
        """The lane of a run in which several attempts may be under way. A flow that is its whole workflow and of which
        nothing is known here has none under way: it may join the batch, and its calls follow it."""
        known = self.inputs.flows.lane_of(claim)
        if known is not None:
            return known
        is_new = claim.planned.kind.is_flow and claim.plan.size == 1
        return batch_lane if is_new else self._lane_of(claim)

    def _lanes_to_fill(self, count: int) -> Sequence[int]:
        """The lanes for so many claims of one batch. Few go to one lane, the fullest that is not full, because two
        commits cost more than one. Many keep two lanes equally full, so that the reports of one half are decided while
        the database writes the other."""
        held = Counter(dict.fromkeys(range(self._lanes), 0))
        held.update([job.lane for job in self._shared.leases])
        full = -(-self._shared.settings.concurrency // self._lanes)
        open_lanes = [lane for lane in held if held[lane] < full] or [min(held, key=held.__getitem__)]
        if count < DIVIDED // 2 or not self._shared.transactor.store.divides_batches:
            return (max(open_lanes, key=held.__getitem__),)
        pair = sorted(open_lanes[:2], key=held.__getitem__)
        is_divided = count >= DIVIDED and held[pair[-1]] < DIVIDED // 2
        return pair if is_divided else pair[:1]

    # -- inputs ------------------------------------------------------------------------------------------------------
    def _begin(self, jobs: list[Job]) -> None:
        lacking = self.inputs.fill(jobs)
        if lacking:
            # A secret may take seconds to read, and no other job waits for it.
            apart = [job for job in lacking if job.prepared.needs_secrets]
            together = [job for job in lacking if not job.prepared.needs_secrets]
            for batch in (*([job] for job in apart), *([together] if together else [])):
                self._shared.spawn(self._load(batch))
            absent = set(lacking)
            jobs = [job for job in jobs if job not in absent]
        self._start(jobs)

    async def _load(self, jobs: list[Job]) -> None:
        """Read the inputs of these jobs while they are held."""
        tries = 0
        while jobs := self._still_held(jobs):
            try:
                await self.inputs.load(jobs)
            except StoreError as problem:
                await self._sit_out(problem, tries)
                tries += 1
            except MissingSecret as problem:
                self._hand_back(jobs, problem)
                return
            except Exception as problem:  # noqa: BLE001 - a row that cannot be read fails its step, its neighbours run
                await self._load_apart(jobs, problem)
                return
            else:
                self._start(self._still_held(jobs))
                return

    async def _sit_out(self, problem: Exception, tries: int) -> None:
        """Wait before the next try of what the database did not answer."""
        self._shared.outage.met(problem)
        await self._shared.outage.pause(tries)

    def _hand_back(self, jobs: list[Job], problem: MissingSecret) -> None:
        """A secret that is not here is no fault of the run: other workers may have it. Nothing is counted."""
        # First, so that this worker does not claim the same step again.
        self._shared.signals.ability_changed()
        for job in jobs:
            log.warning("%s is handed back: %s", job.title, problem)
            self._report(job, Released())

    def _still_held(self, jobs: list[Job]) -> list[Job]:
        return [job for job in jobs if job in self._shared.leases and not job.reported]

    async def _load_apart(self, jobs: list[Job], problem: Exception) -> None:
        """The inputs of some job cannot be read: load each job alone, and fail those that cannot be loaded."""
        if len(jobs) > 1:
            for job in jobs:
                await self._load([job])
            return
        [job] = jobs
        if isinstance(problem, PayloadSealed) and not self._seal.is_on and job.own_output is None:
            # The handler has not run. Workers that have the codec may serve the step.
            spec = queue_specs(job.claim.plan.definition)[job.claim.plan.written_no(job.claim.step.no)]
            self._misfit(job, MisfitError("" if spec is None else spec.name or spec.kind, str(problem)))
            return
        log.error("what %s needs cannot be read", job.title, exc_info=problem)
        said = storable_text(f"what this attempt needs cannot be read from the database: {exception_text(problem)}")
        self._report(job, Failed(category=Category.UNKNOWN, error=said))

    # -- handlers ----------------------------------------------------------------------------------------------------
    def _start(self, jobs: list[Job]) -> None:
        """Start these jobs: first the rules before a handler, where a step has them."""
        ready = []
        for job in jobs:
            if job.prepared.pre is None:
                ready.append(job)
            else:
                job.running = True
                self._shared.spawn(self._check_first(job, job.prepared.pre))
        self._run(ready)

    def _run(self, jobs: list[Job]) -> None:
        apart = []
        for job in jobs:
            job.running = True
            self._trace(job)
            if job.prepared.is_transactional:
                self._shared.spawn(self._transact(job))
            else:
                apart.append(job)
        if apart:
            self._shared.runner.start(apart)

    def _trace(self, job: Job) -> None:
        """Begin the span of an attempt, and give its handler what to pass on."""
        if job.loaded.details is None:
            return
        spans, trace = self._shared.transactor.spans, trace_of(job.loaded.details.labels)
        job.tracing.trace = None if trace is None else str(trace)
        if spans is not None and job.tracing.is_traced:
            job.tracing.span = spans.attempt(job.claim, job.loaded.details.labels, self._shared.membership.row.id)
            given = job.tracing.span.get_span_context()
            job.tracing.trace = str(Trace(given.trace_id, given.span_id, int(given.trace_flags)))

    async def _check_first(self, job: Job, pre: Prepared) -> None:
        """Evaluate the rules before the handler, in the slot and under the claim of the attempt; then run it."""
        shared = self._shared
        first = job.first = rules_job(job, pre)
        first.waiter = asyncio.get_running_loop().create_future()
        first.running = True
        shared.runner.start([first])
        outcome = await first.waiter
        job.running = False
        if job in shared.slots.orphaned:
            shared.slots.orphaned.discard(job)
            shared.signals.changed()
        elif job in shared.leases and not job.reported:
            if isinstance(outcome, RulesPassed):
                job.first = None
                self._run([job])
            else:
                self._report(job, outcome)

    def stop(self, job: Job, why: Why) -> None:
        """Ask the handler to end. Coroutines, processes and commands are ended; a thread cannot be."""
        job.cancelled.set(why)
        if not job.running:
            return
        if job.first is not None:
            self._shared.runner.stop(job.first)
        elif why is Why.RUN_STOPPING and job.context is not None and job.prepared.spec is not None:
            self._shared.spawn(self._stop_soon(job))
        else:
            self._shared.runner.stop(job)

    async def _stop_soon(self, job: Job) -> None:
        """A handler that can read the flag may end by itself for a moment, with a result."""
        await self._shared.runtime.sleep(LEAVE_SECONDS)
        if job.running:
            self._shared.runner.stop(job)

    async def _transact(self, job: Job) -> None:
        """A transactional step: its handler, its writes and its report are one transaction."""
        shared = self._shared
        outcome, reply = await attempt_in_transaction(
            shared.transactor,
            shared.runner.start,
            job,
            lambda outcome: shared.event(job.claim, outcome, ends_of(job)),
            lambda: job in shared.leases and not job.reported,
        )
        job.running, job.waiter = False, None
        if job in shared.slots.orphaned:
            shared.slots.orphaned.discard(job)
        elif not job.reported and job in shared.leases:
            # If another report is under way (the attempt timed out during the commit), the slot is reserved for it.
            if reply is not None and isinstance(outcome, Completed):
                job.reported = True
                shared.end_span(job, outcome)
                self._answered(job, outcome, reply)
            else:
                self._report(job, outcome)
        if reply is not None:
            # Nothing was chained to this commit, so any worker may claim the steps it made ready.
            shared.signals.more_work()
        shared.signals.changed()
