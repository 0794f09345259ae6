"""Limits on running runs for programs without an event loop: the methods of `execution_slots`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from typing import Any

from stepkeep.execution_slots import AsyncSlots
from stepkeep.sync_administration import Call


class Slots:
    """Limits on running runs: of the tenant, and of workflows. A run that finds no free slot stays queued.

    >>> engine.slots.list()["slots"]
    []
    """

    def __init__(self, core: AsyncSlots, call: Call) -> None:
        self._core, self._call = core, call

    def list(self) -> dict[str, Any]:
        """The limits, and how many runs hold a slot and wait for one under each.

        >>> _ = engine.slots.set(5)
        >>> [(one["scope"], one["most"], one["held"], one["waiting"]) for one in engine.slots.list()["slots"]]
        [('tenant', 5, 0, 0)]
        """
        return self._call(self._core.list())

    def set(self, most: int, *, workflow: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Let at most this many runs of a workflow run, or of the whole tenant. It counts before the `slots` of a
        definition. Runs that are running go on, and runs that started under no limit are not counted.

        >>> _ = engine.publish(hello)
        >>> engine.slots.set(2, workflow="hello", by="bea")["slots"][0]["most"]
        2
        """
        return self._call(self._core.set(most, workflow=workflow, by=by))

    def clear(self, *, workflow: str | None = None, by: str | None = None) -> dict[str, Any]:
        """End the limit that was set for a workflow, or for the whole tenant. The `slots` of a definition stay.

        >>> _ = engine.slots.set(5)
        >>> engine.slots.clear()["slots"]
        []
        """
        return self._call(self._core.clear(workflow=workflow, by=by))
