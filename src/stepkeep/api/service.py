"""What all requests of one process share: the engine, the known keys, and whether the service stops.

It opens and closes nothing by itself; `app` does so in its lifespan. Quotas are made in `create_app` and read through
`routing.service_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stepkeep.api.access import Callers
from stepkeep.api.browsers import Browsers
from stepkeep.api.load import HttpMeasures, Load
from stepkeep.api.session import Links
from stepkeep.engine import AsyncEngine
from stepkeep.engine.hosted import AsyncHostedWorker, vitals_of
from stepkeep.metrics.exposition import Exposition
from stepkeep.operations.remote.work_state import WorkState
from stepkeep.operations.runs.tailing import Tailer
from stepkeep.operations.runs.watching import JournalWatch
from stepkeep.store.change import KeyPlace


class Service:
    """The state of one process that serves."""

    def __init__(
        self, engine: AsyncEngine, browsers: Browsers | None = None, workers: Sequence[AsyncHostedWorker] = ()
    ) -> None:
        self.engine = engine
        self.browsers = browsers or Browsers()
        """What is told about browsers, and their attempts to sign in."""
        self.links = Links()
        """One-time links that sign a browser in."""
        self.callers = Callers(engine)
        self.watch = JournalWatch(engine.store)
        self.tailer = Tailer(engine.transactor, lambda tenant: self.callers.engines.of(tenant).transactor)
        self.measures = HttpMeasures(lambda: {"run": self.watch.readers, "tenant": self.tailer.listeners})
        self.load = Load(self.measures)
        self.metrics = Exposition(engine.transactor, workers=lambda: vitals_of(workers), more=[self.measures.families])
        self.in_flight: set[KeyPlace] = set()
        """The idempotency keys of the requests under way."""
        self.work = WorkState()
        """What this process remembers about remote workers."""
        self.stopping = asyncio.Event()
        """Set when the process is asked to stop: it is not ready, and streams end so that clients resume elsewhere."""

    async def close(self) -> None:
        """Stop what reads for streams. The engine is closed by its owner."""
        await self.metrics.close()
        await self.watch.close()
        await self.tailer.close()
        await self.callers.engines.close()
