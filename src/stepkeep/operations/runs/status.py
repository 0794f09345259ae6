"""The state of the whole system in numbers: runs by state, queues with their backlog, failures, workers, late timers.

It reads bounded parts of indexes and never the history before its window. `counting` says which counts are exact.
`stepkeep status` and `engine.status` call it; metrics and pages may use the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from stepkeep.kernel.machine.states import WorkerState
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.limits.pauses import claims_view, workflows_view
from stepkeep.operations.logs.retention import first_id_at
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote.services import Known, UsageWindow, known_workers
from stepkeep.operations.runs import counting
from stepkeep.operations.runs.causes import FAULTS, SECOND, span
from stepkeep.operations.runs.counting import Counted, count_runs
from stepkeep.operations.runs.diagnosis import Staff, read_staff
from stepkeep.operations.runs.staffing import judge, queue_paused, title
from stepkeep.store.protocol import Store
from stepkeep.store.records import Backlog

MOST_SEARCHED = 50_000
"""Stuck runs are searched for among fewer unfinished runs than these; `stepkeep db status` searches among all."""
WINDOW = 3_600 * SECOND
LATE = 5 * SECOND
"""A live worker sweeps due timers every second."""
MOST_STUCK = 20


class RunCounts(Answer, kw_only=True):
    """How many runs there are in each state, since when if it says so."""

    since: str | UnsetType | None = UNSET
    total: int
    is_complete: Annotated[bool, says("False where there are at least as many.")]
    is_estimate: Annotated[bool, says("Whether the parts are scaled from a sample.")]
    by_state: dict[str, int]


class RunsByState(Answer, kw_only=True):
    """Unfinished runs, and recent ones."""

    live: RunCounts
    recent: RunCounts


class FailureCounts(Answer, kw_only=True):
    """How many runs were stopped, by category."""

    since: str | None
    total: int
    is_complete: Annotated[bool, says("False where there are at least as many.")]
    is_estimate: Annotated[bool, says("Whether the parts are scaled from a sample.")]
    by_category: dict[str, int]


class QueueView(Answer, kw_only=True):
    """A queue with its backlog: `depth` steps are ready (`ready` in JSON)."""

    needs: Annotated[str, says("What its steps need, in words.")]
    queue: str
    kind: str
    handler: str
    capabilities: list[str]
    depth: Annotated[int, says("How many steps are ready.")] = field(name="ready")
    is_complete: bool
    oldest_at: str | None
    oldest_seconds: float
    workers: Annotated[int, says("How many live workers serve it.")]
    code: str
    why: str


class Usage(Answer, kw_only=True):
    """How much of a worker was used in the last `seconds`."""

    seconds: int
    measured: float
    busy: float
    slots: float
    claims: int
    settled: int
    utilisation: float


class WorkerView(Answer, kw_only=True):
    """What a worker serves and how much it holds."""

    id: str
    state: WorkerState
    silent: bool
    incarnation: int
    capacity: int
    held: int | None
    free: int | None
    usage: list[Usage]
    capabilities: list[str]
    queues: Annotated[list[str] | None, says("Null if it serves all.")]
    handlers: list[str]
    kinds: list[str]
    misfits: Annotated[list[str], says("What it hands back, in words.")]
    only_run: str | None
    host: str | None
    pid: int | None
    version: str | None
    started_at: str | None
    heard_at: str | None


class WorkerList(Answer, kw_only=True):
    """What each worker serves and how much it holds."""

    workers: list[WorkerView]
    next: str | UnsetType | None = UNSET


class PausedClaims(Answer, kw_only=True):
    """A pause of the tenant or of a queue."""

    scope: Literal["tenant", "queue"]
    queue: str | None = None
    by: str
    since: str | None
    reason: str


class PausedWorkflow(Answer, kw_only=True):
    """A workflow whose runs start paused."""

    workflow: str
    by: str
    since: str | None
    reason: str


class LateTimers(Answer, kw_only=True):
    """Timers that are overdue."""

    count: int
    is_complete: bool
    since: str | None


class Status(Answer, kw_only=True):
    """Runs by state, queues, failures by category, workers, late timers, and `problems` in sentences."""

    at: str | None
    runs: RunsByState
    failures: FailureCounts
    queues: list[QueueView]
    workers: list[WorkerView]
    paused: list[PausedClaims]
    paused_workflows: list[PausedWorkflow]
    waiting_for_slots: int
    late_timers: LateTimers
    stuck_runs: Annotated[list[str] | None, says("Null where there are too many runs to look at.")]
    problems: list[str]


class StatusView(Answer, kw_only=True):
    """The whole system in numbers."""

    status: Status

    @property
    def queues(self) -> list[QueueView]:
        """The queues, the one that waits longest first."""
        return self.status.queues

    @property
    def workers(self) -> list[WorkerView]:
        return self.status.workers

    @property
    def problems(self) -> list[str]:
        """What an operator should look at; empty where all is well."""
        return self.status.problems


async def read_status(transactor: Transactor, *, tenant: str, window: int = WINDOW) -> StatusView:
    """The numbers of one tenant. `window` (microseconds) bounds what counts as recent."""
    store = transactor.store
    staff = await read_staff(store, tenant)
    since = staff.now - window
    counts = await count_runs(store, tenant, after=first_id_at(since), late_by=staff.now - LATE)
    backlog = await store.read_backlog(sorted(staff.specs), counting.MOST)
    stuck = await _stuck(store, tenant) if counts.live.total < MOST_SEARCHED else None
    queues = [_queue(one, staff) for one in sorted(backlog, key=lambda one: one.oldest_at)]
    said = Status(
        at=instant(staff.now),
        runs=RunsByState(
            live=by_state(counts.live),
            recent=by_state(counts.recent, since=instant(since)),
        ),
        failures=FailureCounts(
            since=instant(since),
            total=counts.failures.total,
            is_complete=counts.failures.is_complete,
            is_estimate=counts.failures.is_estimate,
            by_category=dict(counts.failures.parts),
        ),
        queues=queues,
        workers=[worker_view(known, staff.now) for known in staff.workers],
        paused=[PausedClaims(**one) for one in claims_view(staff.pauses)],
        paused_workflows=[PausedWorkflow(**one) for one in workflows_view(staff.pauses)],
        waiting_for_slots=await store.slots.count_waiting(tenant, counting.MOST),
        late_timers=LateTimers(
            count=counts.late, is_complete=counts.late_is_complete, since=instant(counts.late_since)
        ),
        stuck_runs=stuck,
        problems=[],
    )
    return StatusView(status=replace(said, problems=problems(said, staff.now, counts.late_since)))


async def list_workers(transactor: Transactor, *, tenant: str, live_only: bool) -> WorkerList:
    """All workers of a tenant, or those that are not shut down."""
    store = transactor.store
    rows = await store.list_workers(tenant, live_only)
    known = known_workers(rows, await store.list_worker_reports(tenant))
    now = await store.now()
    return WorkerList(workers=[worker_view(one, now) for one in known])


def problems(said: Status, now: int, late_since: int | None) -> list[str]:
    """What an operator should look at, in sentences; empty where all is well."""
    found = [f"queue {queue.needs}: {queue.why}" for queue in said.queues if queue.code in FAULTS]
    found += [f"worker {worker.id} hands back {text}" for worker in said.workers for text in worker.misfits]
    found += [f"worker {worker.id} is silent" for worker in said.workers if worker.silent]
    if said.late_timers.count and late_since is not None:
        least = "" if said.late_timers.is_complete else "at least "
        found.append(f"{least}{said.late_timers.count:,} timers are overdue, the oldest by {span(now - late_since)}")
    for run_id in said.stuck_runs or ():
        found.append(f"run {run_id} is stuck: this is a defect, please report it")
    return found


def worker_view(known: Known, now: int) -> WorkerView:
    """A worker, what it serves and how much it holds."""
    row, offer = known.row, known.service
    if offer is not None and row.state is WorkerState.SHUTDOWN:
        # Its last report is older than its end, and it ends when it holds nothing.
        offer = replace(offer, held=0, free=0)
    return WorkerView(
        id=row.id,
        state=row.state,
        silent=row.state != "shutdown" and known.is_silent(now),
        incarnation=row.incarnation,
        capacity=row.capacity,
        held=None if offer is None else offer.held,
        free=None if offer is None else offer.free,
        usage=[] if offer is None else [_usage(one, row.capacity) for one in offer.usage],
        capabilities=list(row.capabilities),
        queues=None if offer is None or offer.groups is None else list(offer.groups),
        handlers=[] if offer is None else [*offer.handlers, *offer.agents],
        kinds=[] if offer is None else list(offer.kinds),
        misfits=[] if offer is None else [one.text for one in offer.misfits],
        only_run=None if offer is None else offer.only_run,
        host=None if offer is None else offer.host,
        pid=None if offer is None else offer.pid,
        version=None if offer is None else offer.version,
        started_at=instant(row.started_at),
        heard_at=instant(row.heard_at),
    )


def _usage(window: UsageWindow, capacity: int) -> Usage:
    share = round(window.slots / capacity, 4) if capacity else 0.0
    return Usage(**msgspec.structs.asdict(window), utilisation=share)


def by_state(counted: Counted, since: str | UnsetType | None = UNSET) -> RunCounts:
    return RunCounts(
        since=since,
        total=counted.total,
        is_complete=counted.is_complete,
        is_estimate=counted.is_estimate,
        by_state=dict(counted.parts),
    )


async def _stuck(store: Store, tenant: str) -> list[str]:
    return [run_id for owner, run_id in await store.stuck_runs(MOST_STUCK) if owner == tenant]


def _queue(one: Backlog, staff: Staff) -> QueueView:
    spec = staff.specs[one.queue]
    code, why, _ = queue_paused(spec, staff.pauses) or judge(spec, one.queue, staff.workers, staff.former, staff.now)
    serving: Sequence[Known] = [
        known for known in staff.workers if known.is_live(staff.now) and not known.lacks(spec, one.queue)
    ]
    return QueueView(
        needs=title(spec),
        queue=spec.group,
        kind=spec.kind,
        handler=spec.name,
        capabilities=list(spec.capabilities),
        depth=one.depth,
        is_complete=one.depth < counting.MOST,
        oldest_at=instant(one.oldest_at),
        oldest_seconds=max(0, staff.now - one.oldest_at) / SECOND,
        workers=len(serving),
        code=code,
        why=why,
    )
