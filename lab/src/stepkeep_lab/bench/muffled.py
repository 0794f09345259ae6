"""The engine without notifications, to measure their cost: work is found by polling alone.

Run as a program, it is a worker without notifications.
"""

from __future__ import annotations

import runpy
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from stepkeep.store.bell import CoalescingBell


def _keep_silent(self: CoalescingBell, topics: Collection[int], told: Collection[int] = ()) -> None:
    """Ring nothing."""


def _take_nothing(self: CoalescingBell, topics: Collection[int]) -> frozenset[int]:
    """Let no hint travel with a commit."""
    return frozenset()


@contextmanager
def muffled(wanted: bool = True) -> Iterator[None]:
    """No bell of this process rings as long as the block runs."""
    ring, board = CoalescingBell.ring, CoalescingBell.board
    if wanted:
        CoalescingBell.ring = _keep_silent  # type: ignore[method-assign]
        CoalescingBell.board = _take_nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        CoalescingBell.ring = ring  # type: ignore[method-assign]
        CoalescingBell.board = board  # type: ignore[method-assign]


if __name__ == "__main__":
    with muffled():
        runpy.run_module("stepkeep.cli.main", run_name="__main__")
