"""The database file: created for its owner alone, and verified to be the same file while a store has it open.

It knows no SQL and opens no connection. The store creates one; the writer, the readers and transactions with user code
call it before they touch the database.
"""

from __future__ import annotations

import os
from pathlib import Path

from stepkeep.errors import DatabaseGone

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

    def make(self) -> None:
        """Create the file and its directory if missing; an existing file keeps its mode."""
        self._held = None
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
        found = self.path.stat()
        self._held = (found.st_dev, found.st_ino)

    def check(self) -> None:
        """Raise DatabaseGone if the path now has another file, or none."""
        if self._held is None:
            return
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise DatabaseGone(self._said("was moved or deleted")) from None
        except OSError:
            # SQLite meets any other error too and reports it better.
            return
        if (found.st_dev, found.st_ino) != self._held:
            raise DatabaseGone(self._said("was replaced by another file"))

    def _said(self, what: str) -> str:
        return (
            f"{self.path} {what} while it was open. Nothing more is written to it: stop every program that uses it, "
            "put the file back with its -wal file, and start again."
        )
