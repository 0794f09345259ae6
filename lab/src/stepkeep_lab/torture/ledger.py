"""Two files outside any database: the effects of handlers, and the counts of worker processes.

Both are appended to, one line per write, by processes that may be killed at any moment. The ledger is synced before a
handler continues, so it is the truth about effects; the tally only has to outlive its process.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from pathlib import Path

import msgspec


class Effect(msgspec.Struct, frozen=True):
    """One thing that a handler did: under which idempotency key, a name that no other effect has, and which process."""

    key: str
    nonce: str
    pid: str


class Ledger:
    """Effects, in the order in which they happened."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, key: str) -> Effect:
        """Do the thing: once this returns, it has happened, whatever becomes of this process."""
        effect = Effect(key, secrets.token_hex(8), str(os.getpid()))
        _append(self._path, f"{effect.key} {effect.nonce} {effect.pid}\n", sync=True)
        return effect

    def read(self) -> list[Effect]:
        return [Effect(*line.rsplit(" ", 2)) for line in _lines(self._path)]


class Tally:
    """Counts by name that many processes add to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, what: str, count: int = 1) -> None:
        if count:
            _append(self._path, f"{int(count)} {what}\n", sync=False)

    def read(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for line in _lines(self._path):
            count, what = line.split(" ", 1)
            found[what] += int(count)
        return found


class Acks:
    """Starts that were acknowledged by processes which may die right afterwards: key and run id."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, key: str, run_id: str) -> None:
        _append(self._path, f"{key} {run_id}\n", sync=True)

    def read(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in _lines(self._path):
            key, run_id = line.split(" ", 1)
            found.setdefault(key, set()).add(run_id)
        return found


def _append(path: Path, line: str, *, sync: bool) -> None:
    # One write per line: a process that dies leaves whole lines only.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
