"""The pipeline for decisions on runs: load on a basis, decide, write if unchanged, else load with locks.

Many events over many runs share a transaction; one bad event is refused alone. It must not decide anything itself: the
kernel does, inside the batch. Workers, the operations of people and clocks, and starts call it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Protocol, TypeVar

import msgspec

from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.decide.resources import AWAITS_RESOURCES
from stepkeep.kernel.errors import Contended, Refused, StoreUnavailable, Unreadable
from stepkeep.kernel.machine.events import Event, StepCheckpointed, StepClaimed, StepReported
from stepkeep.kernel.machine.fitting import event_bytes
from stepkeep.kernel.machine.rows import Child, Notice, Recall, Step
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations.limits.resource_claims import (
    PassedOver,
    ResourceClaimBatch,
    WaitingStep,
    find_claims,
    ruled_out_of,
)
from stepkeep.operations.limits.rules import FRESH_SECONDS, RuleReader, Rules
from stepkeep.operations.pipeline.batch import Answer, DecisionBatch
from stepkeep.operations.pipeline.clock import Clock
from stepkeep.operations.pipeline.group_commit import Submissions, again_if_contended, all_or_each
from stepkeep.operations.pipeline.measures import Measures
from stepkeep.operations.pipeline.memory import Memory
from stepkeep.operations.pipeline.payloads import Payloads
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.operations.pipeline.shared_reads import RecentReads, SharedReads
from stepkeep.operations.remote.recorded_calls import CallReader
from stepkeep.operations.remote.recorded_checkpoints import CheckpointReader
from stepkeep.operations.runs.spans import Spans
from stepkeep.operations.streams.writing import StreamWriter
from stepkeep.store.change import Basis, Loaded, More, NewRun, Propose, RunKey, StoredDefinition, Want, Write
from stepkeep.store.protocol import Store, Transaction
from stepkeep.store.rows import BegunChild, SlotRow

MOST_HIDDEN = 10_000
"""How many claimable steps of unreadable runs a claim skips at most."""

RESOURCES_SECONDS = 1.0
"""How often a process that claims reads whether steps wait for resources."""

MOST_LINES_DUE = 1_000
"""Of how many lines under limits a process remembers when they are due; it reads of the others."""

MOMENT = 0.001
"""The least time until a line is due."""

LOCKED_CLAIM_SECONDS = 2.0
"""How long a process claims with row locks after a conflict: an optimistic claim would conflict again."""

Succeeded = Callable[[RunKey, Plan, Sequence[StepReported]], None]
"""Called after the commit of the reports that ended a run well."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A step that this worker now holds, with everything needed to run it. `run_due_at` is the end of its run's
    timeout."""

    tenant: str
    run_id: str
    step: Step
    planned: PlannedStep
    plan: Plan
    claimed_at: int
    run_due_at: int | None = None


def first_claimed_at(claims: Iterable[Claim]) -> int | None:
    """When the first of these was claimed."""
    return min((claim.claimed_at for claim in claims), default=None)


class UnconfirmedClaims(StoreUnavailable):
    """The connection failed during a commit that claimed steps: this worker may hold them or not.

    A report of `Released` on each shows which, and counts no attempt for a step that did not run.
    """

    def __init__(self, problem: StoreUnavailable, claims: Sequence[Claim]) -> None:
        super().__init__(str(problem))
        self.claims = tuple(claims)


class UnreadableRuns:
    """The unreadable runs that this process has found: each is logged once."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._told: dict[tuple[str | None, str | None], None] = {}
        self.due = 0
        """How many of them the last sweep found due: the next one reads that many more."""

    def note_all(self, problems: Iterable[Exception]) -> None:
        for problem in problems:
            if isinstance(problem, Unreadable):
                self.note(problem)

    def note(self, problem: Unreadable) -> None:
        key = (problem.tenant, problem.run_id)
        if key in self._told:
            return
        while len(self._told) >= self._most:
            del self._told[next(iter(self._told))]
        self._told[key] = None
        log.error("%s", problem)


class Batch(Protocol):
    """What one transaction decides: what it wants loaded, and the decision on what was loaded.

    `decide` is pure and may be called again with other rows. `is_certain` says whether a decision on unlocked rows may
    be written: the write must show whether those rows were still true.
    """

    basis: Basis

    def wants(self) -> Sequence[Want]: ...
    def decide(self, loaded: Loaded) -> More | Write: ...
    def is_certain(self) -> bool: ...


B = TypeVar("B", bound=Batch)


class Unlocked(msgspec.Struct, frozen=True):
    """Rows that are known without a lock, and how."""

    basis: Basis
    loaded: Loaded


class Transactor:
    """One per process: the store, the plan cache, and the lanes that group requests of callers.

    `has_database` is False where another process does what needs one: sweeps, events, maintenance, transactional steps.
    """

    has_database = True

    def __init__(
        self, store: Store, plans: PlanCache | None = None, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self.plans = plans or PlanCache()
        self.payloads = Payloads(store)
        self.calls = CallReader(store, self.payloads)
        self.streams = StreamWriter(store, self.payloads.seal)
        self.checkpoints = CheckpointReader(store)
        self.definitions: SharedReads[tuple[str, str, int | None], StoredDefinition | None] = SharedReads(
            lambda which: self.store.read_definition(*which)
        )
        self.plans.compiler.opened = self.payloads.seal.opened
        self.plans.compiler.sealed = self.payloads.seal.seal
        self._lane: Submissions[Event, Accepted] = Submissions(self._submit_batch, size_bytes=event_bytes)
        self.monotonic = self._monotonic = monotonic
        self._locked_claims_until = -inf
        self.clock = Clock(monotonic)
        self._memory = Memory(self.clock)
        self._hidden_steps = 0
        self.unreadable = UnreadableRuns()
        self.measures = Measures()
        self.spans: Spans | None = None
        self.succeeded: Succeeded = lambda key, plan, outputs: None
        self.creating: Callable[[Sequence[NewRun]], None] = lambda runs: None
        """Called before a commit that creates runs."""
        self.claiming: Callable[[Loaded], None] = lambda proposed: None
        """Called before a commit that claims proposed steps."""
        self.on_children: list[Callable[[], None]] = []
        self.on_slots: list[Callable[[], None]] = []
        """Called when a committed run waits for an execution slot, or one ended while `runs_wait`."""
        self.runs_wait = False
        """Whether runs waited for a slot when this process looked last."""
        self.steps_wait = False
        """Whether steps were set aside when this process looked last."""
        self._waiters_read_at = -inf
        self._lines_due: list[float] = []
        """When lines under limits are due that this process has written, the first one first."""
        self._resources_served = False
        self._passed_over = PassedOver(monotonic)
        self.limit_rules: RecentReads[Rules] = RecentReads(RuleReader().read, FRESH_SECONDS, monotonic)

    # -- events from people, clocks and the outside ------------------------------------------------------------------
    async def submit(self, event: Event) -> Accepted:
        """Submit one event, in a transaction that is shared with concurrent callers."""
        return await self._lane.put(event)

    async def submit_all(self, events: Sequence[Event]) -> list[Answer]:
        """Submit these events in one transaction; refusals are returned as values.

        If the database refuses the rows of some events, these are answered alone, and the others are written without
        them.
        """
        return await all_or_each(list(events), self._submit_together)

    async def _submit_together(self, events: list[Event]) -> list[Answer]:
        small, payloads = await self.payloads.reduced(events)
        batch = await self.run(lambda: DecisionBatch(self.plans, small, payloads=payloads), None)
        self.unreadable.note_all(batch.barred.values())
        return answers(batch)

    async def _submit_batch(self, events: list[Event]) -> list[Answer]:
        return await self.submit_all(events)

    # -- workers -----------------------------------------------------------------------------------------------------
    async def claim(
        self, claimer: Claimer, *, limit: int, after: int | None = None, run: RunKey | None = None
    ) -> list[Claim]:
        """Claim up to `limit` ready steps of the worker's queues; with `run`, of that run alone."""
        if limit <= 0 or not claimer.queues:
            return []
        if (
            await self.find_waiting_steps()
            and not self._resources_served
            and (held := await self._claim_aside(claimer, limit, run))
        ):
            return held
        claimed = await self._claim_plain(claimer, limit, after, run)
        if not claimed and self.steps_wait:
            return await self._claim_aside(claimer, limit, run)
        self._resources_served = False
        return claimed

    async def find_waiting_steps(self) -> bool:
        """Whether steps are set aside: they wait for resources, or for an owner that may execute them. They and others
        come first in turns, so that neither starves."""
        now = self._monotonic()
        if self.has_database and now - self._waiters_read_at >= RESOURCES_SECONDS:
            self._waiters_read_at = now
            self.steps_wait = await self.store.resources.has_waiting() or await self.store.limits.has_due()
        while self._lines_due and self._lines_due[0] <= now:
            heappop(self._lines_due)
            self.steps_wait = True
        return self.steps_wait

    @property
    def line_due_in(self) -> float:
        """In how many seconds a line under a limit is due, as far as this process knows: its rate has a place then."""
        return max(MOMENT, self._lines_due[0] - self._monotonic()) if self._lines_due else inf

    async def _claim_aside(self, claimer: Claimer, limit: int, run: RunKey | None) -> list[Claim]:
        """Claim steps that are set aside: their resources are free, and the owner may execute them. A claim of other
        steps does not come here."""
        self._resources_served = True
        passed_over, looked = self._passed_over, 0
        if passed_over.rests((claimer.owner, claimer.queues, run)):
            return []
        while looked < MOST_HIDDEN:
            now = self.clock.now()
            now = None if now is None else now + self.store.clock_offset
            found = await find_claims(self.store, self.plans, self.limit_rules, claimer, limit, run, passed_over, now)
            if not found:
                return []
            looked += len(found.waiting) + len(found.lines)
            batch = await self.run(partial(ResourceClaimBatch, self.plans, claimer, found, limit), None)
            self.unreadable.note_all(batch.barred.values())
            self._memory.hold(batch)
            passed_over.note(claimer.owner, batch.ruled_out)
            if (claimed := claims_of(batch)) or not (batch.ruled_out or batch.has_parked):
                return claimed
        return []

    async def _claim_plain(self, claimer: Claimer, limit: int, after: int | None, run: RunKey | None) -> list[Claim]:
        began = self._monotonic()
        while True:
            beyond = self._hidden_steps
            batch = await self._claim_beyond(claimer, limit, beyond, after, run)
            self._hidden_steps = min(batch.passed_over, MOST_HIDDEN)
            claimed = claims_of(batch)
            # Steps of runs that cannot be read stay in front of the queue: the next claim reaches beyond them.
            if claimed or self._hidden_steps <= beyond:
                self.measures.claim_seconds.observe(self._monotonic() - began)
                return claimed

    async def _claim_beyond(
        self, claimer: Claimer, limit: int, beyond: int, after: int | None, run: RunKey | None
    ) -> DecisionBatch:
        """Claim up to `limit` steps; propose `beyond` more, because that many are known to be unreadable."""
        propose = Propose(queues=tuple(sorted(claimer.queues)), limit=limit + beyond, after=after, run=run)
        unlocked = None
        if run is None and self.store.prefers_optimistic_claims and self._monotonic() >= self._locked_claims_until:
            unlocked = Unlocked(Basis.READ, await self.store.find_claimable(propose))
        if unlocked is not None and not unlocked.loaded.proposed:
            batch = ClaimBatch(self.plans, claimer, limit, self._passed_over)
            batch.decide(unlocked.loaded)
        else:
            if unlocked is not None:
                self.claiming(unlocked.loaded)
            make = partial(ClaimBatch, self.plans, claimer, limit, self._passed_over)
            batch = await self.run(make, unlocked, propose)
            self._passed_over.note(claimer.owner, batch.ruled_out)
        self.unreadable.note_all(batch.barred.values())
        for answer in answers(batch):
            if not isinstance(answer, Accepted | Refused | Unreadable):
                log.error("a step that is ready cannot be claimed", exc_info=answer)
        self._memory.hold(batch)
        return batch

    async def report(self, events: Sequence[StepReported], claimer: Claimer | None) -> tuple[list[Answer], list[Claim]]:
        """Report outcomes in one transaction and, if the worker has free slots, claim the steps they made ready."""
        given = events = await self.streams.completed(events)
        events, payloads = await self.payloads.reduced(events)
        recalled = self._memory.recall(events, self.store.clock_offset)
        batch = await self.run(
            lambda: DecisionBatch(self.plans, events, claimer, expect=self._memory.expect, payloads=payloads),
            None if recalled is None else Unlocked(Basis.REMEMBERED, recalled.loaded),
        )
        self._memory.forget(events)
        self._memory.hold(batch, None if recalled is None else recalled.runs)
        self.unreadable.note_all(batch.barred.values())
        for key, decision in batch.decisions.items():
            if decision.run.state is RunState.SUCCEEDED:
                self.succeeded(key, batch.plan_of(decision.run), given)
        replies = answers(batch)
        self.measures.replied(replies)
        return replies, claims_of(batch)

    async def checkpoint(self, event: StepCheckpointed) -> Accepted:
        """Record a checkpoint of a running attempt. Raises Fenced if its lease is gone."""
        try:
            return await self.submit(event)
        finally:
            self._memory.outdate((event.tenant, event.run_id), event.no, event.fence)

    def remember(self, batch: DecisionBatch) -> None:
        """Remember the claims of a batch that another transaction has committed."""
        self._memory.hold(batch)

    async def report_in(self, transaction: Transaction, event: StepReported) -> Answer:
        """Report inside a transaction in which the handler has written already (promise 4)."""
        [event], payloads = await self.payloads.reduced(await self.streams.completed((event,)))
        batch = DecisionBatch(self.plans, (event,), expect=self._memory.expect, payloads=payloads)
        batch.basis = Basis.USER_TRANSACTION
        decided: list[tuple[Write, Loaded]] = []

        def decide(loaded: Loaded) -> More | Write:
            found = batch.decide(loaded)
            if isinstance(found, Write):
                decided[:] = [(found, loaded)]
            return found

        await transaction.change(batch.wants(), decide)
        for write, loaded in decided:
            self._committed(batch.basis, write, loaded)
        self._memory.forget((event,))
        replies = answers(batch)
        self.measures.replied(replies)
        return replies[0]

    def forget(self, claim: Claim) -> None:
        """The worker lost this claim and will never report on it."""
        self._memory.drop((claim.tenant, claim.run_id), claim.step.no, claim.step.fence)

    # -- the pipeline ------------------------------------------------------------------------------------------------
    async def run(self, make_batch: Callable[[], B], unlocked: Unlocked | None, propose: Propose | None = None) -> B:
        """Decide on what is known and write it if unchanged; otherwise load with locks, decide again and write.

        Every decision on a run comes through here but those in a transaction of the user. `batch.basis` says what it
        rests on.
        """
        if unlocked is not None:
            batch = make_batch()
            if await self._write_if_unchanged(batch, unlocked):
                return batch
            self.measures.fell_back(unlocked.basis)
            if unlocked.basis is Basis.READ:
                self._locked_claims_until = self._monotonic() + LOCKED_CLAIM_SECONDS
        return await again_if_contended(
            lambda: self._write_locked(make_batch(), propose), lambda: self.measures.conflicted(Basis.LOCKED)
        )

    async def _write_if_unchanged(self, batch: Batch, unlocked: Unlocked) -> bool:
        """Decide on rows that are not locked. Returns whether the database accepted the decision."""
        batch.basis = unlocked.basis
        write = batch.decide(unlocked.loaded)
        if isinstance(write, More) and (write.policies or write.definitions) and not write.wants:
            # Only a policy was read too long ago, or a definition never. They are read by themselves: a load with locks
            # would read every run again.
            unlocked.loaded.policies |= {one: await self.store.read_policy(one) for one in write.policies}
            try:
                if write.definitions:
                    unlocked.loaded.definitions |= await self.store.read_definitions(write.definitions)
            except Unreadable:  # with locks, the other runs go on
                return False
            write = batch.decide(unlocked.loaded)
        if not isinstance(write, Write) or not batch.is_certain():
            return False
        began = self._monotonic()
        self._creating(write)
        try:
            with commit_unknown(batch):
                now = await self.store.write_if_unchanged(write, unlocked.loaded, unlocked.basis)
        except Contended:
            self.measures.conflicted(unlocked.basis)
            return False
        self.clock.read(now - self.store.clock_offset)
        self._committed(unlocked.basis, write, unlocked.loaded, self._monotonic() - began)
        return True

    async def _write_locked(self, batch: B, propose: Propose | None) -> B:
        """Load under locks, decide, write, commit."""
        batch.basis = Basis.LOCKED
        offset, began = self.store.clock_offset, self._monotonic()
        write, known = Write(), Loaded(now=0)

        def decide(loaded: Loaded) -> More | Write:
            nonlocal write, known
            self.clock.read(loaded.now - offset)
            found = batch.decide(loaded)
            if isinstance(found, Write):
                write, known = found, loaded
                self._creating(found)
            return found

        with commit_unknown(batch):
            await self.store.change(batch.wants(), decide, propose)
        self._committed(Basis.LOCKED, write, known, self._monotonic() - began)
        return batch

    def _creating(self, write: Write) -> None:
        if write.new_runs:
            self.creating(write.new_runs)

    def _committed(self, basis: Basis, write: Write, loaded: Loaded, seconds: float | None = None) -> None:
        self.measures.committed(basis, write, loaded, seconds)
        if write.has(CHILD_ROWS):
            for listener in self.on_children:
                listener()
        if self.on_slots and _concerns_slots(write, ends=self.runs_wait):
            for listener in self.on_slots:
                listener()
        if self.plans.sets_aside and (write.limits.ended or _sets_aside(write)):
            self.steps_wait = True
            self._passed_over.wake()
        for line in (*write.limits.begun, *write.limits.lines):
            if line.due_at is not None and len(self._lines_due) < MOST_LINES_DUE:
                heappush(self._lines_due, self._monotonic() + (line.due_at - loaded.now) / 1_000_000)
        if self.spans is not None:
            self.spans.committed(write, loaded)


CHILD_ROWS = frozenset({Child, BegunChild, Recall, Notice})
SLOT_ROWS = frozenset({SlotRow})


def _sets_aside(write: Write) -> bool:
    """Whether a step that is set aside became ready, which its time alone tells."""
    created = (step for new in write.new_runs for step in new.steps)
    return any(
        step.ready_at is not None and step.ready_at >= AWAITS_RESOURCES
        for step in (*write.steps, *write.new_steps, *created)
    )


def _concerns_slots(write: Write, *, ends: bool) -> bool:
    """Whether a run waits for a slot now, or (`ends`) one has ended and may have held one."""
    waits = write.has(SLOT_ROWS)
    return waits or (ends and any(change.run.ended_at is not None for change in write.runs))


@contextmanager
def commit_unknown(batch: Batch) -> Iterator[None]:
    """A block that commits: when the database does not answer, the batch's claims may be held or not."""
    try:
        yield
    except StoreUnavailable as problem:
        if isinstance(batch, DecisionBatch) and (claims := claims_of(batch)):
            raise UnconfirmedClaims(problem, claims) from problem
        raise


def claims_of(batch: DecisionBatch) -> list[Claim]:
    """The steps that a transaction claimed, if it was committed."""
    return [
        Claim(
            tenant=step.tenant,
            run_id=step.run_id,
            step=step,
            planned=plan.of(step),
            plan=plan,
            claimed_at=step.claimed_at or 0,
            run_due_at=run.due_at,
        )
        for run, plan, step in batch.claimed()
    ]


def answers(batch: DecisionBatch) -> list[Answer]:
    missing = Refused("the event was not decided on")
    return [missing if reply is None else reply for reply in batch.replies]


class ClaimBatch(DecisionBatch):
    """A batch whose events are the claims that the store proposed.

    A step that duties rule out for the owner is among them only if it was ready before duties were asked at claims: it
    is not set aside, and is left out from then on.
    """

    def __init__(self, plans: PlanCache, claimer: Claimer, limit: int, over: PassedOver) -> None:
        super().__init__(plans, judges=False)
        self._for, self._limit, self._over, self._skipped = claimer, limit, over, 0

    @property
    def passed_over(self) -> int:
        return super().passed_over + self._skipped + len(self.ruled_out)

    @property
    def ruled_out(self) -> list[WaitingStep]:
        """The steps that duties do not allow the owner of the worker to execute."""
        return ruled_out_of(self._given, self.replies)

    def decide(self, loaded: Loaded) -> More | Write:
        unknown = self._unknown(loaded)
        if unknown:
            return More(definitions=unknown)
        proposed = loaded.proposed
        if self._over:
            proposed = [step for step in proposed if not self._over.has(self._for.owner, step)]
            self._skipped = len(loaded.proposed) - len(proposed)
        self._given = tuple(self._claim(loaded, tenant, run_id, no) for tenant, run_id, no in proposed[: self._limit])
        return super().decide(loaded)

    def _claim(self, loaded: Loaded, tenant: str, run_id: str, no: int) -> StepClaimed:
        plan = self._plans.get(loaded.runs[tenant, run_id].definition_id)
        return StepClaimed(
            tenant=tenant,
            run_id=run_id,
            actor=self._for.actor,
            no=no,
            worker=self._for.worker,
            owner=self._for.owner,
            lease=self._for.lease or (plan.definition.lease if plan else 0),
            queues=self._for.queues,
        )
