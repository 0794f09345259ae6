"""Exit statuses: what a shell script may rely on. The table is part of the documented interface."""

from __future__ import annotations

SUCCEEDED = 0
FAILED = 1
BAD_USAGE = 2
CANCELLED = 3
UNFINISHED = 4
READER_GONE = 141
"""What a shell reports of a program whose reader has gone: 128 and the number of SIGPIPE."""

_OF_RUN = {"succeeded": SUCCEEDED, "failed": FAILED, "cancelled": CANCELLED, "rolled_back": CANCELLED}


def status_of_run(state: str) -> int:
    """0 succeeded, 1 failed, 3 cancelled or rolled back, 4 not finished."""
    return _OF_RUN.get(state, UNFINISHED)
