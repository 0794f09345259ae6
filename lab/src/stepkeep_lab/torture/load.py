"""The load: runs of every kind, each started with its own key until the start is acknowledged.

Acknowledged starts are kept here, outside the database: they must be found again. A start with an unknown result is
repeated with the same key, as any client would do.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import msgspec

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.definitions.publish import publish
from stepkeep.operations.pipeline.start import Starter
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep_lab.torture.ledger import Tally
from stepkeep_lab.torture.process import ACTOR, TENANT, request_for
from stepkeep_lab.torture.workflows import Kind

AGAIN = 0.05


class Load:
    """Starts runs, and remembers which were acknowledged: key to (run id, kind)."""

    def __init__(
        self, transactor: Transactor, kinds: dict[str, Kind], tally: Tally, rng: random.Random, name: str
    ) -> None:
        self._transactor, self._kinds, self._tally, self._rng = transactor, kinds, tally, rng
        self._name = name
        self._starter = Starter(transactor)
        self._plans: dict[str, Plan] = {}
        self._asked = 0
        self.acknowledged: dict[str, tuple[str, str]] = {}

    async def prepare(self) -> None:
        for name, kind in self._kinds.items():
            self._plans[name] = await publish(self._transactor, kind.definition, caller=Caller(TENANT, ACTOR))

    async def start(self, kind: str, seconds: float = 0.0, *, patience: float = 60.0) -> str:
        """Start one run, asking again until it is acknowledged."""
        self._asked += 1
        key = f"{self._name}-{kind}-{self._asked}"
        given = msgspec.json.encode({"seconds": seconds} if kind == "slow" else {})
        request = request_for(self._plans[kind], key, given)
        until = time.monotonic() + patience
        asked_before = False
        while True:
            try:
                started = await self._starter.start(request)
            except StoreError:
                if time.monotonic() > until:
                    raise
                asked_before = True
                self._tally.add("starts not answered")
                await asyncio.sleep(AGAIN)
                continue
            if asked_before:
                self._tally.add("unknown starts made again" if started.created else "unknown starts found committed")
            self.acknowledged[key] = (started.run_id, kind)
            return started.run_id

    async def start_many(self, kind: str, count: int, seconds: float = 0.0) -> list[str]:
        return list(await asyncio.gather(*(self.start(kind, seconds) for _ in range(count))))

    async def keep_up(self, until: asyncio.Event, *, rate: float, kinds: Sequence[str]) -> None:
        """Start about `rate` runs a second until told to stop; whatever was begun is seen through."""
        going: set[asyncio.Task[str]] = set()
        while not until.is_set():
            task = asyncio.create_task(self.start(self._rng.choice(kinds)))
            going.add(task)
            task.add_done_callback(going.discard)
            if len(going) > 200:
                await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(self._rng.expovariate(rate))
        await asyncio.gather(*going)
