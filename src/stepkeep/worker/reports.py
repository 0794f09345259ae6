"""Group commit for outcomes: reports that arrive during one commit form the next batch.

There are as many lanes as the store can serve in parallel, and a run is never in two of them at once. Nothing waits
when idle. A lane does not know what it carries; the loop provides the function that commits a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from stepkeep.kernel.fitting import outcome_bytes
from stepkeep.kernel.outcomes import Outcome
from stepkeep.operations.lanes import fitting
from stepkeep.worker.executor import Job

Report = tuple[Job, Outcome]

BATCH = 500

GATHER = 0.002
"""How long (seconds) a few reports wait for the attempts that the previous commit started."""


class Reports:
    """The lanes. `commit` must answer every report in its batch before it returns, and raises nothing.

    It returns how many attempts it started.
    """

    def __init__(
        self, lanes: int, commit: Callable[[list[Report]], Awaitable[int]], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._commit, self._sleep = commit, sleep
        self._waiting: list[list[Report]] = [[] for _ in range(lanes)]
        self._flushing: list[asyncio.Task[None] | None] = [None] * lanes

    def put(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._waiting[report[0].lane].append(report)
        for lane, task in enumerate(self._flushing):
            if self._waiting[lane] and (task is None or task.done()):
                self._flushing[lane] = asyncio.get_running_loop().create_task(self._flush(lane))

    @property
    def lanes(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return all(task is None or task.done() for task in self._flushing)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in self._flushing if task is not None]

    async def _flush(self, lane: int) -> None:
        while self._waiting[lane]:
            count = fitting(self._waiting[lane], BATCH, lambda report: outcome_bytes(report[1]))
            batch, self._waiting[lane] = self._waiting[lane][:count], self._waiting[lane][count:]
            began = await self._commit(batch)
            if 0 < len(self._waiting[lane]) < began:
                # Two batches that take turns would never merge by themselves, and each would cost as many round trips.
                await self._sleep(GATHER)
