"""Rows of triggers for tests of stores."""

from __future__ import annotations

from typing import Any

from tests.store.values import TENANT, brought

from stepkeep.kernel.triggers import TriggerKind
from stepkeep.store.change import Loaded, More, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import (
    Backfill,
    BackfillState,
    Firing,
    FiringState,
    TriggerChange,
    TriggerKey,
    TriggerRow,
)


def trigger(name: str = "nightly", **given: Any) -> TriggerRow:
    plain: dict[str, Any] = {
        "tenant": TENANT,
        "name": name,
        "seq": 1,
        "workflow": "w",
        "version": None,
        "kind": TriggerKind.SCHEDULE,
        "topic": None,
        "spec": b"{}",
        "next_at": None,
        "due_at": None,
        "cursor_at": None,
        "paused_at": None,
        "paused_by": None,
        "created_at": 1,
        "created_by": "ann",
        "removed_at": None,
    }
    return TriggerRow(**(plain | given))


def firing(moment: str, state: FiringState = FiringState.SKIPPED, **given: Any) -> Firing:
    plain: dict[str, Any] = {"tenant": TENANT, "trigger_name": "nightly", "due_at": 5, "watched": 0, "made_at": 6}
    return Firing(**(plain | {"moment": moment, "state": state, "depth": 0} | given))


def backfill(number: int, **given: Any) -> Backfill:
    plain: dict[str, Any] = {
        "tenant": TENANT,
        "id": f"b{number}",
        "trigger_name": "nightly",
        "state": BackfillState.RUNNING,
        "since_at": 1,
        "until_at": 9,
        "cursor_at": 0,
        "at_once": 3,
        "started": 0,
        "skipped": 0,
        "refused": 0,
        "created_at": number,
        "created_by": "ann",
    }
    return Backfill(**(plain | given))


async def write_triggers(store: Store, *rows: TriggerRow, was: int = 0, **written: Any) -> None:
    """Write these triggers, each at the sequence `was`, and whatever else is given."""
    changes = [TriggerChange(was=was, row=row) for row in rows]
    await store.change([], lambda loaded: Write(rows=brought(changes, *written.values())))


async def locked(store: Store, *keys: TriggerKey) -> dict[TriggerKey, TriggerRow]:
    """What a decision that locks triggers is given."""
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> More | Write:
        seen.append(loaded)
        return More(triggers=keys) if len(seen) == 1 else Write()

    await store.change([], decide)
    return seen[-1].triggers
