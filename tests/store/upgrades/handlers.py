"""Handlers of the runs in databases of earlier programs. They run there and with today's program.

While `STEPKEEP_UPGRADE_SEED` is set, some never answer: their program is killed then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import stepkeep as sk

SEEDING = "STEPKEEP_UPGRADE_SEED"


def is_seeding() -> bool:
    return SEEDING in os.environ


@sk.step("upgrade.quick")
async def quick() -> dict[str, bool]:
    return {"ok": True}


@sk.step("upgrade.slow")
async def slow() -> dict[str, bool]:
    while is_seeding():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    return {"ok": True}


@sk.step("upgrade.fails")
async def fails() -> None:
    raise sk.fail("it cannot be done", category="validation")


@sk.step("upgrade.flaky")
async def flaky() -> dict[str, bool]:
    if is_seeding():
        raise RuntimeError("not yet")
    return {"ok": True}


@sk.step("upgrade.waits")
async def waits(ctx: sk.Context) -> Any:
    return sk.wait_for("paid") if ctx.woken_by is None else {"ok": True}
