"""One change inside an open transaction: load, decide, load more if asked, write.

Reads take whole lists as JSON and writes use `executemany`, so a batch costs a few statements however many runs it has.
The caller owns the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import apsw
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Involved
from stepkeep.kernel.errors import Broken, Contended, InvariantBroken
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.store import columns, loading, writing
from stepkeep.store.bounds import check_write
from stepkeep.store.change import Decide, Loaded, More, NewRun, Propose, RunChange, RunKey, Want, Write
from stepkeep.store.columns import json_text
from stepkeep.store.limits import limit_writes
from stepkeep.store.reading import quarantined, unreadable
from stepkeep.store.rows import KeyWant, Mailbox
from stepkeep.store.sqlite import rows
from stepkeep.store.sqlite.deliveries import advance, begin, note_endings
from stepkeep.store.sqlite.people import load_authorities
from stepkeep.store.sqlite.rows import Row
from stepkeep.store.statements import load_statements
from stepkeep.store.writing import Put

SQL = load_statements("stepkeep.store.sqlite")

T = TypeVar("T")

QUARANTINED = columns.RUN_WIDTH
"""The index after a run's columns at which `lock_runs` tells whether the run is quarantined."""

MAX_ROUNDS = 10_000
"""Limit on rounds of loading: a callback that always asks for more becomes an error, not a hang."""


def change(
    connection: apsw.Connection,
    clock: Callable[[], int],
    wants: Sequence[Want],
    decide: Decide,
    propose: Propose | None,
) -> None:
    """Load, decide (again if more is needed), write."""
    loaded = Loaded(now=clock())
    load_wants(connection, wants, loaded)
    if propose is not None:
        load_proposals(connection, propose, loaded)
    for _ in range(MAX_ROUNDS):
        answer = decide(loaded)
        if isinstance(answer, Write):
            check_write(answer)
            write(connection, answer, loaded)
            return
        load_more(connection, answer, loaded)
    raise Broken(f"a change asked for more {MAX_ROUNDS} times without coming to a decision")


# -- load ------------------------------------------------------------------------------------------------------


def load_wants(connection: apsw.Connection, wants: Sequence[Want], loaded: Loaded) -> None:
    """Load runs and the rows that are asked for; runs that do not exist are left out."""
    if not wants:
        return
    _load_runs(connection, {want.key for want in wants} - loaded.runs.keys(), loaded)
    there = [want for want in wants if want.key in loaded.runs]
    whole = {want.key for want in there if want.whole} - loaded.whole
    waiting = {want.key for want in there if want.waiting} - loaded.waiting - loaded.whole - whole
    _load_steps(connection, [(*want.key, no) for want in there for no in want.steps], loaded)
    if whole:
        _keep_steps(_read_each(connection, SQL.load_all_steps, whole, loaded, "steps"), loaded)
        loaded.whole |= whole
    if waiting:
        _keep_steps(_read_each(connection, SQL.load_waiting_steps, waiting, loaded, "steps"), loaded)
    loaded.waiting |= {want.key for want in there if want.waiting}
    _drive(connection, loading.wanted_rows(there, loaded), loaded)
    if callers := [one for want in wants for one in want.people if one not in loaded.authorities]:
        loaded.authorities.update(load_authorities(connection, callers))
    if duties := {want.key for want in there if want.duties} - loaded.involved.keys():
        loaded.involved.update(load_involved(connection, duties))


def load_involved(connection: apsw.Connection, keys: Collection[RunKey]) -> dict[RunKey, Involved]:
    """The people behind runs."""
    return _drive(connection, loading.people_behind(keys), Loaded(now=0))


def load_proposals(connection: apsw.Connection, propose: Propose, loaded: Loaded) -> None:
    """Find claimable steps in claim order, and load them with their runs."""
    found = _shares(connection, propose, loaded.now) if propose.run is None else []
    shares = [key for key, _ in found] if propose.run is None else [propose.run] * propose.limit
    runs = set(shares)
    _load_runs(connection, runs - loaded.runs.keys(), loaded)
    if propose.run is not None and propose.run not in loaded.runs:
        return
    for key in runs - loaded.runs.keys() - loaded.barred.keys():
        loaded.barred[key] = unreadable("runs", key, (), "the run has steps and no row of its own")
    queues, lowest = json_text(list(propose.queues)), {}
    numbers: dict[RunKey, list[int]] = {}
    for key, no in found:
        numbers.setdefault(key, []).append(no)
    for key, size in loading.sizes(shares, loaded.barred).items():
        run = loaded.runs[key]
        if key in numbers and run.moving - run.leased == size:
            # Its shares are all the unclaimed steps that it has: one statement loads those of many such runs.
            lowest[key] = sorted(numbers[key])
            continue
        try:
            steps: list[Row] = connection.execute(SQL.load_claimable, (*key, loaded.now, queues, size)).fetchall()
        except UnicodeDecodeError as problem:
            loading.bar(loaded, "steps", key, problem)
            continue
        lowest[key] = [row[2] for row in steps]
        _keep_steps(steps, loaded)
    _load_steps(connection, [(*key, no) for key, known in lowest.items() for no in known], loaded)
    loading.fill(shares, lowest, loaded)


def _shares(connection: apsw.Connection, propose: Propose, now: int) -> list[tuple[RunKey, int]]:
    """Claimable steps in claim order, as (run, number)."""
    since = -(2**63) if propose.after is None else propose.after
    queries = [(queue, since, now, propose.limit) for queue in dict.fromkeys(propose.queues)]
    found: list[Row] = connection.executemany(SQL.propose_steps, queries).fetchall()
    if len(queries) > 1:
        # Each queue's rows come in claim order; the first of all queues are among the first of each.
        found.sort(key=lambda row: (-row[0], row[1], row[2], row[3]))
        del found[propose.limit :]
    return [((tenant, run_id), no) for _, _, run_id, no, tenant in found]


def load_more(connection: apsw.Connection, more: More, loaded: Loaded) -> None:
    """Load what the callback still needs."""
    load_wants(connection, more.wants, loaded)
    _drive(connection, loading.more_rows(more, loaded), loaded)
    if more.keys:
        load_mailboxes(connection, more.keys, loaded)
    _drive(connection, loading.locked_tenants(more, loaded), loaded)


def _drive(connection: apsw.Connection, loads: loading.Loads[T], loaded: Loaded) -> T:
    """Send each statement that a generator asks for, and give it the rows."""
    try:
        ask = next(loads)
        while True:
            statement = getattr(SQL, ask.statement)
            if ask.given is not None:
                found = connection.execute(statement, ask.given).fetchall()
            elif ask.table:
                found = _read_each(connection, statement, ask.keys, loaded, ask.table)
            else:
                found = _read(connection, statement, ask.keys)
            ask = loads.send(found)
    except StopIteration as ended:
        result: T = ended.value
        return result


def load_mailboxes(connection: apsw.Connection, wants: Sequence[KeyWant], loaded: Loaded) -> None:
    """Read what is known about business keys. The transaction holds the only write lock, so it holds every key."""
    keys = [want.business_key for want in wants]
    found = loaded.mailboxes
    found.update({key: Mailbox(known={}) for key in keys})
    for tenant, key, run_id in _read(connection, SQL.load_business_keys, keys):
        found[tenant, key].holder = run_id
    for tenant, key, count, size_bytes, last in _read(connection, SQL.measure_mailboxes, keys):
        mailbox = found[tenant, key]
        mailbox.count, mailbox.size_bytes, mailbox.last_number = count, size_bytes, last
    if ids := [(*want.business_key, one) for want in wants for one in want.ids]:
        for row in _read(connection, SQL.load_mailbox_messages, ids):
            found[row[0], row[1]].known[row[2]] = columns.mailbox_from(row)
    if kept := [want.business_key for want in wants if want.kept]:
        for row in _read(connection, SQL.load_kept_messages, kept):
            found[row[0], row[1]].kept += (columns.mailbox_from(row),)


def _read(connection: apsw.Connection, statement: str, wanted: Iterable[object]) -> list[Row]:
    return connection.execute(statement, (json_text(list(wanted)),)).fetchall()


def _read_each(
    connection: apsw.Connection, statement: str, wanted: Collection[tuple[Any, ...]], loaded: Loaded, table: str
) -> list[Row]:
    """Rows of several runs. Text that is not Unicode breaks the whole statement: then each run is read alone."""
    try:
        return _read(connection, statement, wanted)
    except UnicodeDecodeError:
        found: list[Row] = []
        for one in wanted:
            try:
                found += _read(connection, statement, [one])
            except UnicodeDecodeError as problem:
                loading.bar(loaded, table, one, problem)
        return found


def _load_runs(connection: apsw.Connection, keys: set[tuple[str, str]], loaded: Loaded) -> None:
    if keys:
        run_from = columns.run_from
        for row in _read_each(connection, SQL.lock_runs, keys, loaded, "runs"):
            key = (row[0], row[1])
            if row[QUARANTINED]:
                loaded.barred[key] = quarantined(key[1])
                continue
            try:
                loaded.runs[key] = run_from(row[:QUARANTINED])
            except Exception as problem:  # noqa: BLE001 - it is this run's alone
                loading.bar(loaded, "runs", row, problem)
            else:
                loaded.steps.setdefault(key, {})


def _load_steps(connection: apsw.Connection, wanted: list[tuple[str, str, int]], loaded: Loaded) -> None:
    steps = loaded.steps
    missing = [(tenant, run_id, no) for tenant, run_id, no in wanted if no not in steps[tenant, run_id]]
    if missing:
        _keep_steps(_read_each(connection, SQL.load_steps, missing, loaded, "steps"), loaded)


def _keep_steps(found: list[Row], loaded: Loaded) -> None:
    steps, step_from = loaded.steps, columns.step_from
    for row in found:
        try:
            steps[row[0], row[1]][row[2]] = step_from(row)
        except Exception as problem:  # noqa: BLE001 - it is this run's alone
            loading.bar(loaded, "steps", row, problem)


# -- write -----------------------------------------------------------------------------------------------------


def record(connection: apsw.Connection, now: int, what: Write, known: Loaded) -> None:
    """Write a decision whose rows are not locked: first the runs, which must be unchanged."""
    if what.new_runs and known.now > now:
        raise Contended("the start of a run is in the future: load again with locks")
    _write_runs(connection, what.runs, known)
    advance(connection, what.runs, now)
    note_endings(connection, [change.run for change in what.runs], now)
    hot, others = _in_two(what, known)
    found = _count(connection, SQL.update_step_hot_columns, [(*rows.step_hot_columns(step), now) for step in hot])
    found += _count(connection, SQL.update_standing_steps, [(*rows.step_row(step), now) for step in others])
    if found != len(what.steps):
        raise Contended("a lease has expired: load again with locks")
    write(connection, replace(what, runs=[], steps=[]), replace(known, now=now))


def write(connection: apsw.Connection, what: Write, loaded: Loaded) -> None:
    """Write everything, in an order that respects foreign keys."""
    every, many = what.every_row(), connection.executemany
    _put(connection, writing.before_runs(every))
    if what.new_runs:
        _write_new_runs(connection, what.new_runs, loaded.now)
        _put(connection, writing.with_runs(what.new_runs, every))
    if what.runs:
        _write_runs(connection, what.runs, loaded)
        advance(connection, what.runs, loaded.now)
        note_endings(connection, [change.run for change in what.runs], loaded.now)
    if what.new_steps:
        many(SQL.insert_steps, map(rows.step_row, what.new_steps))
    if what.steps:
        hot, others = _in_two(what, loaded)
        found = _count(connection, SQL.update_step_hot_columns, [(*rows.step_hot_columns(step), None) for step in hot])
        if found + _count(connection, SQL.update_steps, list(map(rows.step_row, others))) != len(what.steps):
            raise InvariantBroken("a step was to be changed that does not exist; nothing was written")
    if what.attempts:
        many(SQL.insert_attempts, map(rows.row_of, what.attempts))
    if what.entries:
        many(SQL.insert_journal, map(rows.row_of, what.entries))
    _put(connection, writing.after_runs(every), loaded.now)
    if what.limits:
        _drive(connection, limit_writes(what.limits), loaded)


def _put(connection: apsw.Connection, puts: Iterable[Put], now: int = 0) -> None:
    """Send rows, one after the other."""
    for put in puts:
        given = [row if isinstance(row, tuple) else columns.values_of(row) for row in put.rows]
        if put.is_timed:
            given = [(*values, now) for values in given]
        found = _count(connection, getattr(SQL, put.statement), given)
        if put.refusal is not None and found != len(given):
            refused, why = put.refusal
            raise refused(why)


def _write_runs(connection: apsw.Connection, changes: Sequence[RunChange], loaded: Loaded) -> None:
    unindexed: list[Row] = []
    updated: list[Row] = []
    for change in changes:
        run = change.run
        before = loaded.runs.get((run.tenant, run.id))
        within_indexes = before is None or _indexed(run) != _indexed(before)
        (updated if within_indexes else unindexed).append((*rows.row_of(run), change.was))
    found = _count(connection, SQL.update_run_unindexed_columns, unindexed)
    if found + _count(connection, SQL.update_runs, updated) != len(changes):
        raise Contended("another transaction changed a run: run the whole transaction again")


def _indexed(run: Run) -> tuple[object, ...]:
    """The columns of a run that indexes contain."""
    return (run.due_at, run.ended_at, run.cause)


def _in_two(what: Write, loaded: Loaded) -> tuple[list[Step], list[Step]]:
    """Split steps: those whose hot columns alone change and that were and are not claimable, and the others."""
    if not what.only_hot:
        return [], what.steps
    hot: list[Step] = []
    others: list[Step] = []
    for step in what.steps:
        before = loaded.steps.get((step.tenant, step.run_id), {}).get(step.no)
        stays_out = before is not None and before.ready_at is None and step.ready_at is None
        (hot if stays_out else others).append(step)
    return hot, others


def _write_new_runs(connection: apsw.Connection, new: Sequence[NewRun], now: int) -> None:
    many = connection.executemany
    many(SQL.insert_runs, (rows.row_of(one.run) for one in new))
    many(SQL.insert_run_details, (rows.row_of(one.details) for one in new))
    many(SQL.insert_steps, (rows.step_row(step) for one in new for step in one.steps))
    many(SQL.insert_journal, (rows.row_of(entry) for one in new for entry in one.entries))
    begin(connection, new, now)
    note_endings(connection, [one.run for one in new], now)


def _count(connection: apsw.Connection, statement: str, bindings: list[Row]) -> int:
    """Run a statement for each row; returns how many rows it changed."""
    if not bindings:
        return 0
    before = connection.total_changes()
    connection.executemany(statement, bindings)
    return connection.total_changes() - before
