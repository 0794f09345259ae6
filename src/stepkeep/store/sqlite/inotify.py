"""Tells by the kernel that a file was changed or removed. Only Linux supports it; elsewhere `watch` returns None."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

IN_MODIFY, IN_ATTRIB = 0x2, 0x4
IN_NONBLOCK, IN_CLOEXEC = os.O_NONBLOCK, getattr(os, "O_CLOEXEC", 0)
ENOUGH = 65_536


def watch(file: Path) -> int | None:
    """A descriptor that becomes readable whenever the file is written, touched or removed; None if the system does not
    support it."""
    if not sys.platform.startswith("linux"):
        return None
    kernel = ctypes.CDLL(None, use_errno=True)
    if not hasattr(kernel, "inotify_init1"):
        return None
    descriptor: int = kernel.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(file))
    if kernel.inotify_add_watch(descriptor, os.fsencode(file), IN_MODIFY | IN_ATTRIB) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, os.strerror(number), str(file))
    return descriptor


def drain(descriptor: int) -> None:
    """Discard pending events; it only matters that there was one."""
    try:
        while os.read(descriptor, ENOUGH):
            pass
    except BlockingIOError:
        return
