"""Counts what this process has committed and how long it took, for metrics.

It counts from what a transaction wrote, after its commit, and decides nothing. Counting rows begins when `watch` is
called, so that a process without metrics pays for two counters per transaction only. `transact` calls it; the package
`metrics` reads it.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.decide.resources import ready_since
from stepkeep.kernel.errors import Fenced
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.store.change import Basis, Loaded, Write

log = logging.getLogger(__name__)

SECOND = 1_000_000
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)

NEW = ""
"""The state before the first one."""
NO_STEPS: dict[int, Step] = {}
READY, RUNNING, RETRYING, VALIDATING = StepState.READY, StepState.RUNNING, StepState.RETRYING, StepState.VALIDATING


class Histogram:
    """Observed values by upper bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Measures:
    """The counts of one process since it began to be watched.

    `runs` and `steps` count changes of state, from `NEW` where the row is new; `attempts` how attempts ended.
    `batch_runs` is how many runs a transaction changed. `queue_wait` is the time from ready to claimed, by the clock of
    the database.
    """

    def __init__(self) -> None:
        self.is_watched = False
        self.commits: Counter[Basis] = Counter()
        self.fallbacks: Counter[Basis] = Counter()
        self.conflicts: Counter[Basis] = Counter()
        # By their values: the hash of an enum's member is computed in Python, at each use.
        self.runs: Counter[tuple[str, str]] = Counter()
        self.steps: Counter[tuple[str, str]] = Counter()
        self.attempts: Counter[tuple[str, ...]] = Counter()
        self.claims = self.retries = self.fenced = 0
        self.attempt_seconds = Histogram(LONG_SECONDS)
        self.queue_wait = Histogram(LONG_SECONDS)
        self.claim_seconds = Histogram(SECONDS)
        self.commit_seconds = {basis: Histogram(SECONDS) for basis in Basis}
        self.batch_runs = Histogram(SIZES)

    def watch(self) -> None:
        """Count rows and times from now on."""
        self.is_watched = True

    def fell_back(self, basis: Basis) -> None:
        self.fallbacks[basis] += 1
        log.debug("a decision on the basis %s cannot be written; deciding again with locks", basis)

    def conflicted(self, basis: Basis) -> None:
        self.conflicts[basis] += 1

    def committed(self, basis: Basis, write: Write, loaded: Loaded, seconds: float | None = None) -> None:
        """A transaction was committed: what it wrote, the rows that it was decided on, and how long it took."""
        self.commits[basis] += 1
        log.debug("committed a decision on the basis %s", basis)
        if not self.is_watched:
            return
        if seconds is not None:
            self.commit_seconds[basis].observe(seconds)
        self.batch_runs.observe(len(write.runs) + len(write.new_runs))
        for new in write.new_runs:
            self.runs[NEW, new.run.state._value_] += 1
            for step in new.steps:
                self.steps[NEW, step.state._value_] += 1
                if step.worker is not None:
                    self.claims += 1
                    self.queue_wait.observe(0.0)
        for change in write.runs:
            run = change.run
            known = loaded.runs.get((run.tenant, run.id))
            if known is not None and known.state is not run.state:
                self.runs[known.state._value_, run.state._value_] += 1
        for step in write.steps:
            before = loaded.steps.get((step.tenant, step.run_id), NO_STEPS).get(step.no)
            if before is not None:
                self._changed(step, before)
        for step in write.new_steps:
            self.steps[NEW, step.state._value_] += 1
        for attempt in write.attempts:
            category = attempt.category
            self.attempts[attempt.state._value_, "" if category is None else category._value_] += 1
            self.attempt_seconds.observe(max(0, attempt.ended_at - attempt.started_at) / SECOND)

    def _changed(self, step: Step, before: Step) -> None:
        was, state = before.state, step.state
        if was is not state:
            self.steps[was._value_, state._value_] += 1
            if (was is RUNNING or was is VALIDATING) and (state is RETRYING or state is READY):
                # A lost lease counts an attempt, too; a released one counts none.
                self.retries += step.attempts > before.attempts and step.losses == before.losses
        if step.worker is not None and before.fence != step.fence:
            self.claims += 1
            # A step that became ready in the same transaction did not wait.
            ready_at = before.ready_at
            waited = (
                0 if ready_at is None or step.claimed_at is None else max(0, step.claimed_at - ready_since(ready_at))
            )
            self.queue_wait.observe(waited / SECOND)

    def replied(self, replies: Iterable[object]) -> None:
        """Count the replies that refused a write because its lease was gone."""
        for reply in replies:
            if type(reply) is not Accepted and isinstance(reply, Fenced):
                self.fenced += 1
