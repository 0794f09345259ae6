"""An engine in the name of a caller that the service has authenticated, without a copy of the engine.

It has the caller, and asks the engine for everything else. The service makes one for each request, and one for each
tenant where the database keeps its role to one tenant at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepkeep.engine.base import AsyncBase
from stepkeep.engine.groups import AsyncOperations
from stepkeep.operations.access import Access
from stepkeep.operations.quotas import QuotaKeeper
from stepkeep.operations.spans import find_spans
from stepkeep.store.protocol import Store


class ActingEngine(AsyncOperations):
    """The operations of an engine for one caller. `admitted` names the operation that the caller was admitted to."""

    def __init__(
        self, engine: AsyncBase, access: Access, *, admitted: str | None = None, key_scope: str | None = None
    ) -> None:
        self._engine, self.access, self.admitted, self._key_scope = engine, access, admitted, key_scope
        self.tenant, self.actor = access.tenant, access.actor

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._engine, name)

    @property
    def quotas(self) -> QuotaKeeper:
        """The quotas that this process knows."""
        return self._starter.quotas


class TenantEngine(ActingEngine):
    """The engine of one tenant on a store of its own: its batches, plans and waiters are not those of others."""

    def __init__(self, engine: AsyncBase, store: Store, tenant: str) -> None:
        super().__init__(engine, Access(store, tenant, engine.actor))
        self._work_on(store)
        self.transactor.payloads.use_settings_of(engine.transactor.payloads)
        self.transactor.measures = engine.transactor.measures
        self.transactor.spans = find_spans(store, self.transactor.plans)
        self.quotas.default = engine._starter.quotas.default
