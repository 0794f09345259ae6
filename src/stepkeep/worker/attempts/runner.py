"""The handlers' side of the worker: sends each job to its pool and returns finished jobs in batches.

Results collect while the worker's loop is busy, and one wake-up delivers all of them. It knows pools and threads, but
no leases and no database. The simulator uses another implementation.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Protocol

from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.worker.attempts.executor import EndedJobs, Job, Pool, PoolKind
from stepkeep.worker.attempts.guard import without_secrets
from stepkeep.worker.attempts.results import attach_token_digest, check_output
from stepkeep.worker.pools.handler_loop import HandlerLoop
from stepkeep.worker.pools.loop import LoopPool
from stepkeep.worker.pools.processes import ProcessPool
from stepkeep.worker.pools.threads import RulesPool, ThreadPool
from stepkeep.worker.settings import Settings

log = logging.getLogger("stepkeep.worker")


def _nothing() -> None:
    """Callback that does nothing."""


class HandlerRunner(Protocol):
    """What the worker needs from the handlers' side."""

    def open(self, finished: Callable[[EndedJobs], None], changed: Callable[[], None] = _nothing) -> None:
        """Deliver finished jobs to this function, on the running loop. `changed` is called there when `unable` has
        changed."""
        ...

    @property
    def unable(self) -> frozenset[PoolKind]:
        """The pools that cannot run handlers now."""
        ...

    def check(self) -> None:
        """Check that every pool still makes progress. Called periodically, on the worker's loop."""
        ...

    def use_context(self, context: Context) -> None:
        """Run the handlers of coming attempts in copies of this context."""
        ...

    def start(self, jobs: Sequence[Job]) -> None: ...

    def stop(self, job: Job) -> None: ...

    def close(self) -> None: ...


class PooledRunner:
    """The real implementation: an event loop in its own thread, and pools of threads and processes."""

    def __init__(
        self,
        settings: Settings,
        *,
        home: HandlerLoop | None = None,
        on_close: Sequence[Callable[[], object]] = (),
        on_replaced: Sequence[Callable[[], object]] = (),
    ) -> None:
        size, limit = settings.pool, settings.result_bytes
        self._coroutines = LoopPool(result_limit=limit, home=home, on_close=on_close, on_replaced=on_replaced)
        self._pools: dict[PoolKind, Pool] = {
            PoolKind.LOOP: self._coroutines,
            PoolKind.THREAD: ThreadPool(size, result_limit=limit),
            PoolKind.RULES: RulesPool(size, result_limit=limit),
            PoolKind.PROCESS: ProcessPool(size, result_limit=limit, memory_limit=settings.process_memory_bytes),
        }
        self._done: deque[tuple[Job, Outcome]] = deque()
        self._handed_over: set[Job] = set()
        self._signalled = False
        self._context = copy_context()
        self._engine: asyncio.AbstractEventLoop | None = None
        self._finished: Callable[[EndedJobs], None] = lambda batch: None
        self._changed: Callable[[], None] = _nothing

    def open(self, finished: Callable[[EndedJobs], None], changed: Callable[[], None] = _nothing) -> None:
        self._engine, self._context = asyncio.get_running_loop(), copy_context()
        self._finished, self._changed = finished, changed
        for pool in self._pools.values():
            pool.fitness.changed = self._tell_change
            pool.open(self._note)

    def use_context(self, context: Context) -> None:
        self._context = self._coroutines.context = context

    @property
    def unable(self) -> frozenset[PoolKind]:
        return frozenset(kind for kind, pool in self._pools.items() if pool.fitness.is_unable)

    def check(self) -> None:
        # Also results recorded by a thread that died before it could signal.
        self._collect()
        for pool in self._pools.values():
            pool.check()

    def start(self, jobs: Sequence[Job]) -> None:
        first = jobs[0].prepared.pool
        if all(job.prepared.pool is first for job in jobs):
            self._pools[first].start(jobs)
            return
        for kind, pool in self._pools.items():
            chosen = [job for job in jobs if job.prepared.pool is kind]
            if chosen:
                pool.start(chosen)

    def stop(self, job: Job) -> None:
        self._pools[job.prepared.pool].stop(job)

    def close(self) -> None:
        for kind, pool in self._pools.items():
            try:
                pool.close()
            except Exception:
                log.exception("closing the %s pool failed", kind)

    def _note(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        """Called from any thread. The append comes before the check of the flag, so that no job is left behind."""
        # Here and not in `_collect`: a large output must not delay the worker's loop.
        self._done.extend([(job, outcome) if _is_final(job) else _checked(job, outcome) for job, outcome in ended])
        if not self._signalled and self._engine is not None:
            self._signalled = True
            # The worker has ended before this handler.
            with suppress(RuntimeError):
                # Not in the context of the handler that just ended: attempts started from here would inherit it.
                self._engine.call_soon_threadsafe(self._collect, context=self._context.copy())

    def _tell_change(self) -> None:
        """Called from any thread, before the jobs that a pool gives back are recorded."""
        if self._engine is not None:
            with suppress(RuntimeError):
                self._engine.call_soon_threadsafe(self._changed, context=self._context.copy())

    def _collect(self) -> None:
        self._signalled = False
        done = self._without_calls([self._done.popleft() for _ in range(len(self._done))])
        if done:
            self._finished([each if each[0].completion_token is None else _signed(*each) for each in done])

    def _without_calls(self, done: EndedJobs) -> EndedJobs:
        """Flows go on with their calls on the handlers' loop, wherever these have run: those that ended in other pools
        go there first, and come back. Not from their threads, which a handler may have ended."""
        calls = [one for one in done if one[0].calls.kept is not None and one[0].prepared.pool is not PoolKind.LOOP]
        if not calls:
            return done
        new = [one for one in calls if one[0] not in self._handed_over]
        self._handed_over.symmetric_difference_update([job for job, _ in calls])
        if new:
            self._coroutines.hand_over(new)
        gone = {job for job, _ in new}
        return [one for one in done if one[0] not in gone]


def _is_final(job: Job) -> bool:
    """Whether the outcome of a job is reported as it is: nothing in it must be redacted or match a schema."""
    return job.prepared.output_shape is None and not job.loaded.secrets


def _checked(job: Job, outcome: Outcome) -> tuple[Job, Outcome]:
    return job, without_secrets(check_output(outcome, job), job)


def _signed(job: Job, outcome: Outcome) -> tuple[Job, Outcome]:
    return job, attach_token_digest(outcome, job)
