"""What starts runs by itself: triggers with their schedules and policies, as frozen values.

They are part of a definition, or stored alone. The `schedules` package computes moments and `operations` starts runs;
nothing here does. Times are whole microseconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState

DAY = 86_400 * 1_000_000


class Gap(StrEnum):
    """What happens to a local time that the clock skips when it is put forward."""

    SHIFT = "shift"
    """The trigger fires once, at the first moment after the gap."""
    SKIP = "skip"


class Fold(StrEnum):
    """What happens to a local time that comes twice when the clock is put back."""

    FIRST = "first"
    BOTH = "both"


class Overlap(StrEnum):
    """What a firing does while an earlier run of the same trigger has not ended."""

    SKIP = "skip"
    """It is recorded, and starts nothing."""
    QUEUE = "queue"
    """It waits until the earlier runs have ended, in the order of moments."""
    CANCEL = "cancel"
    """It cancels the earlier run, and starts when that has ended. A later firing replaces one that still waits."""
    ALLOW = "allow"


class Keep(StrEnum):
    """Which missed moments are caught up."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class TriggerKind(StrEnum):
    SCHEDULE = "schedule"
    EVENT = "event"
    ENDED = "ended"


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Schedule(_Value, frozen=True, kw_only=True):
    """A cron expression in a time zone, or an interval. Exactly one of `cron` and `every` is set."""

    cron: str | None = None
    every: int | None = None
    zone: str = "UTC"
    gap: Gap | None = None
    fold: Fold | None = None
    jitter: int = 0


class CatchUp(_Value, frozen=True, kw_only=True):
    """What happens to moments that passed while no worker ran. The newest `most` of `window` can be caught up, each
    `spread` after the one before."""

    keep: Keep = Keep.LAST
    most: int = 10
    window: int = DAY
    spread: int = 0


class Ending(_Value, frozen=True, kw_only=True):
    """The end of a run of a workflow, in one of these states."""

    workflow: str
    states: tuple[RunState, ...] = tuple(sorted(RUN_TERMINAL))


class TriggerSpec(_Value, frozen=True, kw_only=True):
    """One trigger. Exactly one of `schedule`, `event` and `ended` is set. `event` is a name that may end in `*`."""

    name: str
    schedule: Schedule | None = None
    event: str | None = None
    ended: Ending | None = None
    condition: str | None = None
    inputs: Any = None
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp()
    most_waiting: int = 100

    @property
    def kind(self) -> TriggerKind:
        if self.schedule is not None:
            return TriggerKind.SCHEDULE
        return TriggerKind.EVENT if self.event is not None else TriggerKind.ENDED
