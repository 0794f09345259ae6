"""Rows for the contract suite: small, whole and legal unless a test says otherwise."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.machine.journal import Cause, Entry, Hop, SealedEntry, seal
from stepkeep.kernel.machine.rows import Checkpoint, Consumed, Details, Message, Rows, Run, Step, Worker, rows_of
from stepkeep.kernel.machine.states import RunState, StepState, StopCause, WorkerState
from stepkeep.store.change import Decide, Loaded, More, NewRun, RunChange, RunKey, Want, Write
from stepkeep.store.listing import TROUBLED
from stepkeep.store.protocol import Store

TENANT = "acme"
QUEUE = 7
SECOND = 1_000_000
WORKER = 3


def run_id(number: int) -> str:
    """Ids grow with the number, as those of real runs do with time."""
    return f"01900000-0000-7000-8000-{number:012d}"


def key(number: int) -> RunKey:
    return (TENANT, run_id(number))


def an_entry(run: str, seq: int, head: bytes = b"", at: int = 1) -> SealedEntry:
    hops = (Hop(-1, "started", "idle", "queued"),)
    return seal(Entry(TENANT, run, seq, at, (Cause("RunStarted", "user:ann"),), hops), head)


def a_step(number: int, no: int = 0, **given: Any) -> Step:
    return Step(**{"tenant": TENANT, "run_id": run_id(number), "no": no, "queue": QUEUE, **given})


def ready(number: int, no: int = 0, at: int = 1, **given: Any) -> Step:
    return a_step(number, no, state=StepState.READY, ready_at=at, **given)


def running(number: int, no: int = 0, *, due_at: int, fence: int = 1, **given: Any) -> Step:
    lease = {"worker": WORKER, "claimed_at": 1, "due_at": due_at, "fence": fence}
    return a_step(number, no, **{"state": StepState.RUNNING, **lease, **given})


def settled(step: Step, state: StepState = StepState.SUCCEEDED, **changes: Any) -> Step:
    nothing = {"ready_at": None, "due_at": None, "worker": None, "claimed_at": None}
    return replace(step, state=state, settled=2 << 20, **nothing, **changes)


def a_run(number: int, state: RunState = RunState.RUNNING, **given: Any) -> Run:
    """A run that has made its first journal entry."""
    head = an_entry(run_id(number), 1).hash
    if state in TROUBLED:
        given.setdefault("cause", StopCause.FAILURE)
    return Run(
        **{"tenant": TENANT, "id": run_id(number), "definition_id": 1, "state": state, "seq": 1, "head": head, **given}
    )


def details(number: int, **given: Any) -> Details:
    return Details(
        **{
            "tenant": TENANT,
            "run_id": run_id(number),
            "workflow": "onboarding",
            "version": 3,
            "dialect": "native",
            "input": b'{"email":"a@b.c"}',
            "correlation_id": f"order-{number}",
            "created_at": 1,
            "created_by": "user:ann",
            **given,
        }
    )


def new_run(number: int, steps: Iterable[Step] = (), *, run: Run | None = None, **given: Any) -> NewRun:
    """A new run. What is given beside its own fields are its other rows: one, or several of a type."""
    own = {name: given.pop(name) for name in ("details", "entries") if name in given}
    return NewRun(
        **{
            "run": run or a_run(number),
            "details": details(number, business_key=run.business_key if run else None),
            "steps": tuple(steps),
            "entries": (an_entry(run_id(number), 1),),
            "rows": brought(*given.values()),
            **own,
        }
    )


def brought(*given: Any) -> Rows:
    """Rows by their types. None of them may be there."""
    lists = [[one] if isinstance(one, msgspec.Struct) else one or () for one in given]
    return rows_of(row for rows in lists for row in rows)


def consumed(message: Message) -> Consumed:
    """That the step takes the message which the row names."""
    assert message.consumed_by is not None
    return Consumed(tenant=message.tenant, run_id=message.run_id, id=message.id, consumed_by=message.consumed_by)


def a_message(number: int, message_id: str, place: int, **given: Any) -> Message:
    return Message(
        **{
            "tenant": TENANT,
            "run_id": run_id(number),
            "id": message_id,
            "number": place,
            "name": "paid",
            "payload": b'{"amount":12}',
            "sender": "user:bob",
            "arrived_at": 5,
            **given,
        }
    )


def a_checkpoint(number: int, name: str, **given: Any) -> Checkpoint:
    about = {"tenant": TENANT, "run_id": run_id(number), "no": 0, "name": name, "fence": 1, "seq": 2, "at": 5}
    return Checkpoint(**{**about, "value": b'{"id" : 7}', **given})


def a_worker(worker_id: str = "w-1", state: WorkerState = WorkerState.IDLE, **given: Any) -> Worker:
    return Worker(
        **{
            "tenant": TENANT,
            "id": worker_id,
            "no": 0,
            "state": state,
            "incarnation": 1,
            "capacity": 4,
            "capabilities": ("gpu", "eu"),
            "queues": (1, 2),
            "heard_at": 1,
            "started_at": 1,
            "seq": 1,
            "head": an_entry(worker_id, 1).hash,
            **given,
        }
    )


def want(number: int, **given: Any) -> Want:
    return Want(tenant=TENANT, run_id=run_id(number), **given)


def writes(what: Write) -> Decide:
    return lambda loaded: what


async def save(store: Store, *new: NewRun) -> None:
    await store.change((), writes(Write(new_runs=list(new))))


async def load(store: Store, *wants: Want, more: More | None = None) -> Loaded:
    """What a change that writes nothing gets to see."""
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> More | Write:
        seen.append(loaded)
        return Write() if more is None or len(seen) > 1 else more

    await store.change(wants, decide)
    return seen[-1]


def moved(run: Run, **changes: Any) -> tuple[RunChange, SealedEntry]:
    """A run's next row and the entry that goes with it."""
    entry = an_entry(run.id, run.seq + 1, run.head)
    return RunChange(was=run.seq, run=replace(run, seq=entry.seq, head=entry.hash, **changes)), entry


def finished(run: Run, state: RunState = RunState.SUCCEEDED) -> tuple[RunChange, SealedEntry]:
    cause = StopCause.FAILURE if state in TROUBLED else None
    return moved(run, state=state, cause=cause, ended_at=9, due_at=None, open=0, moving=0, leased=0, undoing=0)
