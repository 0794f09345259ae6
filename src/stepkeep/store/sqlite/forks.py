"""Refuses files that were open when this process was forked.

SQLite's locks belong to a process, but their state is in memory, and a fork copies the memory without the locks. A
child that used the file, even through a new connection, could damage it.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from stepkeep.kernel.errors import StoreUnavailable

_open: Counter[str] = Counter()
_inherited: set[str] = set()


def note_open(path: Path) -> None:
    """Refuse a file that the parent process had open at the fork; register any other."""
    name = os.path.realpath(path)
    if name in _inherited:
        raise StoreUnavailable(
            f"{path} was open when this process was forked, and SQLite cannot share it that way. Open the store "
            "after the fork, or start processes with 'spawn'."
        )
    _open[name] += 1


def note_closed(path: Path) -> None:
    name = os.path.realpath(path)
    _open[name] -= 1
    if not _open[name]:
        del _open[name]


def _forked() -> None:
    _inherited.update(_open)
    _open.clear()


os.register_at_fork(after_in_child=_forked)
