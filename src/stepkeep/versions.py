"""Versions of workflows as the engine offers them: `engine.versions`. Each method calls one operation.

`sync_versions` has the same methods for programs without an event loop. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine_arguments import optional_key
from stepkeep.operations import withdrawn
from stepkeep.operations.access import Access, guarded
from stepkeep.operations.transact import Transactor


@guarded("versions.")
class AsyncVersions:
    """Withdraws published versions, and restores them."""

    def __init__(self, transactor: Transactor, access: Access, withdrawals: withdrawn.Withdrawals) -> None:
        self._transactor, self.access, self._withdrawals = transactor, access, withdrawals

    async def withdraw(self, workflow: str, version: int, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Let no run of a published version start any more. Its live runs go on.

        The answer names the triggers that would start it: their firings are refused on record.
        """
        actor = self.access.acting(optional_key("by", by))["actor"]
        told = await withdrawn.withdraw(
            self._transactor, workflow, version, tenant=self.access.tenant, actor=actor, reason=reason
        )
        self._withdrawals.forget(self.access.tenant)
        return told

    async def restore(self, workflow: str, version: int, *, by: str | None = None) -> dict[str, Any]:
        """Let runs of a withdrawn version start again."""
        actor = self.access.acting(optional_key("by", by))["actor"]
        told = await withdrawn.restore(self._transactor, workflow, version, tenant=self.access.tenant, actor=actor)
        self._withdrawals.forget(self.access.tenant)
        return told
