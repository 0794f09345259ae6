"""The database file: created for its owner alone, and verified to be the same file while a store has it open.

It knows no SQL and opens no connection. The store creates one; the writer, the readers and transactions with user code
call it before they touch the database.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from stepkeep.kernel.errors import DatabaseGone

PRIVATE = 0o600
"""The mode of a new file. SQLite gives the files beside it (-wal, -shm) the same."""


class DatabaseFile:
    """The path of the database, and the identity of the file when it was opened.

    A file that was moved or deleted can still be written, and those writes would be lost. SQLite does not notice it,
    and a later connection would create a new, empty database.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # The program may change its directory while the store is open.
        self.path = Path(os.path.abspath(path))
        self._held: tuple[int, int] | None = None
        self._log: tuple[str, tuple[int, int]] | None = None

    def make(self) -> None:
        """Create the file and its directory if missing; an existing file keeps its mode."""
        self._held = self._log = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Through a link to a missing file, because an exclusive open would take the link for the file.
        target = os.path.realpath(self.path)
        try:
            made = os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE)
        except FileExistsError:
            return
        try:
            # The umask may also have removed rights of the owner.
            os.fchmod(made, PRIVATE)
        finally:
            os.close(made)

    def hold(self) -> None:
        """Record the identity of the file."""
        self._held = _identity(self.path)

    def check(self) -> None:
        """Raise DatabaseGone if the path of the file, or of its log, now has another file, or none."""
        if self._held is None:
            return
        if (what := _changed(self.path, self._held)) is not None:
            raise DatabaseGone(
                f"{self.path} {what} while it was open. Nothing more is written to it: stop every program that uses "
                "it, put the file back with its -wal file, and start again."
            )
        if self._log is None:
            # The first transaction makes the log; it stays until the last connection is closed.
            log = f"{os.path.realpath(self.path)}-wal"
            with suppress(OSError):
                self._log = log, _identity(log)
        elif (what := _changed(*self._log)) is not None:
            # A process that dies without its log loses every transaction that no checkpoint has written into the file.
            raise DatabaseGone(
                f"{self._log[0]} {what} while it was open. Nothing more is acknowledged. Stop every program that uses "
                "the database, and kill none: the last one that stops writes what is left of the log into the file."
            )


def _identity(path: str | os.PathLike[str]) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _changed(path: str | os.PathLike[str], held: tuple[int, int]) -> str | None:
    """What became of a file, unless it is still there."""
    try:
        return None if _identity(path) == held else "was replaced by another file"
    except (FileNotFoundError, NotADirectoryError):
        return "was moved or deleted"
    except OSError:
        # SQLite meets any other error too and reports it better.
        return None
