"""Interpreter settings for a process that is only a worker or only a service: thread switches, garbage collection.

For the command line only. A worker embedded in another program must not change that program's settings.
"""

from __future__ import annotations

import gc
import sys

TURN_SECONDS = 0.0005
"""The worker's loop releases the GIL at every system call. A busy handler thread then keeps it for a whole switch
interval, several times per commit. With Python's default of 5 ms, a commit beside busy handlers takes more than
twice as long."""

YOUNG_OBJECTS = 20_000
"""Rows, events and decisions are short-lived and have no cycles, but Python's default of 700 scans them for some."""


def devote_process() -> None:
    """Call once, after all permanent modules are imported."""
    sys.setswitchinterval(TURN_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
