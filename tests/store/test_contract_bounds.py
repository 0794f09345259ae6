"""Every integer column: the largest value that the engine may write fits and is read back; one more is refused.

It is refused before anything is written, by the same error on every store, whichever way the write goes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.store.test_contract_gates import a_gate, a_vote
from tests.store.test_contract_mailbox import sent
from tests.store.test_contract_rows import FULL_ATTEMPT, FULL_OUTBOX
from tests.store.values import (
    TENANT,
    a_checkpoint,
    a_message,
    a_run,
    a_step,
    a_worker,
    an_entry,
    details,
    finished,
    key,
    load,
    moved,
    new_run,
    ready,
    run_id,
    running,
    save,
    settled,
    want,
    writes,
)

from stepkeep.definition import bounds as written
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.bounds import BIGINT, INT, LAST_MOMENT, LAST_SEQ, MAX_PRIORITY, MAX_VERSION, PLACES
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Attempt, Run, Step, rows_of
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.store.bounds import INTEGERS
from stepkeep.store.change import Basis, Lease, NewRun, Write
from stepkeep.store.columns import TABLES
from stepkeep.store.protocol import Store
from stepkeep.store.records import WorkerChange

Reading = Callable[[Store], Awaitable[Any]]
Case = Callable[[int], tuple[Write, Reading]]

PEOPLE = (
    "tenants",
    "principals",
    "memberships",
    "delegations",
    "api_keys",
    "sessions",
    "audit",
    "people_journal",
    "policies",
    "settings",
)
"""Their bounds are tried in `test_contract_people`, `test_contract_policies` and `test_contract_settings`."""

SENDING = ("deliveries", "sinks", "delivery_actions")
"""Those of cursors are tried in `test_contract_deliveries`; the others have numbers of cursors, and times."""

LEASED = {"worker": 1, "claimed_at": 1, "due_at": 9, "fence": 1}


def test_the_bounds_are_those_of_definitions() -> None:
    assert (MAX_PRIORITY, MAX_VERSION) == (written.MAX_PRIORITY, written.MAX_VERSION)
    assert PLACES == 2 * written.MAX_STEPS + 1
    assert max(written.RUN_TIMEOUT[1], written.DEADLINE[1]) < LAST_MOMENT


def test_the_last_entry_of_a_journal_leaves_room_for_the_places_in_it() -> None:
    number = INTEGERS["messages"]["number"]
    assert (LAST_SEQ << 20) + (1 << 20) - 1 == number.high == INTEGERS["steps"]["settled"].high


# -- where each column can be given a value --------------------------------------------------------------------------
def born(**columns: Any) -> tuple[Write, Reading]:
    """A new run with these values in its row."""
    state = RunState.SUCCEEDED if "ended_at" in columns else RunState.RUNNING
    run = a_run(1, state, **columns)

    async def read(store: Store) -> Run:
        found = await store.read_run(*key(1))
        assert found is not None
        return found.run

    return Write(new_runs=[new_run(1, run=run)]), read


def step_born(step: Step, **columns: Any) -> tuple[Write, Reading]:
    async def read(store: Store) -> Step:
        [found] = await store.read_steps(*key(1))
        return found

    return Write(new_runs=[new_run(1, (replace(step, **columns),))]), read


def first(read: Callable[[Store], Awaitable[list[Any]]]) -> Reading:
    async def reading(store: Store) -> Any:
        [found] = await read(store)
        return found

    return reading


def beside_a_run(*rows: Any, attempts: Sequence[Attempt] = ()) -> Write:
    return Write(new_runs=[new_run(1)], attempts=list(attempts), rows=rows_of(rows))


def brought(**given: Any) -> Write:
    return Write(new_runs=[new_run(1, **given)])


def an_attempt(**columns: Any) -> tuple[Write, Reading]:
    attempt = replace(FULL_ATTEMPT, **columns)
    return beside_a_run(attempts=[attempt]), first(lambda store: store.read_attempts(*key(1)))


def a_recorded(**columns: Any) -> tuple[Write, Reading]:
    checkpoint = replace(a_checkpoint(1, "a"), **columns)
    return beside_a_run(checkpoint), first(lambda store: store.newest_checkpoints(*key(1)))


def a_told(**columns: Any) -> tuple[Write, Reading]:
    return brought(outbox=(replace(FULL_OUTBOX, **columns),)), first(lambda store: store.read_outbox(*key(1)))


def an_opening(**columns: Any) -> tuple[Write, Reading]:
    ended = {"outcome": "approved"} if "closed_at" in columns else {}
    return brought(gates=(replace(a_gate(1), **columns, **ended),)), first(lambda store: store.read_gates(*key(1)))


def a_decision(**columns: Any) -> tuple[Write, Reading]:
    vote = replace(a_vote(1, "ann"), **columns)
    return beside_a_run(vote), first(lambda store: store.read_votes(*key(1)))


def in_the_inbox(**columns: Any) -> tuple[Write, Reading]:
    message = replace(a_message(1, "m", 1), **columns)
    return brought(messages=(message,)), first(lambda store: store.read_messages(*key(1)))


def in_the_mailbox(**columns: Any) -> tuple[Write, Reading]:
    """A kept message; it is forgotten no earlier than it expires."""
    message = sent("m-1", **{"arrived_at": 0, "expires_at": 0, "forget_at": LAST_MOMENT, **columns})
    return beside_a_run(message), first(lambda store: store.list_mailbox(TENANT))


def sealed(seq: int = 1, at: int = 1) -> tuple[Write, Reading]:
    """An entry; its body, which must be readable too, holds as much as JSON can."""
    entry = replace(an_entry(run_id(1), min(seq, BIGINT), at=min(at, BIGINT)), seq=seq, at=at)

    async def read(store: Store) -> SealedEntry:
        [found] = await store.read_journal(*key(1), after=entry.seq - 1)
        return found

    return brought(entries=(entry,)), read


def described(**columns: Any) -> tuple[Write, Reading]:
    async def read(store: Store) -> Any:
        return (await store.read_details([key(1)]))[key(1)]

    return brought(details=details(1, **columns)), read


def counted(column: str) -> Case:
    """A counter of a run, beside what the schema wants with it."""
    return lambda value: born(**{"moving": value, column: value} if column == "leased" else {column: value})


CASES: dict[tuple[str, str], Case] = {
    **{("runs", column): counted(column) for column in INTEGERS["runs"]},
    ("run_details", "version"): lambda value: described(version=value),
    ("run_details", "created_at"): lambda value: described(created_at=value),
    ("run_details", "policy_revision"): lambda value: described(policy_revision=value),
    ("steps", "no"): lambda value: step_born(a_step(1), no=value),
    ("steps", "queue"): lambda value: step_born(a_step(1), queue=value),
    ("steps", "priority"): lambda value: step_born(a_step(1), priority=value),
    ("steps", "ready_at"): lambda value: step_born(ready(1), ready_at=value),
    ("steps", "due_at"): lambda value: step_born(a_step(1, state=StepState.RETRYING), due_at=value),
    ("steps", "fence"): lambda value: step_born(running(1, due_at=9), fence=value),
    ("steps", "worker"): lambda value: step_born(running(1, due_at=9), worker=value),
    ("steps", "claimed_at"): lambda value: step_born(running(1, due_at=9), claimed_at=value),
    ("steps", "attempts"): lambda value: step_born(a_step(1), attempts=value),
    ("steps", "losses"): lambda value: step_born(a_step(1), losses=value),
    ("steps", "unmet"): lambda value: step_born(a_step(1), unmet=value),
    ("steps", "settled"): lambda value: step_born(settled(a_step(1)), settled=value),
    **{
        ("attempts", column): (lambda value, column=column: an_attempt(**{column: value}))  # type: ignore[misc]
        for column in INTEGERS["attempts"]
    },
    ("journal", "seq"): lambda value: sealed(seq=value),
    ("journal", "at"): lambda value: sealed(at=value),
    **{
        ("checkpoints", column): (lambda value, column=column: a_recorded(**{column: value}))  # type: ignore[misc]
        for column in INTEGERS["checkpoints"]
    },
    **{
        ("messages", column): (lambda value, column=column: in_the_inbox(**{column: value}))  # type: ignore[misc]
        for column in INTEGERS["messages"]
    },
    **{
        ("mailbox", column): (lambda value, column=column: in_the_mailbox(**{column: value}))  # type: ignore[misc]
        for column in INTEGERS["mailbox"]
    },
    **{
        ("outbox", column): (lambda value, column=column: a_told(**{column: value}))  # type: ignore[misc]
        for column in INTEGERS["outbox"]
    },
    **{
        ("gates", column): (lambda value, column=column: an_opening(**{column: value}))  # type: ignore[misc]
        for column in INTEGERS["gates"]
    },
    **{
        ("decisions", column): (lambda value, column=column: a_decision(**{column: value}))  # type: ignore[misc]
        for column in INTEGERS["decisions"]
    },
}
COUNTED_BY_THE_DATABASE = {
    *(("definitions", "id"), ("queues", "id"), ("workers", "no"), ("quarantine", "id"), ("migrations", "version")),
    *(("jobs", "seq"), ("audit_heads", "seq"), ("limit_keys", "seq"), ("limit_keys", "held"), ("limit_holds", "seq")),
    *(("stream_rows", "seq"), ("stream_rows", "total")),
}
BY_THE_CLOCK = {
    *(("definitions", "published_at"), ("schemas", "published_at"), ("migrations", "applied_at")),
    *(("quarantine", "quarantined_at"), ("quarantine", "released_at")),
    ("worker_reports", "reported_at"),
    *(("children", column) for column in ("requested_at", "started_at", "recalled_at", "ended_at", "todo_at")),
    ("quota_runs", "taken_at"),
    *(("conversations", "changed_at"), ("conversation_items", "at")),
    *(("slots", "asked_at"), ("slots", "granted_at"), ("resource_holds", "held_at")),
    *(("limit_holds", "held_at"), ("limit_waits", "asked_at"), ("limit_keys", "used_at"), ("limit_lines", "due_at")),
    ("limit_keys", "tat"),
    ("stream_rows", "at"),
    *(("jobs", "created_at"), ("jobs", "lease_until"), ("jobs", "ended_at")),
}
COPIED = {
    *(("conversations", column) for column in ("items", "size_bytes")),
    ("conversation_items", "ordinal"),
    ("payload_chunks", "no"),
    *(("children", column) for column in ("no", "activation", "version")),
    *(("adoptions", "no"), ("adoptions", "owned")),
    *(("slots", "most"), ("slots", "priority")),
    *(("resource_holds", column) for column in ("no", "fence", "units")),
    *(("limit_holds", column) for column in ("no", "fence", "weight")),
    *(("limit_waits", column) for column in ("no", "queue", "priority")),
    ("limit_lines", "queue"),
    *(("stream_rows", column) for column in ("no", "fence", "start", "count", "after_fence", "after_place")),
    ("attempt_evidence", "no"),
    ("attempt_evidence", "fence"),
    ("worker_reports", "worker"),
    ("audit_heads", "forgotten"),
    ("signed_heads", "entries"),
    ("signed_heads", "signed_at"),
}
"""Keys of rows that hold them within their bounds already."""
TRIGGERS = ("triggers", "firings", "backfills")
ON_THEIR_OWN = {
    ("definitions", "version"),
    *(
        (table, column)
        for table in ("workers", "worker_journal", *PEOPLE, *TRIGGERS, *SENDING)
        for column in INTEGERS[table]
    ),
}


def test_every_integer_column_is_driven_to_its_bounds() -> None:
    listed = {(table, column) for table, columns in INTEGERS.items() for column in columns}
    assert listed == set(CASES) | COUNTED_BY_THE_DATABASE | BY_THE_CLOCK | ON_THEIR_OWN | COPIED


def value_of(write: Write, table: str, column: str) -> Any:
    new: NewRun = write.new_runs[0]
    rows = {
        "runs": [new.run],
        "run_details": [new.details],
        "steps": new.steps,
        "journal": list(new.entries),
        "attempts": write.attempts,
    }.get(table) or write.every_row().of(TABLES[table])
    return getattr(rows[0], column)


@pytest.mark.parametrize(("table", "column"), CASES, ids=str)
async def test_the_largest_and_the_smallest_value_fit_and_one_more_is_refused(
    store: Store, table: str, column: str
) -> None:
    bounds, case = INTEGERS[table][column], CASES[table, column]
    for beyond in (bounds.high + 1, 2**63, 10**30, *((bounds.low - 1,) if bounds.low >= 0 else ())):
        write, _ = case(beyond)
        with pytest.raises(InvalidInput, match=rf"\.({column}|moving) would be {beyond}; it is from"):
            await store.change((), writes(write))
        with pytest.raises(InvalidInput, match=rf"\.({column}|moving) would be {beyond}; it is from"):
            await store.write_if_unchanged(write, await load(store), Basis.REMEMBERED)
        assert await store.read_run(*key(1)) is None
    write, read = case(bounds.high)
    await store.change((), writes(write))
    assert getattr(await read(store), column) == bounds.high == value_of(write, table, column)


SMALLEST = {"fence": 1, "seq": 1, "queue": 1}
"""Where the schema asks for more than zero."""


@pytest.mark.parametrize(("table", "column"), CASES, ids=str)
async def test_the_smallest_value_fits(store: Store, table: str, column: str) -> None:
    bounds = INTEGERS[table][column]
    smallest = max(bounds.low, SMALLEST.get(column, 0)) if column != "priority" else bounds.low
    write, read = CASES[table, column](smallest)
    await store.change((), writes(write))
    assert getattr(await read(store), column) == smallest


@pytest.mark.parametrize("kind", ["text", "float", "bool"])
async def test_what_is_no_whole_number_is_refused_by_name(store: Store, kind: str) -> None:
    odd: Any = {"text": "7", "float": 7.0, "bool": True}[kind]
    await save(store, new_run(1, (ready(1),)))
    loaded = await load(store, want(1, steps=(0,)))
    change, entry = moved(loaded.runs[key(1)])
    if kind == "bool":
        write = Write(new_runs=[new_run(2, run=a_run(2, priority=odd))])
    else:
        step = replace(loaded.steps[key(1)][0], attempts=odd)
        write = Write(runs=[change], steps=[step], entries=[entry])
    with pytest.raises(InvalidInput, match="is a whole number, not"):
        await store.change([want(1)], writes(write))
    assert (await load(store, want(1))).runs == loaded.runs


# -- rows that are there already -------------------------------------------------------------------------------------
async def test_a_run_at_the_end_of_every_range_goes_on(store: Store) -> None:
    """Updates go other ways than insertions: as whole rows, as moves, and recorded without a look."""
    run = a_run(1, moving=INT, leased=INT, open=INT, failed=INT, inbox=INT, seq=LAST_SEQ - 3, moved_at=LAST_MOMENT)
    step = running(1, due_at=LAST_MOMENT, fence=INT - 1, worker=INT, attempts=INT, losses=INT, unmet=INT)
    await save(store, new_run(1, (step,), run=run))
    loaded = await load(store, want(1, steps=(0,)))
    assert loaded.steps[key(1)][0] == step

    change, entry = moved(loaded.runs[key(1)])
    step = replace(step, fence=INT)
    await store.change([want(1)], writes(Write(runs=[change], steps=[step], entries=[entry], only_hot=True)))
    loaded = await load(store, want(1, steps=(0,)))
    assert (loaded.runs[key(1)], loaded.steps[key(1)][0]) == (change.run, step)

    change, entry = moved(change.run)
    ended = replace(settled(step), settled=(LAST_SEQ << 20) + 7)
    await store.write_if_unchanged(Write(runs=[change], steps=[ended], entries=[entry]), loaded, Basis.REMEMBERED)
    change, entry = finished(change.run)
    change = replace(change, run=replace(change.run, ended_at=LAST_MOMENT))
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry])))
    found = await store.read_run(*key(1))
    assert found is not None
    assert found.run == change.run
    assert found.run.seq == LAST_SEQ
    assert await store.read_steps(*key(1)) == [ended]


@pytest.mark.parametrize("only_hot", [True, False])
async def test_a_change_beyond_a_bound_is_refused_and_leaves_the_run_as_it_was(store: Store, only_hot: bool) -> None:
    step = running(1, due_at=LAST_MOMENT, fence=INT)
    await save(store, new_run(1, (step,), run=a_run(1, moving=1, leased=1, moved_at=5)))
    loaded = await load(store, want(1, steps=(0,)))
    change, entry = moved(loaded.runs[key(1)])
    for wrong in (
        Write(runs=[change], steps=[replace(step, fence=INT + 1)], entries=[entry]),
        Write(runs=[replace(change, run=replace(change.run, seq=LAST_SEQ + 1))], entries=[entry]),
        Write(runs=[replace(change, run=replace(change.run, moved_at=LAST_MOMENT + 1))], entries=[entry]),
        Write(runs=[change], attempts=[replace(FULL_ATTEMPT, number=INT + 1)], entries=[entry]),
        Write(runs=[change], entries=[an_entry(run_id(1), 2, at=-1)]),
    ):
        write = replace(wrong, only_hot=only_hot)
        with pytest.raises(InvalidInput, match=r"Nothing was written\."):
            await store.change([want(1)], writes(write))
        with pytest.raises(InvalidInput, match=r"Nothing was written\."):
            await store.write_if_unchanged(write, loaded, Basis.REMEMBERED)
    after = await load(store, want(1, steps=(0,)))
    assert (after.runs, after.steps) == (loaded.runs, loaded.steps)


async def test_messages_arrive_after_five_thousand_entries(store: Store) -> None:
    """The number of a message grows with the journal: 32 bits ended at entry 2,047."""
    await save(store, new_run(1))
    for seq in (2047, 2048, 5000, 2**31, LAST_SEQ):
        message = a_message(1, f"after-{seq}", seq << 20)
        await store.change([want(1)], writes(Write(rows=rows_of([message]))))
        [*_, last] = (await load(store, want(1, inbox=True))).inbox[key(1)]
        assert last == message


async def test_the_longest_lease_is_renewed_to_the_end_of_its_time(store: Store) -> None:
    await save(store, new_run(1, (running(1, due_at=LAST_MOMENT - 1, fence=INT),), run=a_run(1, moving=1, leased=1)))
    assert len(await store.renew([Lease(TENANT, run_id(1), 0, INT, written.LEASE[1])])) == 1


# -- workers and definitions -----------------------------------------------------------------------------------------
WORKER_COLUMNS = [column for column in INTEGERS["workers"] if column != "no"]


@pytest.mark.parametrize("column", WORKER_COLUMNS)
async def test_a_worker_fits_up_to_the_bound_of_each_column(store: Store, column: str) -> None:
    high, entry = INTEGERS["workers"][column].high, an_entry("w-1", 1)
    for beyond in (high + 1, 2**63):
        with pytest.raises(InvalidInput, match=rf"workers\.{column} would be {beyond}"):
            await store.add_worker(a_worker(**{column: beyond}), entry)
    added = await store.add_worker(a_worker(**{column: high}), entry)
    assert await store.find_worker(TENANT, "w-1") == added
    assert getattr(added, column) == high
    with pytest.raises(InvalidInput, match=rf"workers\.{column} would be {high + 1}"):
        await store.change_workers(
            [WorkerChange(was=added.seq, worker=replace(added, **{column: high + 1}), entry=None)]
        )


@pytest.mark.parametrize("column", INTEGERS["worker_journal"])
async def test_the_journal_of_a_worker_fits_up_to_its_bounds(store: Store, column: str) -> None:
    high, entry = INTEGERS["worker_journal"][column].high, an_entry("w-1", 1)
    with pytest.raises(InvalidInput, match=rf"worker_journal\.{column} would be"):
        await store.add_worker(a_worker(), replace(entry, **{column: high + 1}))
    kept = replace(entry, **{column: high})
    await store.add_worker(a_worker(), kept)
    assert await store.read_worker_journal(TENANT, "w-1") == [kept]


async def test_the_version_of_a_definition_fits_up_to_its_bound(store: Store) -> None:
    async def publish(version: int) -> Any:
        return await store.publish(TENANT, "big", version, "native", "d", b"{}", (), "ann")

    for beyond in (0, MAX_VERSION + 1, 2**31, 2**63):
        with pytest.raises(InvalidInput, match=rf"definitions\.version would be {beyond}"):
            await publish(beyond)
    assert await store.list_definitions(TENANT) == []
    assert (await publish(MAX_VERSION)).version == MAX_VERSION
    assert (await publish(1)).version == 1
