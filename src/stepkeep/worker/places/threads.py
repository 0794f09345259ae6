"""Threads for handlers that block: one job each, as many as the worker may have, started as they are needed.

A thread cannot be ended from outside. A job that outlives its timeout or its lease is abandoned: its thread goes on,
its result is dropped, and the slot it holds comes back only when it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextvars import copy_context
from queue import SimpleQueue

from stepkeep.kernel.outcomes import Outcome, Stopped
from stepkeep.worker import settle
from stepkeep.worker.executor import Done, Job


class ThreadPlace:
    """Runs functions."""

    name = "stepkeep-thread"

    def __init__(self, size: int, *, result_limit: int) -> None:
        self._size, self._result_limit = size, result_limit
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._jobs: set[Job] = set()
        self._done: Done = lambda ended: None

    def open(self, done: Done) -> None:
        self._done = done

    def start(self, jobs: Sequence[Job]) -> None:
        self._jobs.update(jobs)
        for job in jobs:
            self._queue.put(job)
        for _ in range(min(self._size, len(self._jobs)) - len(self._threads)):
            thread = threading.Thread(target=self._live, name=f"{self.name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, job: Job) -> None:
        """A thread cannot be stopped; a job that has not begun will not."""

    def close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            # Those that are in the middle of a job are left to end with the process.
            thread.join(0.2 if not self._jobs else 0)

    def _live(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                # In a context of its own: variables that a handler sets would stay for the next attempt in this thread.
                outcome = Stopped() if job.cancelled.why is not None else copy_context().run(self._attempt, job)
            except BaseException as problem:  # noqa: BLE001 - no process could be had, say: the next job may fare better
                outcome = settle.raised(problem, job.context, job.cancelled, job.code.otherwise)
            self._jobs.discard(job)
            self._done([(job, outcome)])

    def _attempt(self, job: Job) -> Outcome:
        try:
            return settle.answered(job.code.executor.run(job), job.context, self._result_limit)
        except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt, never the thread
            return settle.raised(problem, job.context, job.cancelled, job.code.otherwise, job.title)


class RulesPlace(ThreadPlace):
    """Threads that judge rules, and nothing that blocks.

    The rules of a coroutine's step are judged beside as many blocking handlers as there may be. Behind those they could
    wait past their timeout, and a step whose rules were not judged has failed.
    """

    name = "stepkeep-rules"
