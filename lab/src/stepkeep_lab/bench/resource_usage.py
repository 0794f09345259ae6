"""CPU time and memory of the worker, the client and the database server, from /proc.

On a shared machine, CPU time is steadier than elapsed time. It only reads; it starts and stops nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")

# Fields of /proc/PID/stat behind the program's name, which may hold anything: see proc(5).
PARENT, OWN_CPU, REAPED_CPU = 1, slice(11, 13), slice(13, 15)


class Spent(NamedTuple):
    """Seconds of CPU by party, since each began."""

    worker: float
    client: float
    server: float

    def since(self, earlier: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, earlier, strict=True)))


def spent(workers: Iterable[int], server: int | None) -> Spent:
    """What worker processes, this process and a PostgreSQL server (its first process named) have used so far."""
    return Spent(
        worker=sum(cpu_of(pid) for pid in workers),
        client=time.process_time(),
        server=0.0 if server is None else cpu_of_family(server),
    )


def cpu_of(pid: int) -> float:
    """CPU seconds of one process with all its threads."""
    return _seconds(_stat(pid)[OWN_CPU])


def cpu_of_family(pid: int) -> float:
    """CPU seconds of a process, the children that it has, and those that it had and has waited for."""
    first = _stat(pid)
    living = sum(_seconds(child[OWN_CPU]) for child in _children(pid).values())
    return _seconds(first[OWN_CPU]) + _seconds(first[REAPED_CPU]) + living


def cpu_of_sessions(pid: int) -> float:
    """CPU seconds of a server's living children, to the microsecond: for what takes less than a tick."""
    return sum(_precise(child) for child in _children(pid))


def memory_of(pid: int) -> int:
    """Bytes that a process holds in memory now."""
    return int((PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(parent: int) -> dict[int, list[str]]:
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                fields = _stat(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            if fields[PARENT] == str(parent):
                found[int(entry.name)] = fields
    return found


def _precise(pid: int) -> float:
    try:
        return int((PROC / str(pid) / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def _stat(pid: int) -> list[str]:
    return (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _seconds(ticks: list[str]) -> float:
    return sum(map(int, ticks)) / TICKS
