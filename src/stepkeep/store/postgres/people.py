"""What a decision loads of people in PostgreSQL, and how a change of them is written. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.store.bounds import check_people
from stepkeep.store.columns import values_of
from stepkeep.store.people import SAVES, loading
from stepkeep.store.postgres.connections import Connection, execute, fetch
from stepkeep.store.principals import MakeChange
from stepkeep.store.statements import load_statements

SQL = load_statements("stepkeep.store.postgres")


async def load_authorities(connection: Connection, callers: Sequence[Caller]) -> dict[Caller, Authority]:
    """What these callers bring to a decision, from the rows as they are now."""
    statements = loading(callers)
    try:
        name, wanted = next(statements)
        while True:
            tenants, names = zip(*wanted, strict=True)
            name, wanted = statements.send(await fetch(connection, getattr(SQL, name), tenants, names))
    except StopIteration as ended:
        authorities: dict[Caller, Authority] = ended.value
        return authorities


async def share_people(connection: Connection, callers: Sequence[Caller], clock_offset: int) -> int:
    """Let no change of these callers' tenants' people commit before this transaction ends; returns the clock."""
    tenants = list(dict.fromkeys(caller.tenant for caller in callers))
    shared = await fetch(connection, SQL.share_people, tenants, clock_offset)
    now: int = shared[-1][1]
    return now


async def write_people(connection: Connection, tenant: str, make: MakeChange, clock_offset: int) -> None:
    """Lock, read the clock and write. The entry comes first: its sequence number may be taken."""
    [(_, now)] = await fetch(connection, SQL.lock_people, tenant, clock_offset)
    change = make(now)
    check_people(change)
    await execute(connection, SQL.insert_people_journal, *values_of(change.entry))
    for row in change.rows():
        await execute(connection, getattr(SQL, SAVES[type(row)]), *values_of(row))
