"""Runs coroutines on the handlers' event loop, so that a handler that blocks it delays no heartbeat and no lease.

Async handlers, commands and HTTP calls run here. The worker's loop sends whole batches and receives, through `done`,
the jobs that ended in one turn of the handlers' loop. `handler_loop` has the loop itself; if it breaks, the attempts on
it fail, and jobs that have not begun get the next loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.machine.outcomes import Failed, Outcome, Released, Stopped
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.runs.spans import activate
from stepkeep.worker.attempts import results
from stepkeep.worker.attempts.executor import Done, EndedJobs, Job
from stepkeep.worker.executors.flow import FlowExecutor
from stepkeep.worker.flows.ahead import go_ahead, wait_for_claim
from stepkeep.worker.flows.replay import Flow
from stepkeep.worker.forks import end_copy
from stepkeep.worker.pools.fitness import Fitness
from stepkeep.worker.pools.handler_loop import CLOSE_SECONDS, HandlerLoop

log = logging.getLogger("stepkeep.worker")

BLOCKED_SECONDS = 5.0
"""How long the loop may be blocked before the worker stops claiming for it."""

TOGETHER = 0.002
"""How long (seconds) a result waits for others of its turn. Otherwise the first one would be reported alone, and all
others would wait for that commit."""


HANDED_SECONDS = 0.1
"""How long (seconds) the end of a call in another pool waits for this loop, which may be blocked."""


class LoopPool:
    """Runs coroutines. Without a `home`, the pool owns a loop of its own."""

    def __init__(
        self,
        *,
        result_limit: int,
        home: HandlerLoop | None = None,
        on_close: Sequence[Callable[[], Any]] = (),
        on_replaced: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._result_limit, self._on_close, self._on_replaced = result_limit, on_close, on_replaced
        self.fitness = Fitness("async, HTTP and command steps")
        self._jobs: set[Job] = set()
        self._waiting: deque[Job] = deque()
        self._home, self._owns_home = home or HandlerLoop(), home is None
        self._pid = os.getpid()
        self._is_over = threading.Event()
        self._ending: asyncio.Task[None] | None = None
        self._asked_at: float | None = None
        self._ended: list[tuple[Job, Outcome]] = []
        self._handed: dict[int, tuple[float, EndedJobs]] = {}
        self._waiting_since = 0.0
        self.context = copy_context()
        self._done: Done = lambda ended: None

    def open(self, done: Done) -> None:
        self._done, self._pid, self.context = done, os.getpid(), copy_context()
        self._home.attach(self)

    def start(self, jobs: Sequence[Job]) -> None:
        self._jobs.update(jobs)
        self._waiting.extend(jobs)
        self._call(self._begin)

    def stop(self, job: Job) -> None:
        self._call(partial(self._cancel, job))

    def hand_over(self, ended: EndedJobs) -> None:
        """Go on with the flows of these calls, which ended in another pool. Called from any thread."""
        if self.fitness.is_unable or not self._home.is_started:
            wait_for_claim(ended)
            self._done(ended)
            return
        self._handed[id(ended)] = (time.monotonic(), ended)
        try:
            self._home.call(partial(self._take_over, ended))
        except (OSError, RuntimeError):
            self._give_up_handed(0.0)

    def _give_up_handed(self, age: float) -> None:
        """Report calls whose flows cannot go on now: the loop is blocked or broken. Their flows wait for a claim."""
        for key, (since, ended) in list(self._handed.items()):
            if time.monotonic() - since >= age and self._handed.pop(key, None) is not None:
                wait_for_claim(ended)
                self._done(ended)

    def check(self) -> None:
        """Check that the loop responds; if it does not, nothing more is claimed for it until it does."""
        self._give_up_handed(HANDED_SECONDS)
        if not self._jobs or not self._home.is_started:
            return
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            self._call(self._answer)
        elif now - self._asked_at > BLOCKED_SECONDS and not self.fitness.is_unable:
            self.fitness.lost(
                f"a handler blocks the handlers' event loop{self._home.position(_RUN)}", seconds=float("inf")
            )
            self._release_waiting()

    def close(self) -> None:
        if self._home.is_started:
            self._give_up_handed(0.0)
            self._call(self._begin_end)
            if not self._home.is_running_here and not self._is_over.wait(CLOSE_SECONDS):
                where = self._home.position(_RUN)
                log.warning("a handler blocks the handlers' event loop%s; it is left behind", where)
        self._home.detach(self)
        if self._owns_home:
            self._home.close()

    # -- the loop ----------------------------------------------------------------------------------------------------
    def _call(self, function: Callable[[], object]) -> None:
        try:
            self._home.call(function)
        except (OSError, RuntimeError) as problem:
            self._refuse(f"the handlers' event loop cannot be started: {exception_text(problem)}")

    def _refuse(self, why: str) -> None:
        self.fitness.lost(why)
        self._release_waiting()

    def loop_lost(self, why: str) -> None:
        """Every attempt on the loop is lost with it. Jobs that have not begun get the next loop."""
        said = f"the handlers' event loop broke while this attempt ran: {why}"
        self._asked_at = None
        for forget in self._on_replaced:
            forget()
        self._give_up_handed(0.0)
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

    # -- on the loop -------------------------------------------------------------------------------------------------
    def _answer(self) -> None:
        self._asked_at = None
        self.fitness.regained()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._home.when_ready(self._begin, self._refuse):
            return
        with suppress(IndexError):
            while True:
                job = self._waiting.popleft()
                try:
                    job.task = loop.create_task(self._run(job), context=self.context.copy())
                    job.task.add_done_callback(partial(self._ended_without_answer, job))
                except BaseException as problem:  # noqa: BLE001 - a task factory of user code
                    self._end_one(
                        job,
                        results.outcome_of_exception(
                            problem, None, job.cancelled, job.prepared.default_category, job.title
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
                if job.tracing.span is not None:
                    activate(job.tracing.span)
                answer = await job.prepared.executor.run(job)
                end_copy(self._pid)
                ours = job.prepared.spec is None or job.prepared.is_flow
                category = job.prepared.default_category
                outcome = results.outcome_of_return(
                    answer, job.context, self._result_limit, may_be_outcome=ours, otherwise=category
                )
        except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt, never the loop
            end_copy(self._pid)
            outcome = results.outcome_of_exception(
                problem, job.context, job.cancelled, job.prepared.default_category, job.title
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
            go_ahead(ended, time.monotonic, self._go_ahead)
            self._done(ended)

    def _take_over(self, ended: EndedJobs) -> None:
        if self._handed.pop(id(ended), None) is not None:
            go_ahead(ended, time.monotonic, self._go_ahead)
            self._done(ended)

    def _go_ahead(self, job: Job, flow: Flow) -> Outcome:
        """What a flow came to that is fed ends of calls ahead."""
        category = job.prepared.default_category
        try:
            executor = job.prepared.executor
            assert isinstance(executor, FlowExecutor)
            answer = executor.go_ahead(job, flow)
            end_copy(self._pid)
            return results.outcome_of_return(
                answer, job.context, self._result_limit, may_be_outcome=True, otherwise=category
            )
        except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt, never the loop
            end_copy(self._pid)
            return results.outcome_of_exception(problem, job.context, job.cancelled, category, job.title)

    def _begin_end(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        try:
            running = [job.task for job in list(self._jobs) if job.task is not None]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=CLOSE_SECONDS / 2)
            self._deliver()
            for close in self._on_close:
                await close()
        finally:
            self._is_over.set()


_RUN = LoopPool._run.__code__
