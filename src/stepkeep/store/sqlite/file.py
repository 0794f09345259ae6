"""The database file: made for its owner alone, and the same file for as long as a store has it open.

It knows no SQL and opens no connection. The store makes one of these; the writer, the readers and the transactions of
user code ask it before they touch the database.
"""

from __future__ import annotations

import os
from pathlib import Path

from stepkeep.errors import DatabaseGone

PRIVATE = 0o600
"""The mode of a new file. SQLite gives the files beside it (-wal, -shm) the same."""


class DatabaseFile:
    """Where the database is, and which file was found there when it was opened.

    A file that was moved or deleted can still be written, and nothing of that would ever be found again. SQLite does
    not notice, and a connection opened later would make a new, empty database in its place.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # The program may change its directory while the store is open.
        self.path = Path(os.path.abspath(path))
        self._held: tuple[int, int] | None = None

    def make(self) -> None:
        """Make the file, with its directory, where it is missing; one that is there keeps its mode."""
        self._held = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Through a link to a file that is not there yet, because an exclusive open would take the link for the file.
        target = os.path.realpath(self.path)
        try:
            made = os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE)
        except FileExistsError:
            return
        try:
            # The umask may have taken more away than others' rights.
            os.fchmod(made, PRIVATE)
        finally:
            os.close(made)

    def hold(self) -> None:
        """Remember which file this is."""
        found = self.path.stat()
        self._held = (found.st_dev, found.st_ino)

    def check(self) -> None:
        """Raise DatabaseGone when another file is there now, or none."""
        if self._held is None:
            return
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise DatabaseGone(self._said("was moved or deleted")) from None
        except OSError:
            # Whatever hinders the look, SQLite meets it too and says it better.
            return
        if (found.st_dev, found.st_ino) != self._held:
            raise DatabaseGone(self._said("was replaced by another file"))

    def _said(self, what: str) -> str:
        return (
            f"{self.path} {what} while it was open. Nothing more is written to it: stop every program that uses it, "
            "put the file back with its -wal file, and start again."
        )
