"""The rows of triggers: triggers, their firings, and backfills; and the reads that a store offers.

A row of a trigger is the lock of all that belongs to it: every change of its firings and backfills is written with a
new sequence number of that row, as part of a `Write`. Only the transaction that ends a run adds an awaiting firing
without it, for each trigger about its workflow. It decides nothing; `operations.triggers` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from stepkeep.kernel.states import RunState
from stepkeep.kernel.triggers import TriggerKind

TriggerKey = tuple[str, str]
"""(tenant, name)."""


class FiringState(StrEnum):
    AWAITING = "awaiting"
    """The run whose end it is about has not ended, or its end is noted and no sweep has decided about it."""
    WAITING = "waiting"
    """It starts its run when earlier runs of the trigger have ended."""
    STARTED = "started"
    SKIPPED = "skipped"
    REFUSED = "refused"
    """Its run could not be started; the reason says why."""


class BackfillState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class TriggerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger. `version` is that of the definition that declares it; None: it starts the newest one. `topic` is the
    name of its event, or of the workflow whose endings it is about. `next_at` is its next scheduled moment, `due_at`
    the time of its next sweep. `cursor_at` is the time since which the unfinished runs of its topic are to be noted;
    None: they were."""

    tenant: str
    name: str
    seq: int
    workflow: str
    version: int | None
    kind: TriggerKind
    topic: str | None
    spec: bytes
    next_at: int | None
    due_at: int | None
    cursor_at: int | None
    paused_at: int | None
    paused_by: str | None
    created_at: int
    created_by: str
    removed_at: int | None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """One firing: the moment, event or ending that it stands for, and what came of it. `watched` is 1 while a sweep
    must read it again. `depth` counts the triggers in the chain that led to it; `source` is the run whose event or
    end it is."""

    tenant: str
    trigger_name: str
    moment: str
    due_at: int
    state: FiringState
    watched: int
    made_at: int
    depth: int
    run_id: str | None = None
    source: str | None = None
    backfill: str | None = None
    reason: str | None = None
    given: bytes | None = None
    """The input of the run, of a firing that waits."""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A job that fires the moments of a range, from `since_at` (inclusive) to `until_at` (exclusive). `cursor_at` is
    the last moment that it has handled."""

    tenant: str
    id: str
    trigger_name: str
    state: BackfillState
    since_at: int
    until_at: int
    cursor_at: int
    at_once: int
    started: int
    skipped: int
    refused: int
    created_at: int
    created_by: str
    ended_at: int | None = None


class TriggerChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new value of a trigger's row. The write must find it at sequence `was` (0: no row), or fail as a whole."""

    was: int
    row: TriggerRow


class Watched(NamedTuple):
    """A firing that a sweep must read again, and the state of the run that it started or awaits (None: it is gone)."""

    firing: Firing
    run_state: RunState | None


FIRST_FIRING = 2**62
"""Lists of firings are newest first, and begin here."""


class TriggerStore(Protocol):
    """The reads of triggers, and retention. Rows that were removed are left out, except by `read`."""

    async def find_due(self, limit: int) -> list[TriggerKey]:
        """Triggers of all tenants that a sweep must look at, the longest due first."""
        ...

    async def read(self, tenant: str, name: str) -> TriggerRow | None:
        """A trigger, also one that was removed."""
        ...

    async def list_all(self, tenant: str, after: str = "", limit: int = 1000) -> list[TriggerRow]: ...
    async def list_of_workflow(self, tenant: str, workflow: str) -> list[TriggerRow]: ...
    async def list_of_kind(self, tenant: str, kind: TriggerKind) -> list[TriggerRow]: ...
    async def read_watched(self, tenant: str, name: str, limit: int = 1000) -> list[Watched]:
        """Firings that started a run under a policy, or wait, by due time."""
        ...

    async def read_endings(self, tenant: str, name: str, limit: int = 100) -> list[Watched]:
        """Awaiting firings whose run has ended or is gone, by due time."""
        ...

    async def find_unseen(self, tenant: str, name: str, topic: str, after: str, limit: int = 500) -> list[str]:
        """Unfinished runs of a workflow after an id for which the trigger has no firing, oldest first."""
        ...

    async def list_firings(
        self, tenant: str, name: str, before: tuple[int, str] = (FIRST_FIRING, ""), limit: int = 100
    ) -> list[Firing]:
        """Firings, the latest due first."""
        ...

    async def read_firings(self, tenant: str, name: str, moments: Sequence[str]) -> list[Firing]: ...
    async def find_firings_of(self, tenant: str, run_ids: Sequence[str]) -> dict[str, Firing]:
        """The firings that started runs, by run; one that no trigger started is left out."""
        ...

    async def read_backfill(self, tenant: str, backfill_id: str) -> Backfill | None: ...
    async def list_all_backfills(self, tenant: str, before: str = "~", limit: int = 100) -> list[Backfill]:
        """The backfills of all triggers, newest first, before an id."""
        ...

    async def list_backfills(self, tenant: str, name: str, limit: int = 100) -> list[Backfill]:
        """Backfills of a trigger, newest first."""
        ...

    async def forget_firings(self, tenant: str, before: int, limit: int) -> int:
        """Delete the oldest decided firings from before a moment, up to a number; returns how many. One stays while the
        run that it started, or the run that it is about, is kept."""
        ...
