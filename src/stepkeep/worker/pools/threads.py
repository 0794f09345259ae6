"""Threads for handlers that block: one job each, up to the worker's limit, started on demand.

A thread cannot be ended from outside. A job that outlives its timeout or its lease is abandoned: its thread continues,
its result is dropped, and its slot becomes free when it ends. A thread that dies is replaced, and its job is reported
as failed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue

from stepkeep.edges.safe_text import exception_text, inert_line
from stepkeep.kernel.machine.outcomes import Failed, Outcome, Released, Stopped
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.runs.spans import activate
from stepkeep.worker.attempts import results
from stepkeep.worker.attempts.executor import Done, Job
from stepkeep.worker.forks import end_copy
from stepkeep.worker.pools.fitness import Fitness

log = logging.getLogger("stepkeep.worker")

DEATHS = 5
"""How often a thread that is being killed tries to pass on its job."""


class ThreadPool:
    """Runs functions.

    A thread takes a token from the queue and then a job from `_waiting`, which it notes in `_held` before the job
    leaves `_waiting`. An exception that a handler sent to the thread may arrive at any moment, and must lose no job.
    """

    name = "stepkeep-thread"
    work = "steps that run in threads"

    def __init__(self, size: int, *, result_limit: int) -> None:
        self._size, self._result_limit = size, result_limit
        self.fitness = Fitness(self.work)
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._waiting: deque[Job] = deque()
        self._taking = threading.Lock()
        self._held: dict[threading.Thread, Job] = {}
        self._threads: set[threading.Thread] = set()
        self._started = 0
        self._jobs: set[Job] = set()
        self._pid = os.getpid()
        self._done: Done = lambda ended: None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, done: Done) -> None:
        self._done, self._pid, self._loop = done, os.getpid(), asyncio.get_running_loop()

    def start(self, jobs: Sequence[Job]) -> None:
        self._jobs.update(jobs)
        self._waiting.extend(jobs)
        for _ in jobs:
            self._tokens.put(True)
        for _ in range(min(self._size, len(self._jobs)) - len(self._threads)):
            if not self._start_thread():
                return

    def stop(self, job: Job) -> None:
        """A thread cannot be stopped; a job that has not begun will not begin."""

    def check(self) -> None:
        """Report jobs of threads that died, and start threads for waiting jobs."""
        for thread in list(self._threads):
            if not thread.is_alive():
                self._fail_held(thread, "an unknown cause")
                self._replace(thread, "an unknown cause")
        if self._waiting and len(self._threads) < self._size:
            self._tokens.put(True)
            self._start_thread()

    def close(self) -> None:
        threads = list(self._threads)
        for _ in threads:
            self._tokens.put(False)
        for thread in threads:
            # Threads in the middle of a job are left to end with the process.
            thread.join(0.2 if not self._jobs else 0)

    def _start_thread(self) -> bool:
        """Start one more thread. If not even the first can be started, all jobs are released."""
        self._started += 1
        thread = threading.Thread(target=self._live, name=f"{self.name}-{self._started}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as problem:
            self._threads.discard(thread)
            if not self._threads:
                self.fitness.lost(f"no thread can be started: {exception_text(problem)}")
                self._release_waiting()
            return False
        return True

    def _release_waiting(self) -> None:
        released: list[tuple[Job, Outcome]] = []
        with suppress(IndexError):
            while True:
                job = self._waiting.popleft()
                self._jobs.discard(job)
                released.append((job, Released()))
        if released:
            self._done(released)

    def _live(self) -> None:
        me = threading.current_thread()
        try:
            while self._tokens.get():
                job = self._take(me)
                if job is not None:
                    self._end_one(me, job, self._outcome(job))
        except BaseException as problem:  # noqa: BLE001 - sent to this thread from outside: no handler runs here
            for _ in range(DEATHS):
                # Another exception may already be pending.
                with suppress(BaseException):
                    said = inert_line(exception_text(problem))
                    self._fail_held(me, said)
                    if self._loop is not None:
                        self._loop.call_soon_threadsafe(self._replace, me, said)
                    return
        else:
            self._threads.discard(me)

    def _take(self, me: threading.Thread) -> Job | None:
        with self._taking:
            if not self._waiting:
                return None
            job = self._held[me] = self._waiting[0]
            self._waiting.popleft()
        return job

    def _end_one(self, me: threading.Thread, job: Job, outcome: Outcome) -> None:
        if job in self._jobs:
            # Report before forgetting: a duplicate report is harmless.
            self._done([(job, outcome)])
            self._jobs.discard(job)
        self._held.pop(me, None)

    def _fail_held(self, thread: threading.Thread, said: str) -> None:
        """Report the job of a thread that was ended from outside."""
        if (job := self._held.get(thread)) is not None:
            error = f"the thread of this attempt was ended from outside by {said}"
            self._end_one(thread, job, Failed(category=Category.UNKNOWN, error=error))

    def _replace(self, thread: threading.Thread, said: str) -> None:
        """Start a thread in the place of one that died.

        Called on the worker's loop. The dying thread must neither start a thread nor log: both take locks in Python
        code, and one more exception at that moment would leave such a lock taken for ever.
        """
        if thread in self._threads:
            # Together with the token that it may have taken.
            self._tokens.put(True)
            self._threads.discard(thread)
            self._start_thread()
            log.error("the thread %s was ended by %s; another one takes its place", thread.name, said)

    def _outcome(self, job: Job) -> Outcome:
        try:
            # In a new context: variables that a handler sets would remain for the next attempt in this thread.
            return Stopped() if job.cancelled.why is not None else copy_context().run(self._attempt, job)
        except BaseException as problem:  # noqa: BLE001 - the place itself failed: the next job may fare better
            return results.outcome_of_exception(
                problem, job.context, job.cancelled, job.prepared.default_category, job.title
            )
        finally:
            end_copy(self._pid)

    def _attempt(self, job: Job) -> Outcome:
        try:
            if job.tracing.span is not None:
                activate(job.tracing.span)
            answer = job.prepared.executor.run(job)
            end_copy(self._pid)
            ours = job.prepared.spec is None
            category = job.prepared.default_category
            return results.outcome_of_return(
                answer, job.context, self._result_limit, may_be_outcome=ours, otherwise=category
            )
        except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt, never the thread
            end_copy(self._pid)
            return results.outcome_of_exception(
                problem, job.context, job.cancelled, job.prepared.default_category, job.title
            )


class RulesPool(ThreadPool):
    """Threads that evaluate rules, and nothing that blocks.

    Rules of a coroutine's step run beside the blocking handlers. In the same queue they could wait past their timeout,
    and a step whose rules did not run has failed.
    """

    name = "stepkeep-rules"
    work = "rules"
