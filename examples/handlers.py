"""Handlers for the example workflows: small, offline, and the same every time.

Each may be told to fail: start a run with `"fail_at": "workspace.provision"` in its input, and the handler of that name
fails for good; with `"flaky_at"`, its first attempt fails and the second succeeds.
"""

from __future__ import annotations

import hashlib
from typing import Any

import stepkeep as sk


@sk.step("accounts.create", retry=sk.Retry(max_attempts=3, initial="200ms"), timeout="30s")
def create_account(ctx: sk.Context, email: str) -> dict[str, str]:
    """Open an account."""
    _fail_on_demand(ctx, "accounts.create")
    return {"account_id": _id("acc", email), "email": email}


@sk.step("accounts.deactivate", timeout="30s")
def deactivate_account(ctx: sk.Context, account_id: str) -> dict[str, str]:
    """Close an account; the same again when it is closed already."""
    _fail_on_demand(ctx, "accounts.deactivate")
    return {"deactivated": account_id}


@sk.step("workspace.provision", timeout="1m")
def provision_workspace(ctx: sk.Context, account_id: str, seats: int = 5) -> dict[str, Any]:
    """Make a workspace for an account."""
    _fail_on_demand(ctx, "workspace.provision")
    return {"workspace_id": _id("ws", account_id), "seats": seats}


@sk.step("workspace.release", timeout="1m")
def release_workspace(ctx: sk.Context, workspace_id: str) -> dict[str, str]:
    """Take a workspace back."""
    _fail_on_demand(ctx, "workspace.release")
    return {"released": workspace_id}


@sk.step("mail.send", timeout="15s")
async def send_mail(ctx: sk.Context, to: str, subject: str) -> dict[str, str]:
    """Pretend to send a message."""
    _fail_on_demand(ctx, "mail.send")
    return {"message_id": _id("msg", f"{ctx.idempotency_key} {to} {subject}")}


@sk.step("ledger.reserve", timeout="10s")
def reserve_funds(ctx: sk.Context, account: str, amount: int) -> dict[str, Any]:
    """Put money aside. Asking for none is a mistake that no retry mends."""
    _fail_on_demand(ctx, "ledger.reserve")
    if amount <= 0:
        raise sk.fail(f"cannot reserve {amount}", category="validation")
    return {"reservation_id": _id("res", f"{account} {amount}"), "amount": amount}


@sk.step("ledger.release", timeout="10s")
def release_funds(ctx: sk.Context, reservation_id: str) -> dict[str, str]:
    """Give reserved money free again."""
    _fail_on_demand(ctx, "ledger.release")
    return {"released": reservation_id}


@sk.step("payments.send", timeout="1m", effect="irreversible")
def send_payment(ctx: sk.Context, account: str, amount: int, reservation_id: str) -> dict[str, Any]:
    """Pay. The idempotency key is what keeps a second attempt from paying twice."""
    _fail_on_demand(ctx, "payments.send")
    return {"payment_id": _id("pay", f"{ctx.idempotency_key} {reservation_id}"), "account": account, "amount": amount}


@sk.agent("report-writer")
async def write_report(ctx: sk.Context, action: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """An agent that only says what it was asked to do."""
    return {"did": action, "with": inputs}


def _fail_on_demand(ctx: sk.Context, handler: str) -> None:
    asked = ctx.input if isinstance(ctx.input, dict) else {}
    if asked.get("fail_at") == handler:
        raise sk.fail(f"{handler} was told to fail")
    if asked.get("flaky_at") == handler and ctx.attempt == 1:
        raise ConnectionError(f"{handler} was told to fail once")


def _id(kind: str, of: str) -> str:
    return f"{kind}_{hashlib.sha256(of.encode()).hexdigest()[:10]}"
