"""Which queues a worker serves: those whose steps it can run with the handlers, capabilities and groups it has.

A queue stands for an executor, a handler's name, required capabilities and perhaps a named group; a worker asks only
for what it can run, so that nothing is claimed in vain.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepkeep.definition.registry import Registry
from stepkeep.kernel.definition import QueueSpec
from stepkeep.worker.settings import Settings


def served_queues(
    known: Iterable[tuple[int, QueueSpec]],
    registry: Registry,
    *,
    capabilities: frozenset[str],
    groups: frozenset[str] | None,
    settings: Settings,
) -> frozenset[int]:
    """The ids of the queues this worker can serve. `groups` None means all; the unnamed group is written ``""``."""
    return frozenset(
        number
        for number, spec in known
        if _can_run(spec, registry, settings)
        and capabilities.issuperset(spec.capabilities)
        and (groups is None or spec.group in groups or spec.kind == "rules")
    )


def _can_run(spec: QueueSpec, registry: Registry, settings: Settings) -> bool:
    match spec.kind:
        case "python":
            return registry.get(spec.name) is not None
        case "agent":
            return registry.agent(spec.name) is not None
        case "command":
            return settings.commands.enabled
        case "http":
            return settings.http.enabled
        case "rules":
            return True
        case _:
            return False
