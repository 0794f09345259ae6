"""Decides what one sweep of a trigger does: which moments fire, wait or are skipped, and when the next sweep is due.

Pure: from the trigger's row, its watched firings with the states of their runs, and the time. Every worker that sweeps
decides the same; the trigger's row lets one of them write it. `sweep` calls it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.kernel.triggers import CatchUp, Keep, Overlap, Schedule, TriggerSpec
from stepkeep.schedules.moments import jitter_of, moments_after, next_moment
from stepkeep.store.rows import (
    Backfill,
    BackfillState,
    Firing,
    FiringState,
    TriggerRow,
    Watched,
)

SECOND = 1_000_000
LATE = 60 * SECOND
"""A moment that is later than this was missed: the catch-up policy decides about it."""

MOST_STARTS = 20
"""How many runs one transaction starts at most."""

MOST_COUNTED = 50_000
"""How many moments one sweep enumerates at most: those of five weeks of a schedule by the minute."""

FIRST_RECHECK, LAST_RECHECK = SECOND, 10 * SECOND
"""A sweep looks after so long whether the run that a firing waits for has ended; later for one that waits longer."""

ENDINGS = 2 * SECOND
"""How often the ends that were noted for a trigger are looked at."""


class Fire(msgspec.Struct, frozen=True):
    """A run to start for this firing. `delay` spreads caught-up moments."""

    firing: Firing
    delay: int = 0


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep does: `starts` and `records` in one transaction with the new `row`. Runs of `cancels` are
    cancelled before it; then the plan is made again."""

    row: TriggerRow
    starts: tuple[Fire, ...] = ()
    records: tuple[Firing, ...] = ()
    cancels: tuple[str, ...] = ()
    backfill: Backfill | None = None


def moment_text(moment: int) -> str:
    """A moment as it is in keys, on record and in inputs.

    >>> moment_text(1_794_900_600_000_000)
    '2026-11-17T07:30:00Z'
    """
    return datetime.fromtimestamp(moment // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def plan_sweep(
    row: TriggerRow,
    spec: TriggerSpec,
    now: int,
    watched: Sequence[Watched],
    backfill: Backfill | None = None,
    fired: frozenset[str] = frozenset(),
    arrived: Sequence[Firing] = (),
    noted: Sequence[Firing] = (),
) -> Planned:
    """Decide about a trigger that is due. `fired` has the moments of the backfill's next batch that have a run.
    `arrived` are firings that runs which ended have caused; `noted` are only recorded."""
    settled = tuple(replace(one.firing, watched=0) for one in watched if _has_ended(one))
    live = [one.firing for one in watched if one.firing.run_id is not None and not _has_ended(one)]
    waiting = [one.firing for one in watched if one.firing.state is FiringState.WAITING]
    due, dropped, next_at = _due_moments(row, spec, now)
    line = _Line(spec, [one for one in live if one.backfill is None], waiting, is_paused=row.paused_at is not None)
    for moment in due:
        line.add(new_firing(row, moment_text(moment), moment, now))
    for one in arrived:
        line.add(one)
    line.release()
    filled = _fill(row, spec, backfill, live, fired, now) if backfill is not None else _Filled()
    starts = _spread(line.starts, spec.catch_up, now) + filled.starts
    late = (skipped(new_firing(row, moment_text(dropped), dropped, now), _missed(spec.catch_up)),) if dropped else ()
    planned = replace(row, seq=row.seq + 1, next_at=next_at)
    due_at = _next_sweep(planned, spec, now, line.waiting, filled.backfill)
    return Planned(
        row=replace(planned, due_at=due_at),
        starts=starts,
        records=(*settled, *late, *noted, *line.records),
        cancels=tuple(line.cancels),
        backfill=filled.backfill,
    )


def plan_firing(
    row: TriggerRow, spec: TriggerSpec, now: int, watched: Sequence[Watched], firing: Firing, *, forced: bool = False
) -> Planned:
    """Decide about one firing that an event, an ending or a person caused. `forced` starts it whatever still runs."""
    settled = tuple(replace(one.firing, watched=0) for one in watched if _has_ended(one))
    live = [one.firing for one in watched if one.firing.run_id is not None and not _has_ended(one)]
    waiting = [one.firing for one in watched if one.firing.state is FiringState.WAITING]
    free = replace(spec, overlap=Overlap.ALLOW) if forced else spec
    line = _Line(free, [one for one in live if one.backfill is None], waiting, is_paused=row.paused_at is not None)
    line.add(firing)
    if not forced:
        line.release()
    planned = replace(row, seq=row.seq + 1)
    due_at = _next_sweep(planned, spec, now, line.waiting, None)
    soonest = [at for at in (row.due_at, due_at) if at is not None]
    return Planned(
        row=replace(planned, due_at=min(soonest, default=None)),
        starts=tuple(Fire(one) for one in line.starts),
        records=(*settled, *line.records),
        cancels=tuple(line.cancels),
    )


def new_firing(row: TriggerRow, moment: str, due_at: int, now: int, depth: int = 0) -> Firing:
    """A firing about which nothing is decided yet."""
    return Firing(
        tenant=row.tenant,
        trigger_name=row.name,
        moment=moment,
        due_at=due_at,
        state=FiringState.WAITING,
        watched=1,
        made_at=now,
        depth=depth,
    )


def skipped(firing: Firing, reason: str, state: FiringState = FiringState.SKIPPED) -> Firing:
    """The firing, on record as one that starts nothing."""
    return replace(firing, state=state, watched=0, reason=reason, given=None)


def backfill_batch(spec: TriggerSpec, backfill: Backfill) -> list[int]:
    """The next moments of a backfill."""
    assert spec.schedule is not None
    found = moments_after(spec.schedule, max(backfill.cursor_at, backfill.since_at - 1))
    return [moment for moment in islice(found, MOST_STARTS) if moment < backfill.until_at]


def _has_ended(one: Watched) -> bool:
    """Whether the run of a firing has ended, or was deleted, which only a finished run is."""
    return one.firing.run_id is not None and (one.run_state is None or one.run_state in RUN_TERMINAL)


class _Line:
    """The firings of one sweep under the overlap policy, in the order of their moments."""

    def __init__(
        self, spec: TriggerSpec, live: Sequence[Firing], waiting: Sequence[Firing], *, is_paused: bool
    ) -> None:
        self._spec, self._is_paused = spec, is_paused
        self._live = [one.run_id for one in live]
        self.waiting = list(waiting)
        self.starts: list[Firing] = []
        self.records: list[Firing] = []
        self.cancels: list[str] = []

    def add(self, firing: Firing) -> None:
        """Decide about a firing that is due now."""
        match self._spec.overlap:
            case Overlap.ALLOW:
                self.starts.append(replace(firing, watched=0))
            case Overlap.SKIP if self._is_busy:
                earlier = self._live[-1] if self._live else "an earlier moment"
                self.records.append(skipped(firing, f"overlap: run {earlier} of this trigger has not ended"))
            case Overlap.SKIP:
                self.starts.append(firing)
            case Overlap.QUEUE if len(self.waiting) >= self._spec.most_waiting:
                self.records.append(skipped(firing, f"overlap: {len(self.waiting)} firings wait already"))
            case Overlap.QUEUE:
                self.waiting.append(firing)
                self.records.append(firing)
            case Overlap.CANCEL:
                said = f"overlap: replaced by the firing of {firing.moment}"
                self._replace_waiting([skipped(one, said) for one in self.waiting])
                self.waiting = [firing]
                self.records.append(firing)
                self.cancels = [run for run in self._live if run is not None]

    def release(self) -> None:
        """Start the first firing that waits, if nothing runs."""
        if self.waiting and not self._is_busy and not self._is_paused:
            first = self.waiting.pop(0)
            self.records = [one for one in self.records if one.moment != first.moment]
            self.starts.append(first)
        if self.waiting and self._spec.overlap is Overlap.CANCEL:
            self.cancels = [run for run in self._live if run is not None]

    @property
    def _is_busy(self) -> bool:
        return bool(self._live or self.starts)

    def _replace_waiting(self, replaced: list[Firing]) -> None:
        gone = {one.moment for one in replaced}
        self.records = [one for one in self.records if one.moment not in gone] + replaced


def _due_moments(row: TriggerRow, spec: TriggerSpec, now: int) -> tuple[list[int], int | None, int | None]:
    """The moments to fire, the first of those that are dropped, and the next moment."""
    if spec.schedule is None or row.paused_at is not None or row.removed_at is not None or row.next_at is None:
        return [], None, row.next_at
    schedule, catch_up, owner = spec.schedule, spec.catch_up, owner_of(row)
    begin = max(row.next_at, now - catch_up.window - LATE - schedule.jitter)
    missed: deque[int] = deque(maxlen=_most(catch_up))
    on_time: list[int] = []
    dropped = row.next_at if begin > row.next_at else None
    following: int | None = None
    for moment in _bounded(schedule, begin - 1):
        due_at = moment + jitter_of(schedule, owner, moment)
        if due_at > now or len(on_time) == MOST_STARTS:
            following = moment
            break
        if now - due_at <= LATE:
            on_time.append(moment)
            continue
        if len(missed) == missed.maxlen:
            dropped = dropped or (missed[0] if missed else moment)
        missed.append(moment)
    if on_time and catch_up.keep is Keep.LAST and missed:
        # A later moment fires anyway.
        dropped = dropped or missed[0]
        missed.clear()
    return [*missed, *on_time], dropped, following


def _most(catch_up: CatchUp) -> int:
    return {Keep.NONE: 0, Keep.LAST: 1, Keep.ALL: min(catch_up.most, MOST_STARTS)}[catch_up.keep]


def _bounded(schedule: Schedule, after: int) -> Iterator[int]:
    return islice(moments_after(schedule, after), MOST_COUNTED)


def _missed(catch_up: CatchUp) -> str:
    return f"missed: this moment, and others until the next firing, are not caught up (catch_up: {catch_up.keep})"


def _spread(starts: Sequence[Firing], catch_up: CatchUp, now: int) -> tuple[Fire, ...]:
    """Late firings start one after the other, `spread` apart."""
    late = [one for one in starts if now - one.due_at > LATE]
    places = {one.moment: place for place, one in enumerate(late)}
    return tuple(Fire(one, places.get(one.moment, 0) * catch_up.spread) for one in starts)


class _Filled(msgspec.Struct, frozen=True, kw_only=True):
    starts: tuple[Fire, ...] = ()
    backfill: Backfill | None = None


def _fill(
    row: TriggerRow, spec: TriggerSpec, job: Backfill, live: Sequence[Firing], fired: frozenset[str], now: int
) -> _Filled:
    """The next batch of a backfill: as many as may run at once. Moments that have a run are counted, not repeated."""
    free = job.at_once - sum(one.backfill == job.id for one in live)
    starts: list[Fire] = []
    cursor, before = job.cursor_at, 0
    batch = backfill_batch(spec, job)
    for moment in batch:
        if moment_text(moment) in fired:
            before += 1
        elif len(starts) < free:
            starts.append(Fire(replace(new_firing(row, moment_text(moment), moment, now), backfill=job.id)))
        else:
            break
        cursor = moment
    is_done = not batch or (cursor == batch[-1] and len(batch) < MOST_STARTS)
    changed = replace(job, cursor_at=max(cursor, job.cursor_at), skipped=job.skipped + before)
    if is_done:
        changed = replace(changed, state=BackfillState.DONE, ended_at=now)
    return _Filled(starts=tuple(starts), backfill=changed)


def _next_sweep(
    row: TriggerRow, spec: TriggerSpec, now: int, waiting: Sequence[Firing], job: Backfill | None
) -> int | None:
    """When to look at the trigger again: its next moment, or soon while something waits for a run to end."""
    times = []
    if row.removed_at is None and row.paused_at is None and row.next_at is not None and spec.schedule is not None:
        times.append(row.next_at + jitter_of(spec.schedule, owner_of(row), row.next_at))
    if waiting and row.paused_at is None:
        age = now - min(one.made_at for one in waiting)
        times.append(now + max(FIRST_RECHECK, min(LAST_RECHECK, age // 10)))
    if job is not None and job.state is BackfillState.RUNNING:
        times.append(now + FIRST_RECHECK)
    if spec.ended is not None and row.removed_at is None:
        times.append(now + ENDINGS)
    return min(times, default=None)


def owner_of(row: TriggerRow) -> str:
    """What the jitter of a trigger is drawn from."""
    return f"{row.tenant}/{row.name}"


def first_times(row: TriggerRow, spec: TriggerSpec, now: int) -> TriggerRow:
    """The trigger with its next moment after now, and the time of its next sweep."""
    next_at = None if spec.schedule is None else next_moment(spec.schedule, now)
    timed = replace(row, next_at=next_at)
    return replace(timed, due_at=_next_sweep(timed, spec, now, (), None))
