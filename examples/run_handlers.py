"""Handlers for examples/run.yaml: a model and a tool that only pretend, offline and the same every time.

The input may say `fail_at`, `flaky_at` or `slow_at` with a handler's name, to see a failure, a retry or a timeout.
"""

from __future__ import annotations

import asyncio
from typing import Any

import stepkeep as sk


@sk.step("LLM")
async def model(ctx: sk.Context, topic: str = "nothing") -> dict[str, Any]:
    """Draft, or sum up what came before; what it cost is kept even if it fails."""
    ctx.cost(usd=252 * 0.000002, tokens=252)
    await _as_told(ctx, "LLM")
    return {"text": f"{ctx.step} on {topic}"}


@sk.step("TOOL")
async def tool(ctx: sk.Context, topic: str = "nothing") -> dict[str, Any]:
    """Act once; the idempotency key is the same in every attempt."""
    await _as_told(ctx, "TOOL")
    return {"looked_up": topic, "key": ctx.idempotency_key}


async def _as_told(ctx: sk.Context, handler: str) -> None:
    asked = ctx.input if isinstance(ctx.input, dict) else {}
    if asked.get("fail_at") == handler:
        raise sk.fail(f"{handler} was told to fail")
    if asked.get("flaky_at") == handler and ctx.attempt == 1:
        raise ConnectionError(f"{handler} was told to fail once")
    if asked.get("slow_at") == handler:
        await asyncio.sleep(3600)
