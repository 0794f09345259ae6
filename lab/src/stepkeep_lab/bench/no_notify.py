"""The engine without notifications, to measure their cost: work is found by polling alone.

Run as a program, it is a worker without notifications.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import contextmanager

from stepkeep.store.notifications import NOTHING, CoalescingNotifier
from stepkeep.store.protocol import Notification


def _keep_silent(self: CoalescingNotifier, notification: Notification, sent: Notification = NOTHING) -> None:
    """Send nothing."""


def _take_nothing(self: CoalescingNotifier, notification: Notification) -> Notification:
    """Send no notification with a commit."""
    return NOTHING


@contextmanager
def muted(wanted: bool = True) -> Iterator[None]:
    """No notifier of this process sends anything as long as the block runs."""
    publish, take_due = CoalescingNotifier.publish, CoalescingNotifier.take_due
    if wanted:
        CoalescingNotifier.publish = _keep_silent  # type: ignore[method-assign]
        CoalescingNotifier.take_due = _take_nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        CoalescingNotifier.publish = publish  # type: ignore[method-assign]
        CoalescingNotifier.take_due = take_due  # type: ignore[method-assign]


if __name__ == "__main__":
    with muted():
        runpy.run_module("stepkeep.cli.main", run_name="__main__")
