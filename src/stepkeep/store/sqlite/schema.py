"""The schema of one SQLite file: which migrations it has, and bringing it up to date.

Both functions run inside a transaction of the caller; the file's write lock is the lock of the migration.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from stepkeep.store.migrations import Applied, as_pairs, migrations_for, outstanding
from stepkeep.store.records import SchemaStatus
from stepkeep.store.sqlite.change import SQL

PACKAGE = "stepkeep.store.sqlite"


def migrate(connection: apsw.Connection, path: Path, clock: Callable[[], int]) -> None:
    """Apply missing migrations; refuse a file that a newer or different Stepkeep has created."""
    connection.execute(SQL.create_migrations)
    applied = _applied(connection)
    for migration in outstanding(migrations_for(PACKAGE, applied), applied, str(path)):
        connection.execute(migration.script)
        noted = (migration.version, migration.name, migration.checksum, clock())
        connection.execute(SQL.insert_migration, noted)


def status(connection: apsw.Connection, path: Path, url: str) -> SchemaStatus:
    """The applied and the missing migrations; refuses like `migrate`."""
    applied = _applied(connection)
    return SchemaStatus(
        url=url,
        applied=as_pairs(applied),
        pending=as_pairs(outstanding(migrations_for(PACKAGE, applied), applied, str(path))),
        size_bytes=sum(file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists()),
    )


def _applied(connection: apsw.Connection) -> list[Applied]:
    try:
        return [Applied(*row) for row in connection.execute(SQL.list_migrations)]
    except apsw.SQLError as error:
        if "no such table" in str(error):
            return []
        raise
