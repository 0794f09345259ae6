"""Reads files that people name: inputs, definitions, logs, tokens. Bounded, and never waiting for an absent writer.

A regular file and a pipe with a writer (`<(command)` in a shell) can be read. Devices have no end, and a named pipe
without a writer would block the program forever, so both are refused. It must not interpret what it reads.
Definitions, logs and the command line call it; each turns the OSError into its own words.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from typing import Any, BinaryIO, cast


def open_input(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file or a pipe for reading; raises OSError, whose `strerror` says why it cannot be read."""
    try:
        # Without O_NONBLOCK the opening of a pipe waits until something writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as problem:
        raise OSError(errno.EINVAL, f"no file can have this name ({problem})") from None
    try:
        return _checked(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def read_input(path: str | os.PathLike[str], limit: int) -> bytes:
    """The content of a file or a pipe; raises OSError where there are more than `limit` bytes."""
    with open_input(path) as opened:
        return read_bounded(opened, limit)


def read_bounded(opened: BinaryIO, limit: int) -> bytes:
    """All that is left to read; raises OSError where that is more than `limit` bytes."""
    content = opened.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"there are more than {limit:,} bytes in it")
    return content


def rejoined(first: bytes, rest: BinaryIO) -> BinaryIO:
    """A file of which the first bytes have been read already, as if they had not."""
    return cast(BinaryIO, io.BufferedReader(_Rejoined(first, rest))) if first else rest


def _checked(descriptor: int) -> BinaryIO:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "it is a device or a socket, which has no end")
    first = _first(descriptor) if stat.S_ISFIFO(mode) else b""
    os.set_blocking(descriptor, True)
    return rejoined(first, open(descriptor, "rb"))


def _first(descriptor: int) -> bytes:
    """The first bytes of a pipe, as far as they are there; only a read tells a silent writer from none."""
    try:
        first = os.read(descriptor, io.DEFAULT_BUFFER_SIZE)
    except BlockingIOError:
        return b""
    if not first:
        raise OSError(errno.EPIPE, "it is a pipe, and nothing writes to it")
    return first


class _Rejoined(io.RawIOBase):
    """A file of which the first bytes have been read already."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        part = self._first[: len(buffer)] or self._rest.read(len(buffer))
        self._first = self._first[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._rest.close()
        super().close()
