"""What handlers say about how far they are, on its way to the worker's report.

`ctx.progress` calls `note` from any thread; the worker's loop publishes what `collect` finds. It writes nothing to the
database itself, and keeps no value: the last one is in the context of each attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from stepkeep.operations.pipeline.codec import Seal
from stepkeep.operations.remote.services import StepProgress
from stepkeep.worker.attempts.executor import Job

PUBLISH_SECONDS = 2.0
"""The shortest pause between two reports that new values cause."""

MOST_TOLD = 1_000
"""Attempts of one report, those with the newest values."""


class ProgressBoard:
    """Whether values changed since the last report. `changed` wakes the worker's loop."""

    def __init__(self, seal: Seal) -> None:
        self.changed = asyncio.Event()
        self._seal = seal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_noted = False

    def open(self) -> None:
        """Bind to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def note(self) -> None:
        """A value changed. Called from any thread; only the first call after a report wakes the loop."""
        if self._is_noted or self._loop is None:
            return
        self._is_noted = True
        # The worker has ended before this handler.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.changed.set)

    def begin(self) -> None:
        """A report is made now: later values cause another one."""
        self.changed.clear()
        self._is_noted = False

    def collect(self, jobs: Iterable[Job], now: float) -> tuple[StepProgress, ...]:
        """The last value of each attempt that runs, by the monotonic clock of `now`."""
        said = [
            (last, job.claim)
            for job in jobs
            if job.running
            and not job.reported
            and job.context is not None
            and (last := job.context.last_progress) is not None
        ]
        said.sort(key=lambda one: one[0].at, reverse=True)
        return tuple(
            StepProgress(
                run_id=claim.run_id,
                no=claim.step.no,
                fence=claim.step.fence,
                ago_us=max(0, int((now - last.at) * 1_000_000)),
                fraction=last.fraction,
                text=msgspec.Raw(self._seal.seal(msgspec.json.encode(last.text))),
            )
            for last, claim in said[:MOST_TOLD]
        )
