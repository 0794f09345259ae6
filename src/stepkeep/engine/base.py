"""What the parts and the groups of the engine share: the database, its caller, and what it starts runs with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from stepkeep.definition.python.registry import Registry
from stepkeep.engine.arguments import optional_key
from stepkeep.engine.blocking import Group
from stepkeep.engine.hosted import AsyncHostedWorker, RunWorkers
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.access import Access
from stepkeep.operations.messages.by_key import KeySender
from stepkeep.operations.operation import Remote
from stepkeep.operations.people.audit import AuditLog
from stepkeep.operations.pipeline.start import Starter
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.waiting import RunWaiter
from stepkeep.operations.streams.tailing import StreamTail
from stepkeep.operations.triggers.firing import Firer
from stepkeep.store.protocol import Store

if TYPE_CHECKING:
    from stepkeep.metrics.exposition import Exposition
    from stepkeep.worker.loop import Worker

G = TypeVar("G", bound="AsyncGroup")


class _Requester:
    """In whose name something is asked for. With a `remote`, each operation is sent to a service."""

    access: Access
    admitted: str | None = None
    """The operation that the caller was admitted to already: it is not asked for again."""
    remote: Remote | None = None

    def _caller(self, by: str | None) -> Caller:
        """Who is on record: the person that the host program names, or the engine's own actor."""
        return self.access.caller(optional_key("by", by))


class AsyncBase(_Requester):
    """An engine on an open database, as its parts see it. A client has the same parts, and a `remote`."""

    policies: dict[str, Any]
    tenant: str
    actor: str
    registry: Registry
    store: Store
    transactor: Transactor
    worker: Callable[..., Worker]
    _starter: Starter
    _firer: Firer
    _key_sender: KeySender
    _waiting: RunWaiter
    stream_tail: StreamTail
    _own: RunWorkers
    _hosted: Sequence[AsyncHostedWorker]
    _exposition: Exposition | None
    _installed: set[int]
    _plans: dict[int, tuple[Definition, Plan]]
    _dev: bool
    _key_scope: str | None = None

    def _work_on(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Work on this store, with batches, plans and waiters of its own."""
        self.store = store
        self.access.audit_log = AuditLog(store, monotonic)
        self.transactor = Transactor(store, monotonic=monotonic)
        self._starter = Starter(self.transactor)
        self._firer = Firer(self.transactor, self._starter)
        self._installed, self._plans = set(), {}
        self._key_sender = KeySender(self.transactor, self._starter)
        self._waiting = RunWaiter(self.transactor)
        self.stream_tail = StreamTail(store)

    async def _finish(self) -> None:
        """Stop waiting for runs, and write what waits to be written."""
        await self._waiting.close()
        await self.stream_tail.close()
        if self.transactor.spans is not None:
            await self.transactor.spans.written()
        if self.access.audit_log is not None:
            await self.access.audit_log.close()

    def _scope(self) -> str:
        """Whose idempotency keys this engine uses."""
        return self.access.key_scope if self._key_scope is None else self._key_scope


class AsyncGroup(_Requester):
    """Methods that the engine offers as one of its attributes, such as `engine.slots`."""

    def __init__(self, engine: AsyncBase) -> None:
        self.access, self._store, self._transactor = engine.access, engine.store, engine.transactor
        self._starter = engine._starter

    @property
    def _tenant(self) -> str:
        return self.access.tenant


def group_at(kind: type[G], remote: Remote) -> G:
    """The methods of a group at a service."""
    found = kind.__new__(kind)
    found.remote = remote
    return found


def part(kind: type[G], words: str) -> Group[G]:
    """A group of the engine; of a client, whose operations are sent to its service."""
    return Group(lambda host: kind(host) if host.remote is None else group_at(kind, host.remote), words, kind.__name__)
