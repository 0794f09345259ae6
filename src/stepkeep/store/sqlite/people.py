"""What a decision loads of people in SQLite, and how a change of them is written. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.store.bounds import check_people
from stepkeep.store.columns import json_text, values_of
from stepkeep.store.people import SAVES, loading
from stepkeep.store.principals import MakeChange
from stepkeep.store.statements import load_statements

SQL = load_statements("stepkeep.store.sqlite")


def load_authorities(connection: apsw.Connection, callers: Sequence[Caller]) -> dict[Caller, Authority]:
    """What these callers bring to a decision, from the rows as they are now."""
    statements = loading(callers)
    try:
        name, wanted = next(statements)
        while True:
            found = connection.execute(getattr(SQL, name), (json_text(list(wanted)),)).fetchall()
            name, wanted = statements.send(found)
    except StopIteration as ended:
        authorities: dict[Caller, Authority] = ended.value
        return authorities


def write_people(connection: apsw.Connection, clock: Callable[[], int], make: MakeChange) -> None:
    """Write at the time of this transaction, which no other one shares. The entry comes first: its sequence number may
    be taken."""
    change = make(clock())
    check_people(change)
    connection.execute(SQL.insert_people_journal, values_of(change.entry))
    for row in change.rows():
        connection.execute(getattr(SQL, SAVES[type(row)]), values_of(row))
