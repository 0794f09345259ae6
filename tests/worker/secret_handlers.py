"""Handlers that are given a secret, use it, and say it wherever they can."""

from __future__ import annotations

import base64
from typing import Any

import stepkeep as sk

SEEN: list[tuple[str, str]] = []


def speak(ctx: sk.Context, mode: str, token: str) -> dict[str, Any]:
    """The first attempt fails and quotes the secret in every way; the second succeeds and returns nothing of it."""
    SEEN.append((mode, token))
    ctx.logger.warning("%s uses %s", mode, token)
    ctx.cost(usd=0.5)
    if ctx.attempt == 1:
        spelled = base64.b64encode(f"ada:{token}".encode()).decode()
        try:
            raise KeyError(token)
        except KeyError as cause:
            raise RuntimeError(f"{mode} refused {token!r} ({spelled}) {'x' * 5000}{token}{'y' * 5000}") from cause
    ctx.emit("spoken", {"mode": mode})
    return {"mode": mode, "length": len(token)}


async def in_loop(ctx: sk.Context, token: str) -> dict[str, Any]:
    return speak(ctx, "async", token)


def in_thread(ctx: sk.Context, token: str) -> dict[str, Any]:
    return speak(ctx, "thread", token)


def in_process(ctx: sk.Context, token: str) -> dict[str, Any]:
    return speak(ctx, "process", token)


def in_transaction(ctx: sk.Context, token: str) -> dict[str, Any]:
    return speak(ctx, "transaction", token)


async def as_agent(ctx: sk.Context, action: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return speak(ctx, "agent", inputs["token"])


def undo(ctx: sk.Context, token: str) -> None:
    ctx.logger.warning("undone with %s", token)
    raise sk.fail(f"cannot be undone with {token}")


def returns(ctx: sk.Context, token: str, how: str) -> Any:
    match how:
        case "output":
            return {"token": token}
        case "part":
            return f"Bearer {token}"
        case "number":
            return int(token) if token.isdigit() else token
        case "event":
            ctx.emit("told", {"token": token})
        case "event name":
            ctx.emit(f"told.{token[:8]}")
        case "wait":
            return sk.wait_for(token[:200])
        case "cost":
            ctx.cost(**{token: 1.0})
        case "cost of a failure":
            ctx.cost(**{token: 1.0})
            raise sk.fail("no")
    return None
