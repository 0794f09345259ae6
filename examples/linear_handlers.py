"""Handlers for examples/linear.yaml: what seed 002 calls Completed, Waiting, Retry and Dead, each in one line.

The input may say `fail_at` or `flaky_at` with a step's type, and how long (`patience`) the payment is waited for.
"""

from __future__ import annotations

from typing import Any

import stepkeep as sk


@sk.step("VALIDATE")
def validate(ctx: sk.Context, order: str) -> dict[str, str]:
    """Completed, or Dead, or Retry."""
    _as_told(ctx, "VALIDATE")
    return {"order": order}


@sk.step("PAY")
def pay(ctx: sk.Context, order: str, patience: str = "1d") -> Any:
    """Waiting for the payment; what woke the step says whether it came."""
    _as_told(ctx, "PAY")
    if ctx.woken_by is None:
        asked = {"name": "payment.requested", "payload": {"order": order}}
        return sk.wait_for("payment.settled", timeout=patience, emit=[asked])
    if ctx.woken_by.timed_out:
        raise sk.fail(f"no payment came for {order} within {patience}", category="timeout")
    return {"paid": ctx.woken_by.payload}


@sk.step("warehouse.ship")
def ship(ctx: sk.Context, order: str) -> dict[str, str]:
    """Completed: the last step, so the instance is COMPLETED too."""
    _as_told(ctx, "SHIP")
    return {"shipped": order}


def _as_told(ctx: sk.Context, step_type: str) -> None:
    asked = ctx.input if isinstance(ctx.input, dict) else {}
    if asked.get("fail_at") == step_type:
        raise sk.fail(f"{step_type} was told to die")
    if asked.get("flaky_at") == step_type and ctx.attempt == 1:
        raise sk.retry_in("50ms", f"{step_type} was told to fail once")
