"""Keeps what this process knows from the programs that it starts: its environment, its arguments and its memory.

A child of the same user may read `/proc/PID/environ` and the memory of its parent. `protect_process` ends both on
Linux. It must not be called in a program that only embeds Stepkeep. The command line and processes of handlers call it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

PRIVATE = ("STEPKEEP_DB", "STEPKEEP_KEY", "STEPKEEP_OIDC_CLIENT_SECRET")
SECRET = "STEPKEEP_SECRET_"  # noqa: S105 - the beginning of a name
PR_SET_DUMPABLE = 4

_taken: dict[str, str] = {}
is_protected = False


def is_private(name: str) -> bool:
    """Whether a variable holds a secret of Stepkeep itself, and so is never inherited."""
    return name in PRIVATE or name.startswith(SECRET)


def variables() -> Mapping[str, str]:
    """The environment of this process, with the variables that were taken out of it."""
    return {**_taken, **os.environ}


def protect_process(hidden: Iterable[str] = ()) -> None:
    """Take private variables out of the environment, and close the process to children of its user.

    Its first environment is overwritten, and `hidden` in its arguments. It dumps no core, and only root debugs it.
    """
    global is_protected
    is_protected = True
    _taken.update({name: os.environ.pop(name) for name in list(os.environ) if is_private(name)})
    if sys.platform != "linux":
        return
    import ctypes

    for name, value in os.environb.items():
        os.putenv(name, value)  # a copy: what it had at the start is overwritten below
    with open("/proc/self/stat", "rb") as opened:
        fields = opened.read().rpartition(b")")[2].split()
    # Of proc(5): arg_start, arg_end, env_start and env_end are the fields 48 to 51, and the state is field 3.
    arguments, arguments_end, environment, environment_end = map(int, fields[45:49])
    if 0 < environment < environment_end:
        ctypes.memset(environment, 0, environment_end - environment)
    given = ctypes.string_at(arguments, arguments_end - arguments) if 0 < arguments < arguments_end else b""
    for text in filter(None, (one.encode() for one in hidden)):
        at = given.find(text)
        while at >= 0:
            ctypes.memset(arguments + at, ord("*"), len(text))
            at = given.find(text, at + len(text))
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
