"""Opens connections to the database file with Stepkeep's settings, and translates their errors.

Every connection of the store is opened here. Nothing here knows a table.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from stepkeep.kernel.errors import (
    Contended,
    InvalidInput,
    InvariantBroken,
    SchemaMismatch,
    StepkeepError,
    StoreUnavailable,
)
from stepkeep.store.sqlite.file import DatabaseFile

log = logging.getLogger("stepkeep.store")

BUSY_SECONDS = 60.0
"""How long a writer waits for another process, or for a transaction with user code."""

TOLD_SECONDS = 2.0
"""After so long a wait is logged, because nothing else would say why the program stands still."""

CACHE_KILOBYTES = 8192
"""Page cache of one connection: enough for the changes of a transaction. The system caches the file anyway, and a
commit by another process empties this cache."""

CHECKPOINT_PAGES = 4000
"""Size of the log before a checkpoint. SQLite's default of a thousand writes most pages several times; many thousand
would delay the transaction that runs the checkpoint."""

_UNIQUE = (
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY,
    apsw.SQLITE_CONSTRAINT_UNIQUE,
    apsw.SQLITE_CONSTRAINT_ROWID,
)


UNSTORABLE = (UnicodeError, OverflowError, apsw.TooBigError)
"""A lone surrogate, a number of more than 64 bits, a gigabyte of text."""


ONE_THREAD = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
ANY_THREAD = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_FULLMUTEX
"""SQLite's own mutexes cost a seventh of each call; a connection used by one thread needs none."""


def open_connection(file: DatabaseFile, *, read_only: bool = False, for_users: bool = False) -> apsw.Connection:
    """Open the file, which must exist and be the one that the store holds.

    The connection is for one thread at a time, unless it is `for_users`, who may use it freely.
    """
    path = file.path
    with translated(path):
        file.check()
        # Never read-only for SQLite itself: the first reader of a file after a crash has to recover its log.
        flags = ANY_THREAD if for_users else ONE_THREAD
        connection = apsw.Connection(os.fspath(path), flags=flags, statementcachesize=256)
        connection.set_busy_handler(_Patience(path))
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma temp_store = memory")
        connection.execute(f"pragma cache_size = {-CACHE_KILOBYTES}")
        connection.execute("pragma journal_size_limit = 67108864")
        connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if read_only:
            connection.execute("pragma query_only = on")
        return connection


class _Patience:
    """Retries a lock that another connection holds: often at first, then every few milliseconds.

    SQLite's own handler soon sleeps a tenth of a second at a time, which starves the process that polls less.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._since, self._is_told = path, 0.0, False

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since, self._is_told = now, False
        waited = now - self._since
        if waited > TOLD_SECONDS and not self._is_told:
            self._is_told = True
            said = "%s is locked by another transaction; waiting for it for up to %.0f s"
            log.warning(said, self._path, BUSY_SECONDS)
        if waited > BUSY_SECONDS:
            return False
        time.sleep(0.0005 if waited < 0.05 else 0.002 if waited < 1 else 0.01)
        return True


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate the driver's errors."""
    try:
        yield
    except (apsw.Error, *UNSTORABLE) as error:
        raise explain(error, path) from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be used: {error}") from error


def explain(error: Exception, path: Path) -> StepkeepError:
    """The meaning of a driver error for a caller."""
    if isinstance(error, UNSTORABLE):
        return InvalidInput(f"SQLite cannot store this value: {error}")
    if isinstance(error, apsw.ConstraintError):
        if getattr(error, "extendedresult", None) in _UNIQUE:
            return Contended(f"another transaction conflicts: {error}. Run the whole transaction again.")
        return InvariantBroken(f"the schema refuses this row: {error}")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnavailable(
            f"{path} has been locked by another transaction for {BUSY_SECONDS:.0f} seconds; nothing was changed. "
            "Find the program that holds it open, or try again."
        )
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(f"the disk that holds {path} is full; nothing was changed. Free some space.")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreUnavailable(f"{path} is damaged or is not an SQLite database: {error}. Restore a backup.")
    if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError):
        return StoreUnavailable(f"{path} cannot be opened for writing: {error}. Check its path and permissions.")
    if isinstance(error, apsw.SQLError) and "no such table" in str(error):
        return SchemaMismatch(f"{path} has no Stepkeep schema yet. Run: stepkeep db migrate")
    return StoreUnavailable(f"{path} could not be read or written: {error}")
