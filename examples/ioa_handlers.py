"""Agents for the examples in the ioa dialect: small, offline, and the same every time.

Each may be told what to do by the run's input: `fail_at` names a step that fails for good, `flaky_at` one whose first
attempt fails, `slow_at` one that outlasts its timeout, `stuck_at` one that cannot be taken back.
"""

from __future__ import annotations

import asyncio
from typing import Any

import stepkeep as sk

AGENTS = (
    "growth-optimizer",
    "product-analyst",
    "data-pipeline",
    "content-writer",
    "content-reviewer",
    "legal-reviewer",
    "release-manager",
)


async def work(ctx: sk.Context, action: str, inputs: Any) -> dict[str, Any]:
    """Do what the action says, or what the input of the run asks for instead."""
    asked = ctx.input if isinstance(ctx.input, dict) else {}
    ctx.cost(usd=0.002, tokens=150)
    if ctx.undoing:
        if asked.get("stuck_at") == ctx.step:
            raise sk.fail(f"{ctx.step} cannot be taken back")
        return {"undone": ctx.step, "by": action}
    if asked.get("fail_at") == ctx.step:
        raise sk.fail(f"{ctx.step} was told to fail", category="agent")
    if asked.get("flaky_at") == ctx.step and ctx.attempt == 1:
        raise ConnectionError(f"{ctx.step} was told to fail once")
    if asked.get("slow_at") == ctx.step:
        await asyncio.sleep(3600)
    return {"done": action, "key": ctx.idempotency_key}


for name in AGENTS:
    sk.agent(name)(work)
