"""Reports outcomes in group commits, chains claims to them, and handles each reply.

Every report gets a reply before its job is let go; an outage only delays it. One outcome that cannot be recorded never
holds up its neighbours. `attempts` gives it what follows a reply: the chained claims, and the rules of a step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import InvalidInput, Refused, StoreError, Unreadable
from stepkeep.kernel.machine.fitting import outcome_bytes
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, Released, RulesFailed, RulesPassed, Stopped
from stepkeep.kernel.machine.states import Category, StepState
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.group_commit import GroupCommit
from stepkeep.operations.pipeline.transact import Claim, UnconfirmedClaims
from stepkeep.worker.attempts.capacity import ChainBudget
from stepkeep.worker.attempts.claiming import ClaimName, named
from stepkeep.worker.attempts.evidence import EvidenceKeeper
from stepkeep.worker.attempts.executor import Job, Report
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.attempts.streams import StreamKeeper
from stepkeep.worker.flows.ahead import Resumed
from stepkeep.worker.shared import Shared, ends_of

log = logging.getLogger("stepkeep.worker")

SECOND = 1_000_000


class Reporting:
    """The reports of one worker. There are as many lanes as the store can serve in parallel, and a run is never in two
    of them at once.

    `accept` takes chained claims, `run_rules` a step whose rules come next, `succeeded` an outcome that may be input of
    other steps, `recorded` every outcome that was accepted, `unrecorded` every job whose outcome was not, `unconfirmed`
    claims of a commit that was never answered. `streams` appends what attempts write.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        accept: Callable[[Sequence[Claim], int], None],
        run_rules: Callable[[Job, Completed], None],
        succeeded: Callable[[Job, Outcome], None],
        recorded: Callable[[Job, Outcome, Accepted], None],
        unrecorded: Callable[[Job], None],
        unconfirmed: Callable[[dict[ClaimName, Claim]], None],
        streams: Callable[[], StreamKeeper],
    ) -> None:
        self._shared = shared
        self.evidence = EvidenceKeeper(shared.transactor.store, shared.transactor.payloads.seal)
        self._accept, self._run_rules, self._succeeded, self._unconfirmed = accept, run_rules, succeeded, unconfirmed
        self._recorded_as, self._unrecorded, self._streams = recorded, unrecorded, streams
        self.commits: GroupCommit[Report] = GroupCommit(
            self._commit,
            lanes=shared.transactor.store.parallel_commits,
            lane_of=lambda report: report[0].lane,
            size_bytes=_report_bytes,
            sleep=shared.runtime.sleep,
        )

    def report(self, job: Job, outcome: Outcome) -> None:
        """Put this outcome on its way to the database; later results of the job are dropped."""
        self.report_all([(job, outcome)])

    def report_all(self, reports: Sequence[Report]) -> None:
        for job, outcome in reports:
            job.reported = True
            self._shared.end_span(job, outcome)
            if job.calls.resumed is not None:
                resumed = job.calls.resumed
                resumed.outcome = _of_own_code(resumed.job, self.evidence.take(resumed.job, resumed.outcome))
        told = [(job, self._recorded(job, outcome)) for job, outcome in reports]
        if late := [report for report in told if self._writes_more(report[0])]:
            for report in late:
                self._shared.spawn(self._report_after_writing(report))
            told = [report for report in told if report not in late]
        self.commits.put(told)

    def _writes_more(self, job: Job) -> bool:
        """Whether chunks of the attempt are appended before its report."""
        return job.streams is not None and not job.streams.is_empty and self._streams().is_busy(job)

    async def _report_after_writing(self, report: Report) -> None:
        await self._streams().flush(report[0])
        self.commits.put([report])

    def _recorded(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome to report; its evidence is kept apart."""
        if job.prepared.is_rules:
            return of_rules(outcome)
        return _of_own_code(job, self.evidence.take(job, outcome if job.first is None else of_rules_before(outcome)))

    # -- one commit --------------------------------------------------------------------------------------------------
    async def _commit(self, batch: list[Report]) -> int:
        """Report a batch, claim the steps it made ready, and start them. Returns how many were started. Raises
        nothing."""
        shared, tries, started = self._shared, 0, 0
        unconfirmed: dict[ClaimName, Claim] = {}
        while batch := self._held(batch):
            leaving = {job for job, outcome in batch if _frees_slot(job, outcome)} if shared.may_claim else set()
            budget = shared.slots.chain_budget(batch, leaving) if shared.may_claim else ChainBudget()
            try:
                replies, claims = await self._write(batch, budget, leaving)
            except StoreError as problem:
                if isinstance(problem, UnconfirmedClaims):
                    unconfirmed |= named(problem.claims)
                shared.outage.met(problem)
                await shared.outage.pause(tries)
                tries += 1
                continue
            except Exception as problem:  # noqa: BLE001 - a defect must not take the whole batch with it
                await self._commit_apart(batch, problem)
                break
            shared.outage.over()
            attempts = _all_attempts(batch)
            self._answer_all(batch, replies)
            self._accept(claims, batch[0][0].lane)
            for name in named(claims):
                unconfirmed.pop(name, None)
            shared.signals.changed()
            await self.evidence.write(attempts)
            started = len(claims)
            if budget.slots and started == budget.slots < budget.follow:
                shared.signals.more_work()
            break
        if unconfirmed:
            self._unconfirmed(unconfirmed)
        return started

    def _held(self, batch: list[Report]) -> list[Report]:
        """The reports of attempts that are still held; the others are dropped."""
        leases = self._shared.leases
        held = [report for report in batch if report[0] in leases]
        if len(held) < len(batch):
            for job, _ in batch:
                if job not in leases:
                    self._unrecorded(job)
        return held

    async def _write(
        self, batch: Sequence[Report], budget: ChainBudget, leaving: set[Job]
    ) -> tuple[list[Answer], list[Claim]]:
        """One transaction: the reports, each with the flow that went on from it, and claims within the budget."""
        shared = self._shared
        queues = shared.slots.queues.all
        claimer = shared.claimer(queues, budget.slots, budget.blocking_slots) if budget.slots else None
        events = []
        for job, outcome in batch:
            events.append(shared.event(job.claim, outcome, ends_of(job)))
            if job.calls.resumed is not None and not shared.may_resume(job.calls.resumed):
                job.calls.resumed.give_back()
                job.calls.resumed = None
            if job.calls.resumed is not None:
                events.append(shared.resumption(job.calls.resumed))
        with shared.slots.reserve(budget.spare, budget.blocking_spare, leaving):
            return await shared.transactor.report(events, claimer)

    async def _commit_apart(self, batch: list[Report], problem: Exception) -> None:
        """One report made the whole batch fail: report each alone, and give up those that fail alone."""
        if len(batch) > 1:
            for report in batch:
                await self._commit([report])
            return
        job = batch[0][0]
        if job.calls.resumed is not None:
            # The fault may be in the flow's part: the call is reported without it.
            job.calls.resumed.give_back()
            job.calls.resumed = None
            await self._commit(batch)
            return
        self._give_up(*batch[0], problem)

    # -- one reply ---------------------------------------------------------------------------------------------------
    def _answer_all(self, batch: Sequence[Report], replies: Sequence[Answer]) -> None:
        """Handle the replies to a batch: that to each report, and to the flow that went on from it."""
        answers = iter(replies)
        for job, outcome in batch:
            resumed, job.calls.resumed = job.calls.resumed, None
            self.answered(job, outcome, next(answers))
            if resumed is not None:
                self._answer_resumed(resumed, next(answers))

    def answered(self, job: Job, outcome: Outcome, reply: Answer) -> None:
        """Handle the reply to one report. A defect here costs the lease of this job only."""
        try:
            self._handle(job, outcome, reply)
        except Exception:
            log.exception("the answer to the report on %s cannot be processed", job.title)
            self._abandon(job)

    def _handle(self, job: Job, outcome: Outcome, reply: Answer) -> None:
        if not isinstance(reply, Accepted):
            self._unrecorded(job)
        if isinstance(reply, Refused) and not isinstance(reply, InvalidInput):
            log.info("dropped: %s", reply)
            self._shared.let_go(job)
            return
        if isinstance(reply, Unreadable):
            self._shared.transactor.unreadable.note(reply)
            self._abandon(job)
            return
        if not isinstance(reply, Accepted):
            self._give_up(job, outcome, reply)
            return
        state = reply.record.get("state")
        self._recorded_as(job, outcome, reply)
        if state == StepState.SUCCEEDED:
            self._succeeded(job, outcome)
        elif state == StepState.VALIDATING and isinstance(outcome, Completed) and not job.prepared.is_rules:
            if job in self._shared.leases:
                # A job that was given up meanwhile has lost its slot too; its lease is left to expire.
                self._run_rules(job, outcome)
            return
        elif "due_in" in reply.record:
            self._shared.signals.due_in(reply.record["due_in"] / SECOND)
        self._shared.let_go(job)

    def _answer_resumed(self, resumed: Resumed, reply: Answer) -> None:
        """Handle the reply to a flow that went on ahead. One that was refused waits for a claim, as if it had not."""
        if not isinstance(reply, Accepted):
            log.debug("not resumed: %s", reply)
            resumed.job.calls.flow = None
            resumed.kept.put(resumed.flow)
            return
        self._recorded_as(resumed.job, resumed.outcome, reply)
        if reply.record.get("state") == StepState.SUCCEEDED:
            self._succeeded(resumed.job, resumed.outcome)
        if "due_in" in reply.record:
            self._shared.signals.due_in(reply.record["due_in"] / SECOND)

    def _give_up(self, job: Job, outcome: Outcome, problem: Exception) -> None:
        """An outcome that cannot be recorded is replaced by a failure without any data of the handler. If even that
        cannot be recorded, the lease is left to expire."""
        is_second = job.gave_up
        job.gave_up = True
        which = (job.claim.planned.name, job.claim.run_id)
        if isinstance(problem, InvalidInput):
            log.warning("the report on step %s of run %s is refused: %s", *which, problem)
        else:
            log.error("the report on step %s of run %s cannot be processed", *which, exc_info=problem)
        if is_second or isinstance(outcome, Released):
            self._abandon(job)
            return
        said = storable_text(f"what the handler answered cannot be recorded: {exception_text(problem)}")
        self.report(job, Failed(category=Category.VALIDATION, error=said, final=True))

    def _abandon(self, job: Job) -> None:
        self._shared.transactor.forget(job.claim)
        self._shared.let_go(job)


def _of_own_code(job: Job, outcome: Outcome) -> Outcome:
    """The failure of a flow says for which calls it failed, or which code raised, if that was no failure of a call."""
    if not isinstance(outcome, Failed) or job.calls.blames is None:
        return outcome
    return replace(outcome, unfit=job.calls.unfit, blames=job.calls.blames)


def _report_bytes(report: Report) -> int:
    job, outcome = report
    written = 0 if job.streams is None else job.streams.size_bytes
    return (
        outcome_bytes(outcome)
        + written
        + (0 if job.calls.resumed is None else outcome_bytes(job.calls.resumed.outcome))
    )


def _all_attempts(batch: Sequence[Report]) -> list[Job]:
    """The attempts that ended with these reports, those of resumed flows among them."""
    jobs = [job for job, _ in batch]
    return jobs + [job.calls.resumed.job for job in jobs if job.calls.resumed is not None]


def of_rules(outcome: Outcome) -> Outcome:
    """Rules are not retried: any error in their evaluation fails the step."""
    if isinstance(outcome, RulesPassed | RulesFailed | Released):
        return outcome
    return RulesFailed(error=getattr(outcome, "error", "the rules could not be judged"))


def of_rules_before(outcome: Outcome) -> Outcome:
    """The same for rules before a handler: the attempt fails for good, and its handler did not run."""
    if isinstance(outcome, Released | Stopped):
        return outcome
    said = getattr(outcome, "error", "the rules could not be judged")
    return Failed(category=Category.VALIDATION, error=said, final=True, unrun=True, cost=outcome.cost)


def _frees_slot(job: Job, outcome: Outcome) -> bool:
    """Whether a report frees a slot: its handler has ended, and no rules run in the same slot."""
    if job.running:
        return False
    return not job.claim.planned.has_rules or job.prepared.is_rules or not isinstance(outcome, Completed)
