"""Invalid requests that no engine would make; the model store gives the expected answer to each.

Important rules are enforced twice, by the kernel and by the store. The kernel never makes an invalid request, so only
these show whether the store still refuses it. Each returns the answer, or None if it does not apply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from random import Random
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.journal import Cause, Entry, Hop, SealedEntry, seal
from stepkeep.kernel.machine.rows import Consumed, Details, Run, Step, rows_of
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, RunState, StepState, StopCause, WorkerState
from stepkeep.store.change import IdempotencyKey, NewRun, RunChange, Want, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import WorkerChange
from stepkeep_lab.simulation.store import ModelStore

InvalidWrite = Callable[[Store, str, str, Random], Awaitable[Any]]
"""Given a store, a tenant, one of its runs and chance."""

LastInvalidWrite = Callable[[Store, str], Awaitable[Any]]

STRANGER = "ffffffff-0000-7000-8000-000000000000"
"""The id of a run that was never started; it sorts last."""


async def _write(store: Store, tenant: str, run_id: str, what: Write) -> str:
    """What a write is answered, by kind: the words are each store's own."""
    try:
        await store.change([Want(tenant=tenant, run_id=run_id)], lambda loaded: what)
    except StepkeepError as problem:
        return type(problem).__name__
    return "written"


async def _run(store: Store, tenant: str, run_id: str) -> Run:
    found = await store.read_run(tenant, run_id)
    return found.run if found is not None else Run(tenant=tenant, id=run_id, definition_id=0)


def _next(run: Run, **changes: Any) -> tuple[RunChange, SealedEntry]:
    """A run's next row and the entry that goes with it, as far as a store can tell."""
    hop = Hop(-1, "started", "idle", "queued")
    entry = seal(Entry(run.tenant, run.id, run.seq + 1, run.moved_at, (Cause("Lie", "liar"),), (hop,)), run.head)
    return RunChange(was=run.seq, run=replace(run, seq=entry.seq, head=entry.hash, **changes)), entry


def _pick(rows: list[Any], random: Random) -> Any:
    return random.choice(rows) if rows else None


async def a_stale_row(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A run is written as if it were still where it is not."""
    change, entry = _next(await _run(store, tenant, run_id))
    stale = Write(runs=[replace(change, was=change.was - 1)], entries=[entry])
    return [await _write(store, tenant, run_id, replace(stale, only_hot=is_hot)) for is_hot in (False, True)]


async def a_finished_run(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A run that has ended is written once more."""
    run = await _run(store, tenant, run_id)
    if run.state not in RUN_TERMINAL:
        return None
    change, entry = _next(run)
    return await _write(store, tenant, run_id, Write(runs=[change], entries=[entry]))


async def a_finished_step(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A step that has ended becomes claimable again."""
    ended = [step for step in await store.read_steps(tenant, run_id) if step.state in STEP_TERMINAL and step.queue]
    step = _pick(ended, random)
    if step is None:
        return None
    again = replace(step, state=StepState.READY, ready_at=1, settled=None)
    return await _write(store, tenant, run_id, Write(steps=[again]))


async def half_a_lease(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A step runs, and one part or the other of its lease is missing."""
    step = _pick([one for one in await store.read_steps(tenant, run_id) if one.state is StepState.RUNNING], random)
    if step is None:
        return None
    halves = [replace(step, **{missing: None}) for missing in ("worker", "claimed_at", "due_at")]
    return [await _write(store, tenant, run_id, Write(steps=[half])) for half in halves]


async def an_older_fence(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A step is written with a smaller fence than it had."""
    # The first fence of a step that is held is another matter: no lease has none.
    steps = [step for step in await store.read_steps(tenant, run_id) if step.fence > (step.worker is not None)]
    step = _pick([one for one in steps if one.state not in STEP_TERMINAL], random)
    if step is None:
        return None
    return await _write(store, tenant, run_id, Write(steps=[replace(step, fence=step.fence - 1)]))


async def an_unknown_step(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A step is changed that does not exist."""
    return await _write(store, tenant, run_id, Write(steps=[Step(tenant=tenant, run_id=run_id, no=99, queue=0)]))


async def a_message_again(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A message arrives a second time under the same id."""
    messages = await store.read_messages(tenant, run_id)
    message = _pick(messages, random)
    if message is None:
        return None
    again = replace(message, number=1 + max(one.number for one in messages), consumed_by=None)
    return await _write(store, tenant, run_id, Write(rows=rows_of([again])))


async def a_message_consumed_again(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A message that one step has consumed is consumed by another."""
    message = _pick([one for one in await store.read_messages(tenant, run_id) if one.consumed_by is not None], random)
    if message is None:
        return None
    again = Consumed(tenant=tenant, run_id=run_id, id=message.id, consumed_by=9)
    return await _write(store, tenant, run_id, Write(rows=rows_of([again])))


async def an_entry_again(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """An entry of the journal is written over."""
    entry = _pick(await store.read_journal(tenant, run_id), random)
    return await _write(store, tenant, run_id, Write(entries=[replace(entry, hash=bytes(32))]))


async def an_attempt_again(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """An attempt that has ended ends once more."""
    attempt = _pick(await store.read_attempts(tenant, run_id), random)
    if attempt is None:
        return None
    return await _write(store, tenant, run_id, Write(attempts=[replace(attempt, output=b"2")]))


async def a_run_again(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A run is born under the id of another."""
    return await _write(store, tenant, run_id, Write(new_runs=[newborn(tenant, run_id)]))


async def a_taken_key(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A second run is born under a business key that is held, or under an idempotency key that was used."""
    run = await _run(store, tenant, run_id)
    if run.business_key is None or run.state in RUN_TERMINAL:
        return None
    born = newborn(tenant, STRANGER, business_key=run.business_key)
    return await _write(store, tenant, run_id, Write(new_runs=[born]))


async def a_stale_worker(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A worker's row is written as if it were still where it is not."""
    worker = _pick(await store.list_workers(tenant), random)
    gone = replace(worker, state=WorkerState.SHUTDOWN)
    return await store.change_workers([WorkerChange(was=worker.seq - 1, worker=gone, entry=None)])


async def a_heartbeat_unheard(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """A worker's row is written without its latest heartbeat: this is valid, and the heartbeat must be kept."""
    worker = _pick(await store.list_workers(tenant), random)
    before = replace(worker, heard_at=worker.heard_at - SECOND)
    return await store.change_workers([WorkerChange(was=worker.seq, worker=before, entry=None)])


async def a_deletion(store: Store, tenant: str, run_id: str, random: Random) -> Any:
    """Rows of an unfinished run are deleted directly through a connection, past the store."""
    run = await _run(store, tenant, run_id)
    if run.state in RUN_TERMINAL:
        return None
    table, column = random.choice((("runs", "id"), ("steps", "run_id"), ("journal", "run_id")))
    if isinstance(store, ModelStore):
        return "refused"
    statement = f"delete from {table} where tenant = '{tenant}' and {column} = '{run_id}'"  # noqa: S608 - our own names
    try:
        async with store.transaction() as transaction:
            answer = transaction.connection.execute(statement)
            if isawaitable(answer):
                await answer
    except Exception:  # noqa: BLE001 - the refusal is the answer
        return "refused"
    return f"deleted from {table}"


INVALID_WRITES: tuple[InvalidWrite, ...] = (
    a_stale_row,
    a_deletion,
    a_finished_run,
    a_finished_step,
    half_a_lease,
    an_older_fence,
    an_unknown_step,
    a_message_again,
    a_message_consumed_again,
    an_entry_again,
    an_attempt_again,
    a_run_again,
    a_taken_key,
    a_stale_worker,
    a_heartbeat_unheard,
)

STUCK: tuple[dict[str, Any], ...] = (
    {"state": RunState.RUNNING},
    {"state": RunState.QUEUED},
    {"state": RunState.BLOCKED, "due_at": 10**17},
    {"state": RunState.STOPPING, "cause": StopCause.FAILURE},
    {"state": RunState.STOPPING, "cause": StopCause.CANCEL, "due_at": 10**17},
    {"state": RunState.COMPENSATING, "cause": StopCause.FAILURE},
    {"state": RunState.IDLE},
)
"""Runs that nothing will move, but for the one in its grace period and the one that was not started."""


async def a_used_key(store: Store, tenant: str) -> Any:
    """Two runs are born under one idempotency key: the first may be."""
    key = IdempotencyKey(tenant=tenant, operation="lie", key="used", fingerprint="f", run_id=STRANGER)
    births = [replace(newborn(tenant, run), rows=rows_of([key])) for run in (STRANGER, STRANGER.replace("0-7", "1-7"))]
    return [await _write(store, tenant, born.run.id, Write(new_runs=[born])) for born in births]


async def a_worker_again(store: Store, tenant: str) -> Any:
    """A worker is added under the id of another."""
    worker = (await store.list_workers(tenant))[0]
    [entry, *_] = await store.read_worker_journal(tenant, worker.id)
    try:
        await store.add_worker(replace(worker, no=0), entry)
    except StepkeepError as problem:
        return type(problem).__name__
    return "added"


async def stranded_runs(store: Store, tenant: str) -> Any:
    """Leave runs behind that nothing will move; the store must find just those."""
    born = [newborn(tenant, f"eeeeeeee-0000-7000-8000-{number:012}", **given) for number, given in enumerate(STUCK)]
    return (
        await _write(store, tenant, STRANGER, Write(new_runs=born)),
        await store.stuck_runs(),
        await store.stuck_runs(2),
    )


LAST_INVALID_WRITES: tuple[LastInvalidWrite, ...] = (stranded_runs, a_used_key, a_worker_again)
"""What would spoil a life, and so comes at its end."""


def newborn(tenant: str, run_id: str, **given: Any) -> NewRun:
    """A run that no definition stands behind, with one step that nothing will open."""
    run = Run(tenant=tenant, id=run_id, definition_id=0, **given)
    change, entry = _next(run)
    return NewRun(
        run=change.run,
        details=Details(
            tenant=tenant,
            run_id=run_id,
            workflow="lie",
            version=1,
            dialect="native",
            input=b"{}",
            correlation_id=run_id,
            created_at=1,
            created_by="liar",
            business_key=run.business_key,
        ),
        steps=(Step(tenant=tenant, run_id=run_id, no=0, queue=0),),
        entries=(entry,),
    )
