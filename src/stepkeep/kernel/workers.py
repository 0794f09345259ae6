"""The worker's state machine: one hop, its new row, and the entry in the worker's own journal."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.machine.journal import RUN_ENTITY, Cause, Entry, Hop, SealedEntry, seal
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import WorkerState
from stepkeep.kernel.machine.tables import WORKER, WorkerTrigger


def move_worker(
    worker: Worker, triggers: tuple[WorkerTrigger, ...], *, now: int, actor: str, **changes: Any
) -> tuple[Worker, SealedEntry]:
    """Make these hops in one entry. A worker that returns becomes a new incarnation."""
    state: WorkerState | None = None if triggers[0] is WorkerTrigger.STARTED else worker.state
    hops = []
    for trigger in triggers:
        target = WORKER.target(state, trigger)
        hops.append(Hop(RUN_ENTITY, trigger, state, target))
        state = target
    if WorkerTrigger.HEARD_AGAIN in triggers:
        changes["incarnation"] = worker.incarnation + 1
    cause = Cause(f"worker_{triggers[-1]}", actor)
    entry = seal(Entry(worker.tenant, worker.id, worker.seq + 1, now, (cause,), tuple(hops)), worker.head)
    moved = replace(worker, state=state, seq=entry.seq, head=entry.hash, **changes)
    return moved, entry
