"""Versions of workflows as the engine offers them: `engine.versions`. Each method calls one operation.

It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import withdrawn
from stepkeep.operations.access import guarded


@guarded("versions.")
class AsyncVersions(AsyncGroup):
    """Withdraws published versions, and restores them.

    >>> _ = engine.publish(hello)
    >>> engine.versions.withdraw("hello", 1, reason="it greets the wrong person")["state"]
    'withdrawn'
    """

    async def withdraw(self, workflow: str, version: int, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Let no run of a published version start any more. Its live runs go on.

        The answer names the triggers that would start it: their firings are refused on record.

        >>> _ = engine.publish(hello)
        >>> engine.versions.withdraw("hello", 1, reason="it greets the wrong person")["triggers"]
        []
        """
        actor = self._actor(by)
        told = await withdrawn.withdraw(
            self._transactor, workflow, version, tenant=self._tenant, actor=actor, reason=reason
        )
        self._starter.withdrawals.forget(self._tenant)
        return told

    async def restore(self, workflow: str, version: int, *, by: str | None = None) -> dict[str, Any]:
        """Let runs of a withdrawn version start again.

        >>> _ = engine.publish(hello)
        >>> _ = engine.versions.withdraw("hello", 1, reason="it greets the wrong person")
        >>> engine.versions.restore("hello", 1)["state"]
        'published'
        """
        actor = self._actor(by)
        told = await withdrawn.restore(self._transactor, workflow, version, tenant=self._tenant, actor=actor)
        self._starter.withdrawals.forget(self._tenant)
        return told


class Versions(Blocking[AsyncVersions]):
    withdraw = blocking(AsyncVersions.withdraw)
    restore = blocking(AsyncVersions.restore)
