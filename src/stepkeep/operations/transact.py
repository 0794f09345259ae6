"""The one door to `decide`: events in, one transaction, answers out.

Lock runs, read, decide (pure), write everything, commit. Many events over many runs share a transaction; one bad event
is refused alone. Everything that changes a run, from a worker's report to an operator's cancel, comes through here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TypeVar

import msgspec

from stepkeep.errors import Contended, Refused, StoreUnavailable, Unreadable
from stepkeep.kernel.decision import Accepted, Claimer
from stepkeep.kernel.events import Event, StepClaimed, StepReported
from stepkeep.kernel.fitting import event_bytes
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.kernel.rows import Step
from stepkeep.operations.clock import Clock
from stepkeep.operations.deliberation import Answer, Deliberation
from stepkeep.operations.lanes import Lane, all_or_each
from stepkeep.operations.memory import Memory, is_certain
from stepkeep.operations.plans import PlanCache
from stepkeep.store.protocol import Loaded, More, Propose, Store, Transaction, Write

MEETINGS = 12
"""How often a transaction that met another one is run again before the caller hears of it."""

MOST_HIDDEN = 10_000
"""How many claimable steps of runs that cannot be read a claim looks beyond."""

WARY = 2.0
"""How long (seconds) a worker that met another one while it claimed takes locks before it looks."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A step that this worker now holds, with all that is needed to run it."""

    tenant: str
    run_id: str
    step: Step
    planned: PlannedStep
    plan: Plan
    claimed_at: int


class ClaimsInDoubt(StoreUnavailable):
    """The database fell silent around a commit that claimed steps: this worker may hold them, or not.

    Whoever reports `Released` on each learns which, and burns no attempt on a step that nobody ran.
    """

    def __init__(self, problem: StoreUnavailable, claims: Sequence[Claim]) -> None:
        super().__init__(str(problem))
        self.claims = tuple(claims)


class UnreadableRuns:
    """The runs that this process has found unreadable: each is told of once."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._told: dict[tuple[str | None, str | None], None] = {}
        self.due = 0
        """How many of them the last sweep found due: the next one looks at so many more."""

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


class Transactor:
    """One per process: the store, the plans it has met, and the lanes that group what callers ask for."""

    def __init__(
        self, store: Store, plans: PlanCache | None = None, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self.plans = plans or PlanCache()
        self._lane: Lane[Event, Accepted] = Lane(self._submit_batch, size_bytes=event_bytes)
        self._monotonic, self._locks_until = monotonic, -inf
        self.clock = Clock(monotonic)
        self._memory = Memory(self.clock)
        self._hidden_steps = 0
        self.unreadable = UnreadableRuns()

    # -- events from people, clocks and the outside ------------------------------------------------------------------
    async def submit(self, event: Event) -> Accepted:
        """Let one event take effect, in a transaction shared with whoever else asks at the same time."""
        return await self._lane.put(event)

    async def submit_all(self, events: Sequence[Event]) -> list[Answer]:
        """Let these events take effect in one transaction; refusals come back as values.

        Events whose rows the database does not take are answered alone, and the others are written without them.
        """
        return await all_or_each(list(events), self._submit_together)

    async def _submit_together(self, events: list[Event]) -> list[Answer]:
        thought = await self._in_transaction(lambda: Deliberation(self.plans, events))
        self.unreadable.note_all(thought.barred.values())
        return answers(thought)

    async def _submit_batch(self, events: list[Event]) -> list[Answer]:
        return await self.submit_all(events)

    # -- workers -----------------------------------------------------------------------------------------------------
    async def claim(self, claimer: Claimer, *, limit: int, after: int | None = None) -> list[Claim]:
        """Claim up to `limit` ready steps of the worker's queues."""
        if limit <= 0 or not claimer.queues:
            return []
        while True:
            beyond = self._hidden_steps
            thought = await self._claim_beyond(claimer, limit, beyond, after)
            self._hidden_steps = min(thought.passed_over, MOST_HIDDEN)
            claimed = claims_of(thought)
            # Steps of runs that cannot be read stay in front of the queue: the next look reaches beyond them.
            if claimed or self._hidden_steps <= beyond:
                return claimed

    async def _claim_beyond(self, claimer: Claimer, limit: int, beyond: int, after: int | None) -> Deliberation:
        """Claim up to `limit` steps, and look at so many more, because as many are known to be no use."""
        propose = Propose(queues=tuple(sorted(claimer.queues)), limit=limit + beyond, after=after)

        def think_of() -> Deliberation:
            return _Claiming(self.plans, claimer, limit)

        thought = await self._claim_lightly(think_of(), propose)
        if thought is None:
            thought = await self._in_transaction(think_of, propose)
        self.unreadable.note_all(thought.barred.values())
        for answer in answers(thought):
            if not isinstance(answer, Accepted | Refused | Unreadable):
                log.error("a step that is ready cannot be claimed", exc_info=answer)
        self._memory.hold(thought)
        return thought

    async def _claim_lightly(self, thought: Deliberation, propose: Propose) -> Deliberation | None:
        """Look for work that nobody else seems to want, and record the claim: two round trips instead of five.

        None means that nothing was claimed, and that somebody has to look again, with locks: who has met another worker
        would only meet it again, and does so for a while.
        """
        if not self.store.looks_first or self._monotonic() < self._locks_until:
            return None
        known = await self.store.find_claimable(propose)
        if known.passed_over and not known.proposed:
            thought.think(known)
            return thought
        if not known.proposed or await self._record(thought, known, patient=False):
            return thought
        self._locks_until = self._monotonic() + WARY
        return None

    async def report(self, events: Sequence[StepReported], claimer: Claimer | None) -> tuple[list[Answer], list[Claim]]:
        """Report outcomes in one transaction and, where the worker has room, claim what they made ready."""
        recalled = self._memory.recall(events, self.store.clock_offset)
        thought = Deliberation(self.plans, events, claimer)
        if recalled is not None and await self._record(thought, recalled[0]):
            self._memory.forget(events)
            self._memory.hold(thought, recalled[1])
        else:
            expected = self._memory.expect(events)
            thought = await self._in_transaction(lambda: Deliberation(self.plans, events, claimer, expected))
            self._memory.forget(events)
            self._memory.hold(thought)
            self.unreadable.note_all(thought.barred.values())
        return answers(thought), claims_of(thought)

    async def report_in(self, transaction: Transaction, event: StepReported) -> Answer:
        """Report inside a transaction in which the handler has written already (promise 4)."""
        thought = Deliberation(self.plans, (event,), None, self._memory.expect((event,)))
        await transaction.change(thought.wants(), thought.think)
        self._memory.forget((event,))
        return answers(thought)[0]

    def forget(self, claim: Claim) -> None:
        """The worker lost this claim and will never report on it."""
        self._memory.drop((claim.tenant, claim.run_id), claim.step.no, claim.step.fence)

    async def _record(self, thought: Deliberation, known: Loaded, *, patient: bool = True) -> bool:
        """Decide on what is known, and write that if the database agrees; says whether it does.

        If not, nothing was written, and somebody has to look.
        """
        write = thought.think(known)
        if not isinstance(write, Write) or not is_certain(thought):
            return False
        try:
            with in_doubt(thought):
                now = await self.store.record(write, known, patient=patient)
        except Contended:
            return False
        self.clock.read(now - self.store.clock_offset)
        return True

    # -- the transaction ---------------------------------------------------------------------------------------------
    async def _in_transaction(
        self, think_of: Callable[[], Deliberation], propose: Propose | None = None
    ) -> Deliberation:
        async def once() -> Deliberation:
            thought = think_of()
            offset = self.store.clock_offset

            def think(loaded: Loaded) -> More | Write:
                self.clock.read(loaded.now - offset)
                return thought.think(loaded)

            with in_doubt(thought):
                await self.store.change(thought.wants(), think, propose)
            return thought

        return await again_if_contended(once)


@contextmanager
def in_doubt(thought: Deliberation) -> Iterator[None]:
    """A block that commits: where the database falls silent in it, what was claimed may be held, or not."""
    try:
        yield
    except StoreUnavailable as problem:
        if claims := claims_of(thought):
            raise ClaimsInDoubt(problem, claims) from problem
        raise


async def again_if_contended(transaction: Callable[[], Awaitable[T]]) -> T:
    """Run a whole transaction again when it met another: it left nothing behind, so it may."""
    for meeting in range(MEETINGS):
        try:
            return await transaction()
        except Contended:
            if meeting == MEETINGS - 1:
                raise
            await asyncio.sleep(random.uniform(0, 0.002 * 2**meeting))  # noqa: S311
    raise AssertionError("unreachable")


def claims_of(thought: Deliberation) -> list[Claim]:
    """The steps that a transaction claimed, if it was committed."""
    return [
        Claim(
            tenant=step.tenant,
            run_id=step.run_id,
            step=step,
            planned=plan.at(step.no),
            plan=plan,
            claimed_at=step.claimed_at or 0,
        )
        for plan, step in thought.claimed()
    ]


def answers(thought: Deliberation) -> list[Answer]:
    missing = Refused("the event was not decided on")
    return [missing if reply is None else reply for reply in thought.replies]


class _Claiming(Deliberation):
    """A deliberation whose events are the claims that the store proposed."""

    def __init__(self, plans: PlanCache, claimer: Claimer, limit: int) -> None:
        super().__init__(plans)
        self._for, self._limit = claimer, limit

    def think(self, loaded: Loaded) -> More | Write:
        unknown = self._unknown(loaded)
        if unknown:
            return More(definitions=unknown)
        self._given = tuple(
            self._claim(loaded, tenant, run_id, no) for tenant, run_id, no in loaded.proposed[: self._limit]
        )
        return super().think(loaded)

    def _claim(self, loaded: Loaded, tenant: str, run_id: str, no: int) -> StepClaimed:
        plan = self._plans.get(loaded.runs[tenant, run_id].definition_id)
        return StepClaimed(
            tenant=tenant,
            run_id=run_id,
            actor=self._for.actor,
            no=no,
            worker=self._for.worker,
            lease=self._for.lease or (plan.definition.lease if plan else 0),
        )
