"""SQLite's file system layer with a trap: the process ends at its nth write, sync or truncation.

It is the default layer in torture processes only, so that the store under test opens its files through it.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import apsw
import msgspec

from stepkeep_lab.torture.ledger import Tally
from stepkeep_lab.torture.points import die

SYSTEM = "unix"


class DiskPoint(msgspec.Struct, frozen=True):
    """Die at the nth call of this kind: before it is made, or right after. `nth` 0 only counts."""

    nth: int
    after: bool = False


class Disk(apsw.VFS):
    """Files whose changes are counted."""

    def __init__(self, point: DiskPoint, tally: Tally) -> None:
        super().__init__("torture", SYSTEM, makedefault=True)
        self._point, self._tally = point, tally
        self._calls = 0
        self._guard = Lock()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's own name
        return _File(self, name, flags)

    @property
    def calls(self) -> int:
        return self._calls

    def called(self, what: str, *, after: bool) -> None:
        with self._guard:
            if not after:
                self._calls += 1
            if self._calls == self._point.nth and after is self._point.after:
                die(self._tally, f"killed {'after' if after else 'before'} {what}")


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__(SYSTEM, name, flags)
        self._disk = disk

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.called("write", after=False)
        super().xWrite(data, offset)
        self._disk.called("write", after=True)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.called("sync", after=False)
        super().xSync(flags)
        self._disk.called("sync", after=True)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.called("truncate", after=False)
        super().xTruncate(newsize)
        self._disk.called("truncate", after=True)
