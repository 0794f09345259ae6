"""Handlers that look at everything they can see, and then leave a mark on everything they can reach."""

from __future__ import annotations

import json
import os
from contextvars import ContextVar
from typing import Any

import stepkeep as sk

WHO: ContextVar[str] = ContextVar("who", default="")
TOKENS: dict[str, str] = {}
SEEN: list[dict[str, Any]] = []


def look(ctx: sk.Context, mode: str, mine: str, fixed: dict[str, Any]) -> dict[str, Any]:
    """What this attempt sees, before it leaves its marks; the first attempt fails and tells what it saw."""
    seen = {
        "mode": mode,
        "mine": mine,
        "fixed": json.loads(json.dumps(fixed)),
        "input": json.loads(json.dumps(ctx.input)),
        "outputs": json.loads(json.dumps(dict(ctx.outputs))),
        "key": ctx.idempotency_key,
        "business_key": ctx.business_key,
        "correlation_id": ctx.correlation_id,
        "emitted": len(ctx.emitted),
        "spent": None if ctx.spent is None else ctx.spent.decode(),
        "who": WHO.get(),
    }
    mark = f"MARK/{mine}/{mode}/{ctx.attempt}"
    if mode == "process":
        seen |= {"environment": os.environ.get("STEPKEEP_CANARY", ""), "cwd": os.getcwd(), "umask": os.umask(0o22)}
        os.environ["STEPKEEP_CANARY"] = mark
        os.environ.pop("HOME", None)
        os.chdir("/")
        os.umask(0o77)
    fixed["notes"].append(mark)
    fixed["mark"] = mark
    ctx.input["mark"] = mark
    for output in ctx.outputs.values():
        if isinstance(output, dict):
            output["mark"] = mark
    WHO.set(mark)
    ctx.cost(usd=1.0)
    ctx.emit("looked", {"mine": mine, "mode": mode})
    SEEN.append({"run": ctx.run_id, "tenant": ctx.tenant, "attempt": ctx.attempt, "seen": seen})
    if ctx.attempt == 1:
        raise RuntimeError(f"{mark} saw {json.dumps(seen)}")
    return seen


async def in_loop(ctx: sk.Context, mine: str, fixed: dict[str, Any]) -> dict[str, Any]:
    return look(ctx, "async", mine, fixed)


def in_thread(ctx: sk.Context, mine: str, fixed: dict[str, Any]) -> dict[str, Any]:
    return look(ctx, "thread", mine, fixed)


def in_process(ctx: sk.Context, mine: str, fixed: dict[str, Any]) -> dict[str, Any]:
    return look(ctx, "process", mine, fixed)


async def as_agent(ctx: sk.Context, action: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return look(ctx, "agent", inputs["mine"], inputs["fixed"]) | {"action": action}


def in_transaction(ctx: sk.Context, mine: str, fixed: dict[str, Any]) -> dict[str, Any]:
    ctx.connection.execute("create temp table canary_notes (mine text)")
    ctx.connection.execute(f"insert into canary_notes values ('{mine}')")
    return look(ctx, "transaction", mine, fixed)


def by_hand(ctx: sk.Context, mine: str, fixed: dict[str, Any]) -> dict[str, Any]:
    TOKENS[mine] = str(ctx.completion_token)
    return look(ctx, "manual", mine, fixed)


async def waits(ctx: sk.Context, mine: str, fixed: dict[str, Any]) -> Any:
    if ctx.woken_by is None:
        WHO.set(f"MARK/{mine}/waits/0")
        return sk.wait_for("paid")
    woken = ctx.woken_by.payload
    return look(ctx, "waits", mine, fixed) | {"woken_by": woken}
