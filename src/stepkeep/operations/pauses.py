"""Pauses of queues and of a whole tenant: workers leave their queues out of claims.

A pause is a setting of the tenant, with its revisions. Workers read it with each sweep, so that a claim costs nothing
more; what they hold goes on. A run is not changed by it. The engine, workers and `diagnosis` call it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stepkeep.errors import NotFound
from stepkeep.kernel.definition import QueueSpec
from stepkeep.operations import validate
from stepkeep.operations.access import Acting
from stepkeep.operations.instants import instant
from stepkeep.operations.settings import SettingKind, change_setting, read_setting
from stepkeep.safe_text import inert_line
from stepkeep.store.protocol import Store

NAME = "claims"
FRESH_SECONDS = 0.75
"""For how long the service goes by the pauses that it has read."""


class PauseNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who paused something, when (microseconds since 1970), and why."""

    by: str
    at: int
    reason: str = ""


class Pauses(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is paused in a tenant: all of it, or queues by their names. The default queue has the name ``""``."""

    tenant: PauseNote | None = None
    queues: dict[str, PauseNote] = {}

    def of(self, spec: QueueSpec) -> PauseNote | None:
        """Why nothing is claimed from this queue; None if it is not paused."""
        return self.tenant or self.queues.get(spec.group)

    def numbers(self, known: Iterable[tuple[int, QueueSpec]]) -> frozenset[int]:
        """The numbers of the queues that are not to be claimed from."""
        if self == NONE:
            return frozenset()
        return frozenset(number for number, spec in known if self.of(spec) is not None)


NONE = Pauses()


async def read_pauses(store: Store, tenant: str) -> Pauses:
    """What is paused now."""
    found = await read_setting(store, tenant, SettingKind.PAUSE, NAME)
    return NONE if found is None else msgspec.convert(found, Pauses)


async def list_pauses(store: Store, tenant: str) -> dict[str, Any]:
    """`{"pauses": [{"tenant" or "queue", "by", "since", "reason"}]}`."""
    return {"pauses": view(await read_pauses(store, tenant))}


def view(pauses: Pauses) -> list[dict[str, Any]]:
    """The pauses as JSON, that of the tenant first."""
    found = [] if pauses.tenant is None else [{"scope": "tenant", "queue": None, **_note(pauses.tenant)}]
    return found + [{"scope": "queue", "queue": name, **_note(note)} for name, note in sorted(pauses.queues.items())]


def _note(note: PauseNote) -> dict[str, Any]:
    return {"by": note.by, "since": instant(note.at), "reason": note.reason}


async def pause_claims(store: Store, tenant: str, queue: str | None, reason: str, *, acting: Acting) -> dict[str, Any]:
    """Pause a queue, or with None the whole tenant. What is paused already stays as it is."""
    if queue is not None:
        await _check_queue(store, tenant, queue)
    note = PauseNote(
        by=validate.key("the actor", acting["actor"]),
        at=await store.now(),
        reason=validate.words("the reason", reason),
    )

    def add(before: Pauses) -> Pauses:
        if queue is None:
            return before if before.tenant is not None else msgspec.structs.replace(before, tenant=note)
        return msgspec.structs.replace(before, queues={queue: note, **before.queues})

    return await _changed(store, tenant, add, acting)


async def resume_claims(store: Store, tenant: str, queue: str | None, *, acting: Acting) -> dict[str, Any]:
    """End the pause of a queue, or with None of the whole tenant; what is not paused stays as it is."""

    def remove(before: Pauses) -> Pauses:
        if queue is None:
            return msgspec.structs.replace(before, tenant=None)
        left = {name: note for name, note in before.queues.items() if name != queue}
        return msgspec.structs.replace(before, queues=left)

    return await _changed(store, tenant, remove, acting)


async def _check_queue(store: Store, tenant: str, queue: str) -> None:
    known = {spec.group for _, spec in await store.list_queues(tenant)}
    if queue not in known:
        names = ", ".join(sorted(name or '"" (the default queue)' for name in known)) or "none"
        raise NotFound(f"there is no queue {inert_line(queue, 100)!r}. The queues of published workflows: {names}.")


async def _changed(store: Store, tenant: str, change: Callable[[Pauses], Pauses], acting: Acting) -> dict[str, Any]:
    def changed(before: Any) -> Any:
        known = NONE if before is None else msgspec.convert(before, Pauses)
        return msgspec.to_builtins(change(known)) or None

    actor = validate.key("the actor", acting["actor"])
    found = await change_setting(store, tenant, SettingKind.PAUSE, NAME, changed, actor=actor)
    return {"pauses": view(NONE if found is None else msgspec.convert(found, Pauses))}


class PauseReader:
    """The pauses of tenants as a service knows them: those of at most `FRESH_SECONDS` ago."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, Pauses]] = {}

    async def read(self, store: Store, tenant: str) -> Pauses:
        """What is paused in the tenant."""
        read_at, known = self._known.get(tenant, (float("-inf"), NONE))
        now = self._monotonic()
        if now - read_at >= FRESH_SECONDS:
            known = await read_pauses(store, tenant)
            self._known[tenant] = (now, known)
        return known
