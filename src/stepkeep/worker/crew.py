"""The handlers' side as one: it sends each job to its place and brings finished ones back, many at a time.

Results pile up while the worker's loop is busy and are collected by a single wake-up. It knows places and threads,
and nothing of leases or the database. A simulator may put its own in place of this one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Protocol

from stepkeep.kernel.outcomes import Outcome
from stepkeep.worker.executor import Job, Place, Where
from stepkeep.worker.places.loop import LoopPlace
from stepkeep.worker.places.processes import ProcessPlace
from stepkeep.worker.places.threads import RulesPlace, ThreadPlace
from stepkeep.worker.settings import Settings
from stepkeep.worker.settle import sign

log = logging.getLogger("stepkeep.worker")

Finished = list[tuple[Job, Outcome]]


def _nothing() -> None:
    """What is called where nothing is to be done."""


class Crew(Protocol):
    """What the worker asks of the handlers' side."""

    def open(self, finished: Callable[[Finished], None], changed: Callable[[], None] = _nothing) -> None:
        """Deliver finished jobs to this function, on the loop that calls now; `changed` is called there when `unable`
        has changed."""
        ...

    @property
    def unable(self) -> frozenset[Where]:
        """The places that cannot run work now."""
        ...

    def check(self) -> None:
        """Look whether work still goes on everywhere. Called now and then, on the worker's loop."""
        ...

    def start(self, jobs: Sequence[Job]) -> None: ...

    def stop(self, job: Job) -> None: ...

    def close(self) -> None: ...


class ThreadedCrew:
    """The real one: an event loop in its own thread, pools of threads and of processes."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_close: Sequence[Callable[[], object]] = (),
        on_replaced: Sequence[Callable[[], object]] = (),
    ) -> None:
        size, limit = settings.pool, settings.result_limit
        self._places: dict[Where, Place] = {
            Where.LOOP: LoopPlace(result_limit=limit, on_close=on_close, on_replaced=on_replaced),
            Where.THREAD: ThreadPlace(size, result_limit=limit),
            Where.RULES: RulesPlace(size, result_limit=limit),
            Where.PROCESS: ProcessPlace(size, result_limit=limit, memory_limit=settings.process_memory),
        }
        self._done: deque[tuple[Job, Outcome]] = deque()
        self._signalled = False
        self._context = copy_context()
        self._engine: asyncio.AbstractEventLoop | None = None
        self._finished: Callable[[Finished], None] = lambda batch: None
        self._changed: Callable[[], None] = _nothing

    def open(self, finished: Callable[[Finished], None], changed: Callable[[], None] = _nothing) -> None:
        self._engine, self._context = asyncio.get_running_loop(), copy_context()
        self._finished, self._changed = finished, changed
        for place in self._places.values():
            place.fitness.changed = self._tell_change
            place.open(self._note)

    @property
    def unable(self) -> frozenset[Where]:
        return frozenset(where for where, place in self._places.items() if place.fitness.is_unable)

    def check(self) -> None:
        # Also what was noted by a thread that died before it could signal.
        self._collect()
        for place in self._places.values():
            place.check()

    def start(self, jobs: Sequence[Job]) -> None:
        first = jobs[0].code.where
        if all(job.code.where is first for job in jobs):
            self._places[first].start(jobs)
            return
        for where, place in self._places.items():
            chosen = [job for job in jobs if job.code.where is where]
            if chosen:
                place.start(chosen)

    def stop(self, job: Job) -> None:
        self._places[job.code.where].stop(job)

    def close(self) -> None:
        for where, place in self._places.items():
            try:
                place.close()
            except Exception:
                log.exception("closing the %s place failed", where)

    def _note(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        """Called from any thread. The append comes before the look at the flag, so that no job is left behind."""
        self._done.extend(ended)
        if not self._signalled and self._engine is not None:
            self._signalled = True
            # A handler that outlived the worker has nobody to tell.
            with suppress(RuntimeError):
                # Not in the context of the handler that has just ended: attempts that this starts would inherit it.
                self._engine.call_soon_threadsafe(self._collect, context=self._context.copy())

    def _tell_change(self) -> None:
        """Called from any thread, before the jobs that a place hands back are noted."""
        if self._engine is not None:
            with suppress(RuntimeError):
                self._engine.call_soon_threadsafe(self._changed, context=self._context.copy())

    def _collect(self) -> None:
        self._signalled = False
        done = [self._done.popleft() for _ in range(len(self._done))]
        if done:
            self._finished([each if each[0].completion_token is None else _signed(*each) for each in done])


def _signed(job: Job, outcome: Outcome) -> tuple[Job, Outcome]:
    return job, sign(outcome, job)
