"""Records the checkpoints of running attempts, and finds those that earlier attempts of a step have recorded.

Earlier ones are read in pages, when the handler asks for one that is not known yet. New ones are recorded under the
fence of the claim, so that an attempt that lost its lease records nothing. It runs on the worker's loop; handlers reach
it from their own loop or thread. An outage of the database delays it. `Job.make_context` and the executor of flows ask
for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stepkeep.kernel.errors import Fenced, StoreError
from stepkeep.kernel.machine.events import StepCheckpointed
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.operations.remote.recorded_checkpoints import CheckpointPage, Place
from stepkeep.store.records import FIRST_CHECKPOINT
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.once import Checkpoints
from stepkeep.worker.bridge import Bridge, runs_a_loop

Retry = Callable[[Exception, int], Awaitable[None]]
"""Waits before the next try of what an outage interrupted; raises the problem if there is no other try."""


class CheckpointKeeper:
    """The checkpoints of one worker's attempts. `holder` is its id and number."""

    def __init__(
        self,
        transactor: Transactor,
        holder: Callable[[], tuple[str, int]],
        is_held: Callable[[Job], bool],
        retry: Retry,
    ) -> None:
        self._transactor, self._holder, self._is_held, self._retry = transactor, holder, is_held, retry
        self._home: asyncio.AbstractEventLoop | None = None

    @property
    def most_bytes(self) -> int:
        """How large a value may be."""
        return self._transactor.payloads.max_bytes

    def open(self) -> None:
        """Bind to the running event loop, on which everything is read and written."""
        self._home = asyncio.get_running_loop()

    def of(self, job: Job) -> Checkpoints:
        """The checkpoints of the step of this job."""
        assert self._home is not None, "the worker does not run"
        own = AttemptCheckpoints(self, job)
        if runs_a_loop() and asyncio.get_running_loop() is self._home:
            return own
        reached: Checkpoints = Bridge(own, self._home)
        return reached

    async def page(self, job: Job, after: Place) -> CheckpointPage:
        """What earlier attempts have recorded after a place."""
        found: CheckpointPage = await self._persist(job, lambda: self._transactor.checkpoints.page(job.claim, after))
        return found

    async def value(self, job: Job, stored: bytes) -> bytes:
        """What stands for a stored value."""
        claim = job.claim
        found: bytes = await self._persist(
            job, lambda: self._transactor.payloads.value(claim.tenant, claim.run_id, stored)
        )
        return found

    async def record(self, job: Job, name: str, value: bytes) -> None:
        event = self._event(job.claim, name, value)
        await self._persist(job, lambda: self._transactor.checkpoint(event))

    async def _persist(self, job: Job, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do this work while the attempt is held."""
        tries = 0
        while self._is_held(job):
            try:
                return await work()
            except StoreError as problem:
                await self._retry(problem, tries)
                tries += 1
        raise Fenced(f"{job.title} is no longer held by this worker; its checkpoint is not recorded")

    def _event(self, claim: Claim, name: str, value: bytes) -> StepCheckpointed:
        actor, number = self._holder()
        return StepCheckpointed(
            tenant=claim.tenant,
            run_id=claim.run_id,
            actor=actor,
            no=claim.step.no,
            fence=claim.step.fence,
            worker=claim.step.worker or number,
            name=name,
            value=value,
        )


class AttemptCheckpoints:
    """The checkpoints of the step of one attempt: those on record, and those that it has recorded itself."""

    def __init__(self, keeper: CheckpointKeeper, job: Job) -> None:
        self._keeper, self._job = keeper, job
        self._new: dict[str, bytes] = {}
        self._known: dict[str, bytes] = {}
        self._reading = asyncio.Lock()
        # The first claim of a step finds nothing recorded, but for a flow that an earlier run began.
        step = job.claim.step
        is_begun = step.fence > 1 or (step.note is not None and step.note.grown is not None)
        self._after = FIRST_CHECKPOINT if is_begun else None
        self.most_bytes = keeper.most_bytes

    async def find(self, name: str) -> bytes | None:
        if name in self._new:
            return self._new[name]
        async with self._reading:
            while name not in self._known and self._after is not None:
                found = await self._keeper.page(self._job, self._after)
                self._known |= found.values
                self._after = found.following
        stored = self._known.get(name)
        return None if stored is None else await self._keeper.value(self._job, stored)

    async def record(self, name: str, value: bytes) -> None:
        await self._keeper.record(self._job, name, value)
        self._new[name] = value
