"""Plants a bug in a store's SQL: a piece of a statement, or of a migration, is replaced in memory.

Files are never changed. A planted bug whose text is not found exactly once is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from stepkeep.store.migrations import load_migrations
from stepkeep.store.statements import load_statements
from stepkeep_lab.simulation.mutation import Misfit

_MIGRATION = re.compile(r"(\d{4})_")


class SqlMutant(NamedTuple):
    """A bug of one store: the file it is in, what it would mean, and the text that becomes another."""

    name: str
    store: str
    file: str
    what: str
    old: str
    new: str

    @property
    def path(self) -> str:
        """The file as people find it, below `src/stepkeep/store`."""
        folder = "migrations" if _MIGRATION.match(self.file) else "sql"
        return f"{self.store}/{folder}/{self.file}.sql"


@contextmanager
def planted(mutant: SqlMutant) -> Iterator[None]:
    """Plant this bug for the duration of the block, in stores that are opened or used meanwhile."""
    package = f"stepkeep.store.{mutant.store}"
    if number := _MIGRATION.match(mutant.file):
        migration = next(one for one in load_migrations(package) if one.version == int(number[1]))
        script = migration.script
        # Loaded once and shared: what every opening of a database will run is this very value.
        msgspec.structs.force_setattr(migration, "script", mutated(mutant, script))
        try:
            yield
        finally:
            msgspec.structs.force_setattr(migration, "script", script)
        return
    statements = load_statements(package)
    if not hasattr(statements, mutant.file):
        raise Misfit(f"{mutant.name}: there is no {mutant.path}")
    statement = getattr(statements, mutant.file)
    setattr(statements, mutant.file, mutated(mutant, statement))
    try:
        yield
    finally:
        setattr(statements, mutant.file, statement)


def mutated(mutant: SqlMutant, text: str) -> str:
    """The text with the bug in it."""
    found = text.count(mutant.old)
    if found != 1:
        raise Misfit(f"{mutant.name}: {mutant.path} has {mutant.old!r} {found} times, not once")
    return text.replace(mutant.old, mutant.new)
