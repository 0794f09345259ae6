"""The state of the whole system in numbers: runs by state, queues with their backlog, failures, workers, late timers.

It reads bounded parts of indexes and never the history before its window. `counting` says which counts are exact.
`stepkeep status` and `engine.status` call it; metrics and pages may use the same value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.states import WorkerState
from stepkeep.operations import counting
from stepkeep.operations.causes import FAULTS, SECOND, span
from stepkeep.operations.counting import count_runs
from stepkeep.operations.diagnosis import Staff, read_staff
from stepkeep.operations.instants import instant
from stepkeep.operations.pauses import claims_view, workflows_view
from stepkeep.operations.retention import first_id_at
from stepkeep.operations.services import Known, UsageWindow, known_workers
from stepkeep.operations.staffing import judge, queue_paused, title
from stepkeep.operations.transact import Transactor
from stepkeep.store.protocol import Store
from stepkeep.store.records import Backlog

MOST_SEARCHED = 50_000
"""Stuck runs are searched for among fewer unfinished runs than these; `stepkeep db status` searches among all."""
WINDOW = 3_600 * SECOND
LATE = 5 * SECOND
"""A live worker sweeps due timers every second."""
MOST_STUCK = 20


async def read_status(transactor: Transactor, *, tenant: str, window: int = WINDOW) -> dict[str, Any]:
    """The numbers of one tenant. `window` (microseconds) bounds what counts as recent."""
    store = transactor.store
    staff = await read_staff(store, tenant)
    since = staff.now - window
    counts = await count_runs(store, tenant, after=first_id_at(since), late_by=staff.now - LATE)
    backlog = await store.read_backlog(sorted(staff.specs), counting.MOST)
    stuck = await _stuck(store, tenant) if counts.live.total < MOST_SEARCHED else None
    queues = [_queue(one, staff) for one in sorted(backlog, key=lambda one: one.oldest_at)]
    said: dict[str, Any] = {
        "at": instant(staff.now),
        "runs": {
            "live": counts.live.view("by_state"),
            "recent": {"since": instant(since), **counts.recent.view("by_state")},
        },
        "failures": {"since": instant(since), **counts.failures.view("by_category")},
        "queues": queues,
        "workers": [worker_view(known, staff.now) for known in staff.workers],
        "paused": claims_view(staff.pauses),
        "paused_workflows": workflows_view(staff.pauses),
        "waiting_for_slots": await store.slots.count_waiting(tenant, counting.MOST),
        "late_timers": {
            "count": counts.late,
            "is_complete": counts.late_is_complete,
            "since": instant(counts.late_since),
        },
        "stuck_runs": stuck,
    }
    return {"status": said | {"problems": problems(said, staff.now, counts.late_since)}}


async def list_workers(transactor: Transactor, *, tenant: str, live_only: bool) -> dict[str, Any]:
    """All workers of a tenant, or those that are not shut down."""
    store = transactor.store
    rows = await store.list_workers(tenant, live_only)
    known = known_workers(rows, await store.list_worker_reports(tenant))
    now = await store.now()
    return {"workers": [worker_view(one, now) for one in known]}


def problems(said: Mapping[str, Any], now: int, late_since: int | None) -> list[str]:
    """What an operator should look at, in sentences; empty where all is well."""
    found = [f"queue {queue['needs']}: {queue['why']}" for queue in said["queues"] if queue["code"] in FAULTS]
    found += [f"worker {worker['id']} hands back {text}" for worker in said["workers"] for text in worker["misfits"]]
    found += [f"worker {worker['id']} is silent" for worker in said["workers"] if worker["silent"]]
    if said["late_timers"]["count"] and late_since is not None:
        least = "" if said["late_timers"]["is_complete"] else "at least "
        found.append(
            f"{least}{said['late_timers']['count']:,} timers are overdue, the oldest by {span(now - late_since)}"
        )
    for run_id in said["stuck_runs"] or ():
        found.append(f"run {run_id} is stuck: this is a defect, please report it")
    return found


def worker_view(known: Known, now: int) -> dict[str, Any]:
    """A worker, what it serves and how much it holds, as JSON."""
    row, offer = known.row, known.service
    if offer is not None and row.state is WorkerState.SHUTDOWN:
        # Its last report is older than its end, and it ends when it holds nothing.
        offer = replace(offer, held=0, free=0)
    return {
        "id": row.id,
        "state": row.state,
        "silent": row.state != "shutdown" and known.is_silent(now),
        "incarnation": row.incarnation,
        "capacity": row.capacity,
        "held": None if offer is None else offer.held,
        "free": None if offer is None else offer.free,
        "usage": [] if offer is None else [_usage(one, row.capacity) for one in offer.usage],
        "capabilities": list(row.capabilities),
        "queues": None if offer is None or offer.groups is None else list(offer.groups),
        "handlers": [] if offer is None else [*offer.handlers, *offer.agents],
        "kinds": [] if offer is None else list(offer.kinds),
        "misfits": [] if offer is None else [one.text for one in offer.misfits],
        "only_run": None if offer is None else offer.only_run,
        "host": None if offer is None else offer.host,
        "pid": None if offer is None else offer.pid,
        "version": None if offer is None else offer.version,
        "started_at": instant(row.started_at),
        "heard_at": instant(row.heard_at),
    }


def _usage(window: UsageWindow, capacity: int) -> dict[str, Any]:
    share = round(window.slots / capacity, 4) if capacity else 0.0
    return {**msgspec.structs.asdict(window), "utilisation": share}


async def _stuck(store: Store, tenant: str) -> list[str]:
    return [run_id for owner, run_id in await store.stuck_runs(MOST_STUCK) if owner == tenant]


def _queue(one: Backlog, staff: Staff) -> dict[str, Any]:
    spec = staff.specs[one.queue]
    code, why, _ = queue_paused(spec, staff.pauses) or judge(spec, one.queue, staff.workers, staff.former, staff.now)
    serving: Sequence[Known] = [
        known for known in staff.workers if known.is_live(staff.now) and not known.lacks(spec, one.queue)
    ]
    return {
        "needs": title(spec),
        "queue": spec.group,
        "kind": spec.kind,
        "handler": spec.name,
        "capabilities": list(spec.capabilities),
        "ready": one.depth,
        "is_complete": one.depth < counting.MOST,
        "oldest_at": instant(one.oldest_at),
        "oldest_seconds": max(0, staff.now - one.oldest_at) / SECOND,
        "workers": len(serving),
        "code": code.value,
        "why": why,
    }
