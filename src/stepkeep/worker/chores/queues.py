"""Chooses the queues that a worker serves: those whose steps its handlers, capabilities and groups can run.

A queue stands for an executor, a handler's name, required capabilities and an optional named group. A worker claims
only from queues that it can serve. A queue also tells, before a claim, whether its steps are async or blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from stepkeep.definition.expressions.scope import CAPABILITY
from stepkeep.definition.native.build import COMMANDS, HANDLER, flow_version, has_word
from stepkeep.definition.python.registry import WORKTREE, HandlerSpec, Registry
from stepkeep.kernel.definition import QueueSpec
from stepkeep.worker.attempts.executor import PoolKind
from stepkeep.worker.executors.python import POOLS
from stepkeep.worker.executors.worktree import may_use_git
from stepkeep.worker.settings import Settings


class Kind(StrEnum):
    """The kind of an attempt. `async` work waits on an event loop and costs almost nothing while it waits;
    `blocking` work holds a thread, a process, a program, a request or a transaction."""

    ASYNC = "async"
    BLOCKING = "blocking"


@dataclass(frozen=True)
class Served:
    """The ids of the queues that a worker serves, by kind."""

    async_: frozenset[int] = frozenset()
    blocking: frozenset[int] = frozenset()

    @cached_property
    def all(self) -> frozenset[int]:
        return self.async_ | self.blocking

    def of(self, kind: Kind) -> frozenset[int]:
        return self.blocking if kind is Kind.BLOCKING else self.async_


def served_queues(
    known: Iterable[tuple[int, QueueSpec]],
    registry: Registry,
    *,
    capabilities: frozenset[str],
    groups: frozenset[str] | None,
    settings: Settings,
    unable: frozenset[PoolKind] = frozenset(),
    has_secret: Callable[[str], bool] = lambda name: True,
    paused: frozenset[int] = frozenset(),
) -> Served:
    """The queues this worker can serve. `groups` None means all; the unnamed group is written ``""``.

    `unable` names the pools that cannot run handlers now; `has_secret` tells whether this worker has a secret. `paused`
    are the queues whose handlers did not fit a step, and those that people paused.
    """

    def can(word: str) -> bool:
        if word.startswith(CAPABILITY):
            return has_secret(word.removeprefix(CAPABILITY))
        if word.startswith(HANDLER):
            return registry.get(word.removeprefix(HANDLER)) is not None
        if flow_version([word]) is not None:
            # It is asked of the handler itself.
            return True
        return settings.commands.enabled if word == COMMANDS else has_word(capabilities, word)

    served = {
        number: _is_async(spec, registry)
        for number, spec in known
        if number not in paused
        and _can_run(spec, registry, settings)
        and (not unable or _pool(spec, registry) not in unable)
        and all(map(can, spec.capabilities))
        and (groups is None or spec.group in groups or spec.kind == "rules")
    }
    if settings.pool == settings.concurrency:
        # If blocking work may use every slot, it needs no limit of its own, and one poll serves all.
        return Served(async_=frozenset(served))
    waiting = frozenset(number for number, is_async in served.items() if is_async)
    return Served(async_=waiting, blocking=frozenset(served) - waiting)


def _handler(spec: QueueSpec, registry: Registry) -> HandlerSpec | None:
    match spec.kind:
        case "python":
            return registry.get(spec.name, flow_version(spec.capabilities))
        case "agent":
            return registry.agent(spec.name)
        case _:
            return None


def _is_async(spec: QueueSpec, registry: Registry) -> bool:
    handler = _handler(spec, registry)
    return handler is not None and handler.runs_in == "async" and not handler.transactional


def _pool(spec: QueueSpec, registry: Registry) -> PoolKind:
    handler = _handler(spec, registry)
    if handler is not None:
        return POOLS[handler.runs_in]
    return PoolKind.RULES if spec.kind == "rules" else PoolKind.LOOP


def _can_run(spec: QueueSpec, registry: Registry, settings: Settings) -> bool:
    match spec.kind:
        case "python" if spec.name.startswith(WORKTREE):
            return may_use_git(settings.commands)
        case "python" | "agent":
            return _handler(spec, registry) is not None
        case _:
            return spec.kind in allowed_kinds(settings)


def allowed_kinds(settings: Settings) -> tuple[str, ...]:
    """The executors that need no handler, as far as this worker may run them."""
    policies = {"command": settings.commands.enabled, "http": settings.http.enabled, "rules": True}
    return tuple(kind for kind, allowed in policies.items() if allowed)
