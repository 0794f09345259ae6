"""The names of handlers that every worker has by itself. Front ends write them; no application registers them."""

from __future__ import annotations

from typing import Final

from stepkeep.kernel.definition import Handler, QueueSpec

BUILT_IN: Final = "stepkeep."
"""The beginning of names that belong to the engine."""

WORKTREE: Final = f"{BUILT_IN}worktree."
"""The beginning of the names of actions on git worktrees."""


def is_built_in(executor: object) -> bool:
    """Whether this executor is one of the actions on worktrees."""
    return isinstance(executor, Handler) and executor.name.startswith(WORKTREE)


def kind_of(spec: QueueSpec) -> str:
    """What a worker must be able to run for a queue: the actions on worktrees are programs."""
    return "command" if spec.kind == "python" and spec.name.startswith(WORKTREE) else spec.kind
