"""A process that does nothing but work, set up for it: how often threads take turns, how often garbage is looked for.

For the command line only. A worker inside somebody else's program must leave that program's settings alone.
"""

from __future__ import annotations

import gc
import sys

TURN_SECONDS = 0.0005
"""The worker's loop gives way at every system call. A busy handler in another thread then keeps it waiting for a whole
turn, several times per commit: with Python's own 5 ms a commit beside busy handlers takes more than twice as long."""

YOUNG_OBJECTS = 20_000
"""Rows, events and decisions die young and hold no cycles, but at Python's own 700 they are searched for some."""


def devote_process() -> None:
    """Call once, when everything that stays is imported."""
    sys.setswitchinterval(TURN_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
