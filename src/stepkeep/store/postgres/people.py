"""What a decision loads of people in PostgreSQL, and how a change of them is written. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from stepkeep.kernel.authority import Authority, Caller
from stepkeep.store.columns import people_values
from stepkeep.store.people import SAVES, loading
from stepkeep.store.postgres.connections import Connection, execute, fetch
from stepkeep.store.principals import PeopleChange
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


async def write_people(connection: Connection, change: PeopleChange) -> None:
    """Write the entry first: its sequence number may be taken."""
    await execute(connection, SQL.insert_people_journal, *people_values(change.entry))
    for row in change.rows():
        await execute(connection, getattr(SQL, SAVES[type(row)]), *people_values(row))
