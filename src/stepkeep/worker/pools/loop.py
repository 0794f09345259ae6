"""The handlers' event loop: in a thread of its own, so that a handler that blocks it delays no heartbeat and no lease.

Async handlers, commands and HTTP calls run here. The worker's loop sends whole batches and receives, through `done`,
the jobs that ended in one turn of this loop. A handler that stops the loop ends nothing: the loop is run again. One
that breaks it fails the attempts on it, and a new loop replaces it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from stepkeep.kernel.outcomes import Failed, Outcome, Released, Stopped
from stepkeep.kernel.states import Category
from stepkeep.safe_text import exception_text, inert_line
from stepkeep.worker import results
from stepkeep.worker.executor import Done, Job
from stepkeep.worker.forks import end_copy
from stepkeep.worker.pools.fitness import Fitness

log = logging.getLogger("stepkeep.worker")

CLOSE_SECONDS = 5.0

BLOCKED_SECONDS = 5.0
"""How long the loop may be blocked before the worker stops claiming for it."""

TOGETHER = 0.002
"""How long (seconds) a result waits for others of its turn. Otherwise the first one would be reported alone, and all
others would wait for that commit."""

STOPS_TOLD_EVERY = 60.0
"""How often (seconds) a stopped loop is logged."""


class LoopPool:
    """Runs coroutines."""

    def __init__(
        self,
        *,
        result_limit: int,
        on_close: Sequence[Callable[[], Any]] = (),
        on_replaced: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._result_limit, self._on_close, self._on_replaced = result_limit, on_close, on_replaced
        self.fitness = Fitness("async, HTTP and command steps")
        self._jobs: set[Job] = set()
        self._waiting: deque[Job] = deque()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._is_over = False
        self._ending: asyncio.Task[None] | None = None
        self._asked_at: float | None = None
        self._stop_told_at = float("-inf")
        self._ended: list[tuple[Job, Outcome]] = []
        self._waiting_since = 0.0
        self._context = copy_context()
        self._done: Done = lambda ended: None

    def open(self, done: Done) -> None:
        self._done, self._pid, self._context = done, os.getpid(), copy_context()

    def start(self, jobs: Sequence[Job]) -> None:
        self._jobs.update(jobs)
        self._waiting.extend(jobs)
        self._call(self._begin)

    def stop(self, job: Job) -> None:
        self._call(partial(self._cancel, job))

    def check(self) -> None:
        """Check that the loop responds; if it does not, nothing more is claimed for it until it does."""
        if not self._jobs or self._loop is None:
            return
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            self._call(self._answer)
        elif now - self._asked_at > BLOCKED_SECONDS and not self.fitness.is_unable:
            self.fitness.lost(f"a handler blocks the handlers' event loop{self._where()}", seconds=float("inf"))
            self._release_waiting()

    def close(self) -> None:
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        self._call(self._begin_end)
        thread.join(CLOSE_SECONDS)
        if thread.is_alive():
            log.warning("a handler blocks the handlers' event loop%s; it is left behind", self._where())

    # -- the thread and its loop -------------------------------------------------------------------------------------
    def _call(self, function: Callable[[], object]) -> None:
        """Call this on the loop, which is started with its thread on first use: many workers never need one."""
        try:
            with self._lock:
                if self._loop is None or self._loop.is_closed():
                    self._start_loop()
                assert self._loop is not None
                self._loop.call_soon_threadsafe(function)
        except (OSError, RuntimeError) as problem:
            self.fitness.lost(f"the handlers' event loop cannot be started: {exception_text(problem)}")
            self._release_waiting()

    def _start_loop(self) -> None:
        loop = new_loop()
        thread = threading.Thread(target=self._live, args=(loop,), name="stepkeep-handlers", daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        self._loop, self._thread, self._asked_at = loop, thread, None

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_over and not loop.is_closed():
                why = "a handler stopped it"
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as problem:
                    # An exception from a handler's task or callback; the loop and all its tasks are intact.
                    why = f"{exception_text(problem)} was raised on it"
                if not self._is_over:
                    self._tell_stop(why)
            problem_text = "it was closed"
        except BaseException as problem:  # noqa: BLE001 - the loop itself is broken, by a closed descriptor perhaps
            problem_text = exception_text(problem)
        finally:
            asyncio.set_event_loop(None)
            with suppress(Exception):
                loop.close()
        if not self._is_over:
            self._replace(loop, problem_text)

    def _tell_stop(self, why: str) -> None:
        now = time.monotonic()
        if now - self._stop_told_at > STOPS_TOLD_EVERY:
            self._stop_told_at = now
            log.warning("the handlers' event loop ended early: %s; it is run again", inert_line(why))

    def _replace(self, loop: asyncio.AbstractEventLoop, why: str) -> None:
        """The loop is lost, and so is every attempt on it. Jobs that have not begun get the next loop."""
        said = f"the handlers' event loop broke while this attempt ran: {inert_line(why)}"
        log.error("the handlers' event loop broke: %s; another one is started", inert_line(why))
        with self._lock:
            if self._loop is loop:
                self._loop = None
        for forget in self._on_replaced:
            forget()
        ended, self._ended = self._ended, []
        waiting = set(self._waiting)
        for job in list(self._jobs):
            if job not in waiting:
                self._jobs.discard(job)
                ended.append((job, Failed(category=Category.UNKNOWN, error=said)))
        if ended:
            self._done(ended)
        if self._waiting:
            self._call(self._begin)

    def _release_waiting(self) -> None:
        """Release jobs that have not begun: nothing is counted, and another worker may claim them."""
        released: list[tuple[Job, Outcome]] = []
        with suppress(IndexError):
            while True:
                job = self._waiting.popleft()
                self._jobs.discard(job)
                released.append((job, Released()))
        if released:
            self._done(released)

    def _where(self) -> str:
        """The position of the thread, for the log: the line of the handler itself, not of a function it called."""
        thread = self._thread
        frame = None if thread is None or thread.ident is None else sys._current_frames().get(thread.ident)
        if frame is None:
            return ""
        while frame.f_back is not None and frame.f_back.f_code is not _RUN:
            if frame.f_back.f_code is _LIVE:
                return ""
            frame = frame.f_back
        return inert_line(f" ({frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name})")

    # -- on the loop -------------------------------------------------------------------------------------------------
    def _answer(self) -> None:
        self._asked_at = None
        self.fitness.regained()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(IndexError):
            while True:
                job = self._waiting.popleft()
                try:
                    job.task = loop.create_task(self._run(job), context=self._context.copy())
                    job.task.add_done_callback(partial(self._ended_without_answer, job))
                except BaseException as problem:  # noqa: BLE001 - a task factory of user code
                    self._end_one(
                        job,
                        results.outcome_of_exception(
                            problem, None, job.cancelled, job.code.default_category, job.title
                        ),
                    )

    def _cancel(self, job: Job) -> None:
        # A task that is cancelled before its first step never runs. A job that has not begun checks the flag itself.
        if job in self._jobs and job.task is not None and job.begun:
            job.task.cancel()

    async def _run(self, job: Job) -> None:
        job.begun = True
        outcome: Outcome
        try:
            if job.cancelled.why is not None:
                outcome = Stopped()
            else:
                answer = await job.code.executor.run(job)
                end_copy(self._pid)
                ours = job.code.spec is None
                outcome = results.outcome_of_return(answer, job.context, self._result_limit, may_be_outcome=ours)
        except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt, never the loop
            end_copy(self._pid)
            outcome = results.outcome_of_exception(
                problem, job.context, job.cancelled, job.code.default_category, job.title
            )
        self._end_one(job, outcome)

    def _ended_without_answer(self, job: Job, task: asyncio.Task[None]) -> None:
        """Last resort: a finished task has answered for its job, or is answered for here."""
        if job not in self._jobs:
            return
        if job.cancelled.why is not None:
            self._end_one(job, Stopped())
            return
        said = "its task was cancelled before it began" if task.cancelled() else "its task ended without an answer"
        self._end_one(job, Failed(category=Category.UNKNOWN, error=f"the attempt was lost: {said}"))

    def _end_one(self, job: Job, outcome: Outcome) -> None:
        if job not in self._jobs:
            # Its loop was replaced, and its attempt reported, before its task ended.
            return
        self._jobs.discard(job)
        self._ended.append((job, outcome))
        now = time.monotonic()
        if len(self._ended) == 1:
            self._waiting_since = now
            asyncio.get_running_loop().call_soon(self._deliver)
        elif now - self._waiting_since > TOGETHER:
            self._deliver()

    def _deliver(self) -> None:
        if self._ended:
            ended, self._ended = self._ended, []
            self._done(ended)

    def _begin_end(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            running = [job.task for job in list(self._jobs) if job.task is not None]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=CLOSE_SECONDS / 2)
            self._deliver()
            for close in self._on_close:
                await close()
            await loop.shutdown_asyncgens()
        finally:
            self._is_over = True
            loop.stop()


_RUN, _LIVE = LoopPool._run.__code__, LoopPool._live.__code__


class _Selector(selectors.DefaultSelector):
    """Ends a forked copy of the worker before its loop can wait on descriptors that it shares with the worker."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        end_copy(self._pid)
        return super().select(timeout)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop for handlers: asyncio's own with the selector above, or that of another policy."""
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        return loop
    loop.close()
    return asyncio.SelectorEventLoop(_Selector())
