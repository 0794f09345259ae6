"""Handlers for the flows below; a file of its own, as users have one, named with `--app`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import stepkeep as sk


@sk.step("cli.work")
def work(ctx: sk.Context) -> dict[str, Any]:
    print("a handler prints this")
    return {"did": ctx.step}


@sk.step("cli.undo")
def undo() -> None:
    return None


@sk.step("cli.refuse")
def refuse() -> None:
    raise sk.fail("it cannot be done", category="validation")


@sk.step("cli.flaky")
def flaky(ctx: sk.Context) -> int:
    if ctx.attempt < 2:
        raise ConnectionError("not yet")
    return ctx.attempt


@sk.step("cli.note")
def note(ctx: sk.Context, ledger: str) -> str:
    """Leave a line, then stay as long as the file `hold` beside the ledger says so."""
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(f"{ctx.step} {os.getpid()}\n")
    hold = Path(ledger).with_name(f"hold-{ctx.step}")
    until = time.monotonic() + 30
    while hold.exists() and time.monotonic() < until:
        time.sleep(0.02)
        ctx.check_cancelled()
    return ctx.step
