"""The queues of the steps that a run adds: their numbers, which are made where no definition has asked for them before.
And the versions of the workflows that calls start.

`attempts` asks for them before it reports new calls of a flow or steps of a handler, and the service does for remote
workers. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from stepkeep.definition.native.added import Template
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.machine.outcomes import Added, NewCall, Suspended
from stepkeep.kernel.plan import NO_QUEUE
from stepkeep.store.protocol import Store

R = TypeVar("R", bound=Suspended | Added)


class NewStep(Protocol):
    """A call of a flow, or a step that a handler adds, before the numbers of its queues are known."""

    @property
    def template(self) -> Template: ...

    def new(self, queue: int, undo_queue: int) -> NewCall: ...


class CallQueues:
    """The numbers of queues of one tenant. `changed` is awaited after new queues were made."""

    def __init__(self, store: Store, tenant: str, changed: Callable[[], Awaitable[None]]) -> None:
        self._store, self._tenant, self._changed = store, tenant, changed
        self._known: dict[QueueSpec | None, int] = {None: NO_QUEUE}
        self._reading = asyncio.Lock()

    def resolved(self, outcome: R, asked: Sequence[NewStep]) -> R | None:
        """The report with its new calls; None if a queue is not known here."""
        known, calls = self._known, list[NewCall]()
        for call in asked:
            template = call.template
            if template.child is not None or template.queue not in known or template.undo_queue not in known:
                return None
            calls.append(call.new(known[template.queue], known[template.undo_queue]))
        return replace(outcome, calls=tuple(calls))

    async def resolve(self, outcome: R, asked: Sequence[NewStep]) -> R:
        """The same; reads the queues, makes those that do not exist, and pins the workflows that calls start."""
        asked = [await self._pinned(call) for call in asked]
        async with self._reading:
            found = self.resolved(outcome, asked)
            return await self._resolve_anew(outcome, asked) if found is None else found

    async def _resolve_anew(self, outcome: R, asked: Sequence[NewStep]) -> R:
        await self._read()
        wanted = dict.fromkeys(spec for call in asked for spec in (call.template.queue, call.template.undo_queue))
        missing = [spec for spec in wanted if spec is not None and spec not in self._known]
        for spec in missing:
            await self._store.add_queue(self._tenant, spec)
        if missing:
            await self._read()
        await self._changed()
        found = self.resolved(outcome, asked)
        assert found is not None
        return found

    async def _pinned(self, call: NewStep) -> NewStep:
        """The call with the version of its child. The child of a workflow that is not published cannot start: its
        first version is asked for, and the call fails."""
        if call.template.child is None:
            return call
        assert isinstance(call, msgspec.Struct)
        name, version = call.template.child
        stored = await self._store.read_definition(self._tenant, name, version or None)
        return replace(call, template=call.template.pinned((version or 1) if stored is None else stored.version))

    async def _read(self) -> None:
        self._known |= {spec: number for number, spec in await self._store.list_queues(self._tenant)}
