"""Handlers for examples/action.yaml: one per operation, small, offline, and the same every time.

Each may be told what to do by the run's input: `"fail_at": "payment:capture"` fails that operation for good,
`"flaky_at"` only its first attempt, `"stuck_at"` one that compensates, and `"slow_at"` lets one take too long.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import stepkeep as sk


@sk.step("invoice:read")
def read_invoice(ctx: sk.Context, invoice: str) -> dict[str, Any]:
    """Look an invoice up."""
    _as_told(ctx, "invoice:read")
    return {"invoice": invoice, "amount": 1000}


@sk.step("invoice:write")
def write_invoice(ctx: sk.Context, invoice: str, amount: int) -> dict[str, Any]:
    """Write a corrected invoice beside the old one."""
    _as_told(ctx, "invoice:write")
    return {"invoice": f"{invoice}-corrected", "amount": amount}


@sk.step("invoice:reverse")
def reverse_invoice(
    ctx: sk.Context,
    invoiceId: str,  # noqa: N803 - the name that the schema gives it
    reason: str,
    difference: int,
) -> dict[str, Any]:
    """Take a corrected invoice back by a reversal; the original stays on record."""
    _as_told(ctx, "invoice:reverse")
    return {"reversed": invoiceId, "because": reason, "difference": difference, "key": ctx.idempotency_key}


@sk.step("message:send")
async def send_message(ctx: sk.Context, invoice: str) -> dict[str, str]:
    """Tell the customer."""
    _as_told(ctx, "message:send")
    if _told(ctx).get("slow_at") == "message:send":
        await asyncio.sleep(60)
    return {"message": _id("msg", f"{ctx.idempotency_key} {invoice}")}


@sk.step("payment:capture")
def capture_payment(ctx: sk.Context, invoice: str, amount: int) -> dict[str, Any]:
    """Charge the difference. The idempotency key keeps a second attempt from charging twice."""
    _as_told(ctx, "payment:capture")
    return {"payment": _id("pay", f"{ctx.idempotency_key} {invoice}"), "amount": amount}


@sk.step("payment:refund")
def refund_payment(ctx: sk.Context, payment: str) -> dict[str, str]:
    """Give a payment back."""
    _as_told(ctx, "payment:refund")
    return {"refunded": payment}


@sk.step("posting:confirm")
def confirm_posting(ctx: sk.Context) -> None:
    """Ask the bookkeeper to confirm; a real one would send them `ctx.completion_token`."""
    _as_told(ctx, "posting:confirm")


def _told(ctx: sk.Context) -> dict[str, Any]:
    return ctx.input if isinstance(ctx.input, dict) else {}


def _as_told(ctx: sk.Context, operation: str) -> None:
    told = _told(ctx)
    if operation in (told.get("fail_at"), told.get("stuck_at")):
        raise sk.fail(f"{operation} was told to fail", category="conflict")
    if told.get("flaky_at") == operation and ctx.attempt == 1:
        raise ConnectionError(f"{operation} was told to fail once")


def _id(kind: str, of: str) -> str:
    return f"{kind}_{hashlib.sha256(of.encode()).hexdigest()[:10]}"
