"""Which queues a worker serves: those whose steps it can run with the handlers, capabilities and groups it has.

A queue stands for an executor, a handler's name, required capabilities and perhaps a named group; a worker asks only
for what it can run, so that nothing is claimed in vain. A queue also tells, before anything is claimed from it, whether
its steps cost no more than a place on an event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from stepkeep.definition.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import QueueSpec
from stepkeep.worker.executor import Where
from stepkeep.worker.executors.python import PLACES
from stepkeep.worker.settings import Settings


class Kind(StrEnum):
    """What an attempt takes: `wide` work waits on an event loop and costs next to nothing while it does, `narrow` work
    has a thread, a process, a program, a request or a transaction to itself."""

    WIDE = "wide"
    NARROW = "narrow"


@dataclass(frozen=True)
class Served:
    """The ids of the queues that a worker serves, by the kind of their work."""

    wide: frozenset[int] = frozenset()
    narrow: frozenset[int] = frozenset()

    @cached_property
    def all(self) -> frozenset[int]:
        return self.wide | self.narrow

    def of(self, kind: Kind) -> frozenset[int]:
        return self.narrow if kind is Kind.NARROW else self.wide


def served_queues(
    known: Iterable[tuple[int, QueueSpec]],
    registry: Registry,
    *,
    capabilities: frozenset[str],
    groups: frozenset[str] | None,
    settings: Settings,
    unable: frozenset[Where] = frozenset(),
) -> Served:
    """The queues this worker can serve. `groups` None means all; the unnamed group is written ``""``.

    `unable` names the places that cannot run work now.
    """
    served = {
        number: _is_wide(spec, registry)
        for number, spec in known
        if _can_run(spec, registry, settings)
        and (not unable or _where(spec, registry) not in unable)
        and capabilities.issuperset(spec.capabilities)
        and (groups is None or spec.group in groups or spec.kind == "rules")
    }
    if settings.pool == settings.concurrency:
        # Whoever may have every place is not limited further, and one look for work serves all.
        return Served(wide=frozenset(served))
    wide = frozenset(number for number, is_wide in served.items() if is_wide)
    return Served(wide=wide, narrow=frozenset(served) - wide)


def _handler(spec: QueueSpec, registry: Registry) -> HandlerSpec | None:
    match spec.kind:
        case "python":
            return registry.get(spec.name)
        case "agent":
            return registry.agent(spec.name)
        case _:
            return None


def _is_wide(spec: QueueSpec, registry: Registry) -> bool:
    handler = _handler(spec, registry)
    return handler is not None and handler.runs_in == "async" and not handler.transactional


def _where(spec: QueueSpec, registry: Registry) -> Where:
    handler = _handler(spec, registry)
    if handler is not None:
        return PLACES[handler.runs_in]
    return Where.RULES if spec.kind == "rules" else Where.LOOP


def _can_run(spec: QueueSpec, registry: Registry, settings: Settings) -> bool:
    match spec.kind:
        case "python" | "agent":
            return _handler(spec, registry) is not None
        case "command":
            return settings.commands.enabled
        case "http":
            return settings.http.enabled
        case "rules":
            return True
        case _:
            return False
