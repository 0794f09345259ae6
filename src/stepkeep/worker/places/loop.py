"""The handlers' event loop: a thread of its own, so that a handler that blocks it holds up no heartbeat and no lease.

Async handlers, commands and HTTP calls run here. The worker's loop hands over whole batches and gets back, through
`done`, what ended in the same turn of this loop; nothing else crosses.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from stepkeep.kernel.outcomes import Outcome, Stopped
from stepkeep.worker import settle
from stepkeep.worker.executor import Done, Job

log = logging.getLogger("stepkeep.worker")

CLOSE_SECONDS = 5.0

TOGETHER = 0.002
"""How long (seconds) a result waits for others of its turn: whoever wakes the worker first would be reported alone, and
all the others would wait for that commit."""


class LoopPlace:
    """Runs coroutines."""

    def __init__(self, *, result_limit: int, on_close: Sequence[Callable[[], Any]] = ()) -> None:
        self._result_limit, self._on_close = result_limit, on_close
        self._jobs: set[Job] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: list[tuple[Job, Outcome]] = []
        self._waiting_since = 0.0
        self._context = copy_context()
        self._done: Done = lambda ended: None

    def open(self, done: Done) -> None:
        self._done, self._context = done, copy_context()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, started with its thread on first use: many workers never need one."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._live, name="stepkeep-handlers", daemon=True)
            self._thread.start()
        return self._loop

    def start(self, jobs: Sequence[Job]) -> None:
        self.loop.call_soon_threadsafe(self._begin, jobs)

    def stop(self, job: Job) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel, job)

    def close(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.create_task, self._end())
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("a handler blocks the handlers' event loop; it is left behind")

    def _live(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _begin(self, jobs: Sequence[Job]) -> None:
        assert self._loop is not None
        self._jobs.update(jobs)
        for job in jobs:
            job.task = self._loop.create_task(self._run(job), context=self._context.copy())

    def _cancel(self, job: Job) -> None:
        # A task that is cancelled before its first step never takes it, and nobody would hear of its end. One that has
        # not begun sees by itself that it is not to.
        if job.task is not None and job.begun:
            job.task.cancel()

    async def _run(self, job: Job) -> None:
        job.begun = True
        outcome: Outcome
        try:
            if job.cancelled.why is not None:
                outcome = Stopped()
            else:
                answer = await job.code.executor.run(job)
                outcome = settle.answered(answer, job.context, self._result_limit)
        except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt, never the loop
            outcome = settle.raised(problem, job.context, job.cancelled, job.code.otherwise, job.title)
        self._jobs.discard(job)
        self._end_one(job, outcome)

    def _end_one(self, job: Job, outcome: Outcome) -> None:
        assert self._loop is not None
        self._ended.append((job, outcome))
        now = time.monotonic()
        if len(self._ended) == 1:
            self._waiting_since = now
            self._loop.call_soon(self._deliver)
        elif now - self._waiting_since > TOGETHER:
            self._deliver()

    def _deliver(self) -> None:
        if self._ended:
            ended, self._ended = self._ended, []
            self._done(ended)

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        running = [job.task for job in self._jobs if job.task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_SECONDS / 2)
        self._deliver()
        for close in self._on_close:
            await close()
        await loop.shutdown_asyncgens()
        loop.stop()
