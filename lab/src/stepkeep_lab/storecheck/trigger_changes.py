"""Triggers on the ends of runs in a differential life: drawn from a seed of its own, the same on model and store.

The life itself ends and deletes runs, and so notes ends. Here triggers are added and removed, noted ends are decided
about, and old firings are forgotten. `differential` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.machine.rows import rows_of
from stepkeep.kernel.triggers import TriggerKind
from stepkeep.store.change import Loaded, More, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_ID
from stepkeep.store.rows import (
    Firing,
    FiringState,
    TriggerChange,
    TriggerRow,
)

TOPICS = {"after-small": "small", "also-small": "small", "after-people": "people", "after-letters": "letters"}
"""Triggers by name: the workflow whose ends they are about."""

AT_ONCE = 4


class TriggerChanges:
    """What is done to triggers in one life."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"triggers:{seed}")  # noqa: S311 - chance that must come out the same again
        self.is_there = self._random.random() < 0.7

    async def begin(self, stores: Sequence[Store], tenant: str) -> None:
        for name in TOPICS if self.is_there else ():
            for store in stores:
                await _write(store, tenant, name, lambda row, name=name: ([_row(tenant, name)], []))  # type: ignore[misc]

    async def go_on(self, stores: Sequence[Store], tenant: str) -> Any:
        """A few calls, each with what both stores answered."""
        for _ in range(AT_ONCE if self.is_there else 0):
            act = self._random.choice((self._decide, self._decide, self._remove, self._forget, self._find))
            yield act.__name__.removeprefix("_"), await act(stores, tenant, self._random.choice(list(TOPICS)))

    async def _decide(self, stores: Sequence[Store], tenant: str, name: str) -> list[Any]:
        """Noted ends are decided about, or a firing of another kind is recorded."""
        said, number = [], self._random.randrange(6)
        made_at = await stores[0].now() - self._random.choice((0, 30, 300, 3000)) * 1_000_000
        for store in stores:
            ended = [one.firing for one in await store.triggers.read_endings(tenant, name)]
            done = [replace(one, state=FiringState.SKIPPED, watched=0, reason="decided") for one in ended]
            done += [_other(tenant, name, number, made_at)]
            await _write(store, tenant, name, lambda row, done=done: ([_next(row)], done))  # type: ignore[misc]
            said.append(sorted(one.moment for one in ended))
        return said

    async def _remove(self, stores: Sequence[Store], tenant: str, name: str) -> list[Any]:
        """A trigger is removed, or added again."""
        for store in stores:

            def change(row: TriggerRow) -> tuple[list[TriggerRow], list[Firing]]:
                return [replace(_next(row), removed_at=5 if row.removed_at is None else None)], []

            await _write(store, tenant, name, change)
        return [None, None]

    async def _forget(self, stores: Sequence[Store], tenant: str, name: str) -> list[Any]:
        before = await stores[0].now() - self._random.choice((0, 60, 600)) * 1_000_000
        return [await store.triggers.forget_firings(tenant, before, 1000) for store in stores]

    async def _find(self, stores: Sequence[Store], tenant: str, name: str) -> list[Any]:
        limit = self._random.choice((1, 1000))
        return [await store.triggers.find_unseen(tenant, name, TOPICS[name], FIRST_ID, limit) for store in stores]


async def read_triggers(store: Store, tenant: str) -> dict[str, Any]:
    """Every firing, as it can be read."""
    return {name: await store.triggers.list_firings(tenant, name, limit=1000) for name in TOPICS}


Change = Callable[[TriggerRow], tuple[list[TriggerRow], list[Firing]]]


async def _write(store: Store, tenant: str, name: str, change: Change) -> None:
    """Change a trigger under its lock, as firings do."""
    key = (tenant, name)
    looked: list[Loaded] = []

    def decide(loaded: Loaded) -> More | Write:
        if not looked or looked[-1] is not loaded:
            looked.append(loaded)
            return More(triggers=(key,))
        before = loaded.triggers.get(key)
        rows, firings = change(before or _row(tenant, name))
        was = 0 if before is None else before.seq
        return Write(rows=rows_of([*(TriggerChange(was=was, row=row) for row in rows), *firings]))

    await store.change([], decide)


def _next(row: TriggerRow) -> TriggerRow:
    return replace(row, seq=row.seq + 1)


def _row(tenant: str, name: str) -> TriggerRow:
    return TriggerRow(
        tenant=tenant,
        name=name,
        seq=1,
        workflow="small",
        version=None,
        kind=TriggerKind.ENDED,
        topic=TOPICS[name],
        spec=b"{}",
        next_at=None,
        due_at=None,
        cursor_at=None,
        paused_at=None,
        paused_by=None,
        created_at=1,
        created_by="ann",
        removed_at=None,
    )


def _other(tenant: str, name: str, number: int, made_at: int) -> Firing:
    return Firing(
        tenant=tenant,
        trigger_name=name,
        moment=f"hand:{number}",
        due_at=number,
        state=FiringState.WAITING if number == 0 else FiringState.SKIPPED,
        watched=int(number == 0),
        made_at=made_at,
        depth=0,
    )
