"""The style of each state: mark, colour and text. One table, so that every picture agrees.

Names and styles only; the other files of this folder draw.
"""

from __future__ import annotations

from typing import NamedTuple


class Look(NamedTuple):
    """One state as it is shown."""

    mark: str
    style: str
    words: str


LOOKS = {
    # steps
    "pending": Look("○", "dim", "pending"),
    "ready": Look("◌", "cyan", "ready"),
    "running": Look("▶", "bold cyan", "running"),
    "validating": Look("▷", "cyan", "validating"),
    "retrying": Look("↻", "yellow", "retrying"),
    "awaiting_approval": Look("◇", "magenta", "awaiting approval"),
    "awaiting_event": Look("◇", "magenta", "awaiting event"),
    "awaiting_completion": Look("◇", "magenta", "awaiting completion"),
    "awaiting_children": Look("◈", "cyan", "awaiting children"),
    "succeeded": Look("●", "green", "succeeded"),
    "failed": Look("✗", "bold red", "failed"),
    "skipped": Look("⊘", "yellow", "skipped"),
    "cancelled": Look("■", "dim", "cancelled"),
    # runs, where they have words of their own
    "idle": Look("○", "dim", "idle"),
    "queued": Look("◌", "cyan", "queued"),
    "blocked": Look("◇", "magenta", "blocked"),
    "paused": Look("‖", "magenta", "paused"),
    "stopping": Look("▽", "yellow", "stopping"),
    "compensating": Look("↩", "yellow", "compensating"),
    "rolled_back": Look("↩", "yellow", "rolled back"),
    # workers
    "initializing": Look("◌", "dim", "initializing"),
    "busy": Look("▶", "cyan", "busy"),
    "unresponsive": Look("✗", "red", "unresponsive"),
    "draining": Look("▽", "yellow", "draining"),
    "shutdown": Look("■", "dim", "shut down"),
    # links to child runs, where they have words of their own
    "requested": Look("◌", "cyan", "requested"),
    "started": Look("▶", "cyan", "started"),
    "withdrawn": Look("■", "dim", "withdrawn"),
    "refused": Look("✗", "red", "refused"),
    # attempts, where they have words of their own
    "timed_out": Look("✗", "red", "timed out"),
    "lost": Look("✗", "red", "lost"),
    "waited": Look("◇", "magenta", "waited"),
    "released": Look("○", "dim", "released"),
}

QUIET = frozenset({"pending", "succeeded", "skipped", "cancelled"})
"""Step states that need no attention: the first to be folded."""


def look(state: str) -> Look:
    """The style of a state; an unknown one is shown by its name."""
    return LOOKS.get(state) or Look("?", "", state.replace("_", " "))


def words(state: str) -> str:
    return look(state).words


def style(state: str) -> str:
    return look(state).style
