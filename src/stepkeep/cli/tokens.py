"""Completion tokens that were issued in this process: the database has only their hashes, so they are kept here.

Imported only by commands that run steps. Nothing is stored; the user of the command sees each token once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepkeep.operations.people.people import token_hash
from stepkeep.worker.runtime import Runtime

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.kernel.plan import Plan


class NotingRuntime(Runtime):
    """The worker's runtime, which also keeps the tokens that it created."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def token(self) -> str:
        drawn = super().token()
        self.tokens.append(drawn)
        return drawn


async def open_tokens(engine: AsyncEngine, run_id: str, plan: Plan, drawn: list[str]) -> dict[str, str]:
    """Which of these tokens belongs to which waiting step."""
    if not drawn:
        return {}
    by_hash = {token_hash(token): token for token in drawn}
    steps = await engine.store.read_steps(engine.tenant, run_id)
    return {
        plan.of(step).name: by_hash[step.note.token]
        for step in steps
        if step.state == "awaiting_completion" and step.note is not None and step.note.token in by_hash
    }
