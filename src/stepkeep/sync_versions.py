"""Versions of workflows for programs without an event loop: the methods of `versions`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from typing import Any

from stepkeep.sync_administration import Call
from stepkeep.versions import AsyncVersions


class Versions:
    """Withdraws published versions, and restores them.

    >>> _ = engine.publish(hello)
    >>> engine.versions.withdraw("hello", 1, reason="it greets the wrong person")["state"]
    'withdrawn'
    """

    def __init__(self, core: AsyncVersions, call: Call) -> None:
        self._core, self._call = core, call

    def withdraw(self, workflow: str, version: int, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Let no run of a published version start any more. Its live runs go on.

        The answer names the triggers that would start it: their firings are refused on record.

        >>> _ = engine.publish(hello)
        >>> engine.versions.withdraw("hello", 1, reason="it greets the wrong person")["triggers"]
        []
        """
        return self._call(self._core.withdraw(workflow, version, reason=reason, by=by))

    def restore(self, workflow: str, version: int, *, by: str | None = None) -> dict[str, Any]:
        """Let runs of a withdrawn version start again.

        >>> _ = engine.publish(hello)
        >>> _ = engine.versions.withdraw("hello", 1, reason="it greets the wrong person")
        >>> engine.versions.restore("hello", 1)["state"]
        'published'
        """
        return self._call(self._core.restore(workflow, version, by=by))
