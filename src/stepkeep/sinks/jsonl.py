"""The sink `jsonl`: appends each event as one line of JSON to a file, and forces it to disk.

Several processes may append to the same file: a lock is held for each line. A line that a crash cut off is ended
first, so that it never joins the next one. It must not rotate or delete the file.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed, SinkKind


class JsonlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`path` is absolute: each worker has a working directory of its own. `sync` forces each line to disk."""

    path: str
    sync: bool = True


class JsonlSink:
    """Appends to one file."""

    def __init__(self, options: JsonlOptions) -> None:
        self._path, self._sync = options.path, options.sync

    async def send(self, event: OutgoingEvent) -> None:
        try:
            await asyncio.to_thread(append_line, self._path, event.body(), sync=self._sync)
        except OSError as problem:
            raise SinkFailed(f"the file cannot be written: {os.strerror(problem.errno or 0)}") from None

    async def close(self) -> None:
        """Nothing is open between two lines."""


def append_line(path: str, line: bytes, *, sync: bool) -> None:
    """Append one whole line under the lock of the file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        rest = memoryview((b"\n" if torn else b"") + line + b"\n")
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(options: JsonlOptions) -> None:
    if "\0" in options.path or not Path(options.path).is_absolute():
        raise InvalidInput(f"the path of a jsonl sink is absolute, as in /var/log/orders.jsonl, not {options.path!a}.")


async def _open(options: JsonlOptions, context: SinkContext) -> Sink:
    return JsonlSink(options)


KIND = SinkKind(
    name="jsonl", summary="one line of JSON per event in a file", options=JsonlOptions, open=_open, check=_check
)
