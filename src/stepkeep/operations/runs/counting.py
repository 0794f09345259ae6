"""Counts runs by state and category: exactly up to a bound, and beyond it by a sample, which is called an estimate.

No table of counters is kept: every commit would write to it. Totals come from indexes alone. A sample has the runs
whose ids end in certain bytes, because the end of an id is random. `status`, `statistics` and the metrics call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import msgspec

from stepkeep.kernel.machine.states import RunState
from stepkeep.store.listing import TROUBLED
from stepkeep.store.protocol import Store
from stepkeep.store.records import RecentRun

EXACT = 200_000
"""Runs are counted by state up to this number."""
MOST = 1_000_000
"""Totals, and the ready steps of a queue, are counted up to this number."""
SAMPLE = 5_000
"""About so many runs are in a sample."""
BYTES = 256

K = TypeVar("K", bound=Hashable)


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of each kind. With `is_estimate`, the parts are scaled from a sample, and the total is still
    exact; without `is_complete`, there are at least as many as `total`."""

    parts: Mapping[str, int]
    total: int
    is_complete: bool = True
    is_estimate: bool = False


class RunNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The unfinished runs of a tenant, the recent ones by state, the stopped ones among them by category, and overdue
    timers."""

    live: Counted
    recent: Counted
    failures: Counted
    late: int
    late_is_complete: bool
    late_since: int | None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Some of `total` runs, each for as many of them."""

    runs: list[RecentRun]
    total: int

    def count(self, kinds: Iterable[K]) -> dict[K, int]:
        """How many of all runs are of each kind, from the kinds of the runs in the sample."""
        weight = self.total / len(self.runs) if self.runs else 0.0
        return {kind: round(count * weight) for kind, count in Counter(kinds).most_common()}


async def count_runs(store: Store, tenant: str, *, after: str, late_by: int) -> RunNumbers:
    """The numbers of a tenant. Runs are recent after this id; timers are late that were due by `late_by`."""
    tally = await store.tally(tenant, after=after, late_by=late_by, limit=EXACT)
    live, recent = (
        exactly({str(state): counts[state] for state in RunState if state in counts})
        for counts in (tally.live, tally.recent)
    )
    categories: Counter[str] = Counter()
    for (_, category), count in tally.troubled.items():
        categories[str(category or "none")] += count
    failures = exactly(dict(categories.most_common()))
    if live.total >= EXACT:
        live = await _estimated(await sample_live(store, tenant))
    if recent.total >= EXACT:
        sample = await sample_recent(store, tenant, after)
        recent = await _estimated(sample)
        if failures.total >= EXACT:
            parts = sample.count(run.category or "none" for run in sample.runs if run.state in TROUBLED)
            total = sum(parts.values())
            failures = Counted(parts=parts, total=total, is_complete=recent.is_complete, is_estimate=True)
    return RunNumbers(
        live=live,
        recent=recent,
        failures=failures,
        late=tally.late,
        late_is_complete=tally.late < EXACT,
        late_since=tally.late_since,
    )


def exactly(parts: Mapping[str, int]) -> Counted:
    """Parts that were counted one by one."""
    return Counted(parts=parts, total=sum(parts.values()))


async def _estimated(sample: Sample) -> Counted:
    parts = sample.count(run.state for run in sample.runs)
    return Counted(parts=parts, total=sample.total, is_complete=sample.total < MOST, is_estimate=True)


async def sample_live(store: Store, tenant: str) -> Sample:
    """Some of the unfinished runs of a tenant."""
    total = await store.count_unfinished(tenant, MOST)
    return Sample(runs=await store.sample_live(tenant, share=_share(total), limit=MOST), total=total)


async def sample_recent(store: Store, tenant: str, after: str) -> Sample:
    """Some of the runs of a tenant after an id."""
    total = await store.count_newest(tenant, after, MOST)
    return Sample(runs=await store.sample_recent(tenant, after=after, share=_share(total), limit=MOST), total=total)


def _share(total: int) -> int:
    """Of how many of the 256 bytes an id may end in one, so that the sample is large enough."""
    return max(1, min(BYTES, -(-BYTES * SAMPLE // max(1, total))))
