"""The states of workers: register, heartbeat, idle or busy, unresponsive, drain, shut down. Each hop is in their
journal.

A worker's state is a report about a process, never a lock: leases and fences alone guard its claims.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import WorkerState
from stepkeep.kernel.machine.tables import WorkerTrigger as T
from stepkeep.kernel.workers import move_worker
from stepkeep.store.protocol import Store
from stepkeep.store.records import WorkerChange

HEARTBEAT = 10 * SECOND
MISSED_BEATS = 3
GIVE_UP_AFTER = 180 * SECOND


def new_id(app: str) -> str:
    """`app:host:pid:random`: readable and unique."""
    parts = (app, socket.gethostname(), str(os.getpid()), secrets.token_hex(4))
    return ":".join(re.sub(r"[^a-z0-9_.-]", "-", part.lower()) for part in parts)


async def register(
    store: Store,
    *,
    tenant: str,
    app: str,
    capacity: int,
    capabilities: tuple[str, ...] = (),
    queues: tuple[int, ...] = (),
    owner: str | None = None,
    worker_id: str | None = None,
) -> Worker:
    """Register a process with its capabilities, and with the owner of its key. Raises Contended if the id exists."""
    now = await store.now()
    blank = Worker(
        tenant=tenant,
        id=worker_id or new_id(app),
        no=0,
        state=WorkerState.INITIALIZING,
        incarnation=1,
        capacity=capacity,
        capabilities=tuple(sorted(capabilities)),
        queues=queues,
        heard_at=now,
        started_at=now,
        owner=owner,
    )
    worker, entry = move_worker(blank, (T.STARTED, T.REGISTERED), now=now, actor=blank.id)
    return await store.add_worker(worker, entry)


async def beat(store: Store, worker: Worker) -> Worker:
    """Send a heartbeat. A worker that was marked as unresponsive returns as a new incarnation of the same id."""
    row = await store.beat(worker.tenant, worker.no, worker.incarnation)
    if row is None:
        return worker
    if row.state is WorkerState.UNRESPONSIVE:
        return await _move(store, row, T.HEARD_AGAIN)
    return row


async def mark_busy(store: Store, worker: Worker, since: int | None = None) -> Worker:
    """Mark a worker that has claimed. `since` is the time of its first claim: from then on it was busy."""
    if worker.state is not WorkerState.IDLE:
        return worker
    if since is not None:
        # It may have been marked as idle after the claim.
        since = max(since, await _moved_at(store, worker))
    return await _move(store, worker, T.TASK_ASSIGNED, at=since)


async def mark_idle(store: Store, worker: Worker) -> Worker:
    return await _move(store, worker, T.TASKS_FINISHED) if worker.state is WorkerState.BUSY else worker


async def drain(store: Store, worker: Worker) -> Worker:
    """Stop claiming: finish or release what is held."""
    live = worker.state in (WorkerState.IDLE, WorkerState.BUSY)
    return await _move(store, worker, T.DRAIN_REQUESTED) if live else worker


GOODBYE = {
    WorkerState.UNRESPONSIVE: T.HEARD_AGAIN,
    WorkerState.IDLE: T.DRAIN_REQUESTED,
    WorkerState.BUSY: T.DRAIN_REQUESTED,
    WorkerState.DRAINING: T.DRAINED,
}
"""The hops of a shutdown. An unresponsive worker is first heard again, so that its shutdown is recorded as regular."""

HOPS = 8
"""More tries than hops, because another process may mark the worker once or twice in between."""


async def shut_down(store: Store, worker: Worker) -> Worker:
    """Deregister the worker."""
    for _ in range(HOPS):
        trigger = GOODBYE.get(worker.state)
        if trigger is None:
            break
        worker = await _move(store, worker, trigger)
    return worker


async def retire_silent(store: Store, *, actor: str) -> int:
    """Mark workers that missed their heartbeats, and give up those that were silent for long."""
    silent = await store.silent_workers(MISSED_BEATS * HEARTBEAT)
    now = await store.now() if silent else 0
    moved = 0
    for worker in silent:
        trigger = _verdict(worker, now)
        if trigger is not None:
            after = await _move(store, worker, trigger, actor=actor)
            moved += after.state is not worker.state
    return moved


def _verdict(worker: Worker, now: int) -> T | None:
    if worker.state in (WorkerState.IDLE, WorkerState.BUSY, WorkerState.DRAINING):
        return T.HEARTBEATS_MISSED
    if worker.state is WorkerState.UNRESPONSIVE and now - worker.heard_at >= GIVE_UP_AFTER:
        return T.GIVEN_UP
    return None


async def _move(
    store: Store, worker: Worker, trigger: T, *, actor: str | None = None, at: int | None = None, **changes: Any
) -> Worker:
    """Make one hop, now or at a time before. If another process changed the row first, return that row."""
    if at is None:
        # Only the entry of a missed heartbeat is later than `heard_at`.
        is_silent = worker.state is WorkerState.UNRESPONSIVE
        at = max(await store.now(), await _moved_at(store, worker) if is_silent else worker.heard_at)
    moved, entry = move_worker(worker, (trigger,), now=at, actor=actor or worker.id, **changes)
    if trigger is not T.HEARTBEATS_MISSED and trigger is not T.GIVEN_UP:
        moved = replace(moved, heard_at=max(moved.heard_at, entry.at))
    written = await store.change_workers([WorkerChange(was=worker.seq, worker=moved, entry=entry)])
    if written[0]:
        return moved
    return await store.find_worker(worker.tenant, worker.id) or worker


async def _moved_at(store: Store, worker: Worker) -> int:
    """The time of the newest entry. Time does not run backwards in a journal, although a claim may be later than the
    clock, and the clock may be set back."""
    newest = await store.deliveries.read_worker_entries(worker.tenant, worker.id, worker.seq - 1, 1)
    return max((entry.at for entry in newest), default=0)
