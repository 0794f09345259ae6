"""Copies a database file that may be in use, by SQLite's online backup.

It neither migrates nor changes the source. Writers go on meanwhile. `stepkeep db backup` calls it.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from stepkeep.kernel.errors import InvalidInput, StoreUnavailable
from stepkeep.store.sqlite.connection import open_connection, translated
from stepkeep.store.sqlite.file import DatabaseFile


def backup(source: Path, target: Path) -> int:
    """Copy the database to a new file, private to its owner, and check the copy. Returns its size in bytes.

    A copy that is under way has the ending `.part`: a file without it is whole.
    """
    part = Path(f"{target}.part")
    try:
        is_there = target.exists()
        if not is_there:
            part.unlink(missing_ok=True)
            DatabaseFile(part).make()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{part} cannot be written: {error}") from None
    if is_there:
        raise InvalidInput(f"{target} is there already. Name a new file: a backup overwrites nothing.")
    with translated(source):
        held = open_connection(DatabaseFile(source), read_only=True)
        try:
            with translated(part):
                copy = apsw.Connection(os.fspath(part))
                try:
                    # All pages in one read transaction: with several, each commit of another program starts it anew.
                    with copy.backup("main", held, "main") as copying:
                        copying.step(-1)
                    # In this mode the copy is one file, without a -wal beside it.
                    copy.execute("pragma journal_mode = delete")
                    said = [row[0] for row in copy.execute("pragma quick_check")]
                finally:
                    copy.close()
        finally:
            held.close()
    if said != ["ok"]:
        raise StoreUnavailable(f"{source} is damaged: {said[0]}. The copy was left at {part}. Restore a backup.")
    part.rename(target)
    return target.stat().st_size
