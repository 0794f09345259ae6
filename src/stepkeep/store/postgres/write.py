"""Writing a decision inside an open transaction: one statement for what nearly every change writes, others as needed.

Every value was decided elsewhere; here they only become columns. Rows that are not where they were left raise, and
the caller rolls back.
"""

from __future__ import annotations

from stepkeep.errors import Contended, InvariantBroken
from stepkeep.kernel.states import RUN_TERMINAL
from stepkeep.store.postgres import columns
from stepkeep.store.postgres.arrays import Bytes, ids, names, numbers
from stepkeep.store.postgres.connections import Connection, execute, fetch
from stepkeep.store.protocol import NewRun, Write
from stepkeep.store.statements import load_statements

SQL = load_statements("stepkeep.store.postgres")


async def write(connection: Connection, what: Write) -> None:
    """Write everything, in an order in which each part finds what it rests on."""
    if what.released_keys:
        tenants, keys = zip(*what.released_keys, strict=True)
        await execute(connection, SQL.release_business_keys, tenants, keys)
    if what.new_runs:
        await _insert_runs(connection, what.new_runs)
    if what.runs or what.steps or what.attempts or what.entries or what.new_runs:
        await _write_hot(connection, what)
    if what.new_steps:
        await execute(connection, SQL.insert_steps, *columns.step_columns(what.new_steps))
    if messages := [*(one for new in what.new_runs for one in new.messages), *what.messages]:
        blob = Bytes()
        given = columns.message_columns(messages, blob)
        await execute(connection, SQL.insert_messages, blob.joined(), *given)
    if what.consumed:
        await _consume(connection, what)
    if outbox := [*(one for new in what.new_runs for one in new.outbox), *what.outbox]:
        blob = Bytes()
        given = columns.outbox_columns(outbox, blob)
        await execute(connection, SQL.insert_outbox, blob.joined(), *given)


async def _write_hot(connection: Connection, what: Write) -> None:
    runs = [change.run for change in what.runs]
    entries = [*(new.entry for new in what.new_runs), *what.entries] if what.new_runs else what.entries
    blob = Bytes()
    given = (
        numbers([change.was for change in what.runs]),
        *columns.run_columns(runs, blob),
        *columns.step_columns(what.steps),
        *columns.attempt_columns(what.attempts, blob),
        *columns.entry_columns(entries, blob),
    )
    [(changed_runs, changed_steps)] = await fetch(connection, SQL.write_hot, blob.joined(), *given)
    if changed_runs != len(runs):
        raise Contended("a run was changed by somebody else meanwhile: run the whole transaction again")
    if changed_steps != len(what.steps):
        raise InvariantBroken("a step was to be changed that does not exist; nothing was written")


async def _insert_runs(connection: Connection, new: list[NewRun]) -> None:
    runs = [one.run for one in new]
    blob = Bytes()
    given = (
        numbers([run.definition_id for run in runs]),
        *columns.run_columns(runs, blob),
        *columns.details_columns([one.details for one in new], blob),
    )
    await execute(connection, SQL.insert_runs, blob.joined(), *given)
    if steps := [step for one in new for step in one.steps]:
        await execute(connection, SQL.insert_steps, *columns.step_columns(steps))
    if promises := [one.idempotency for one in new if one.idempotency is not None]:
        rows = [(one.tenant, one.operation, one.key, one.fingerprint) for one in promises]
        promised = ids([one.run_id for one in promises])
        await execute(connection, SQL.insert_idempotency_keys, *zip(*rows, strict=True), promised)
    live = [run for run in runs if run.business_key is not None and run.state not in RUN_TERMINAL]
    if live:
        tenants, keys = [run.tenant for run in live], [run.business_key for run in live]
        await execute(connection, SQL.insert_business_keys, tenants, keys, ids([run.id for run in live]))


async def _consume(connection: Connection, what: Write) -> None:
    rows = [(one.tenant, one.run_id, one.id, one.consumed_by) for one in what.consumed]
    tenants, run_ids, messages, consumers = zip(*rows, strict=True)
    taken = await fetch(connection, SQL.consume_messages, names(tenants), ids(run_ids), messages, numbers(consumers))
    if len(taken) != len(rows):
        raise Contended("a message was consumed by somebody else: run the whole transaction again")
