"""The tour of the web pages: one run with a retry, a gate, a failure and a rollback, which a new `stepkeep dev` starts.

It runs in the worker of `dev`. It leaves a database alone that has a workflow or a run.
"""

from __future__ import annotations

import time
from importlib.resources import files
from typing import TYPE_CHECKING

from stepkeep.definition.native.reader import load_text
from stepkeep.definition.python.handlers import step
from stepkeep.worker.answers import fail
from stepkeep.worker.context import Context

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine

MOMENT = 0.8
"""Seconds that a step pretends to work, so that the page shows it moving."""
FILE = "first_minute.yaml"


@step("tour.reserve_stock")
def reserve_stock(ctx: Context) -> dict[str, str | int]:
    ctx.logger.warning("reserving two items for %s", ctx.input["customer"])
    time.sleep(MOMENT)
    return {"reservation": f"r-{ctx.run_id[-6:]}", "items": 2}


@step("tour.release_stock")
def release_stock() -> str:
    time.sleep(MOMENT)
    return "released"


@step("tour.check_address")
def check_address(ctx: Context) -> dict[str, str]:
    ctx.logger.warning("asking the address service, attempt %d", ctx.attempt)
    time.sleep(MOMENT / 2)
    if ctx.attempt < 2:
        raise ConnectionError("the address service did not answer")
    return {"address": "1 Harbour Street", "quality": "verified"}


@step("tour.charge_card")
def charge_card(ctx: Context) -> dict[str, str | int]:
    time.sleep(MOMENT)
    return {"charge": f"c-{ctx.run_id[-6:]}", "amount": 4200, "currency": "EUR"}


@step("tour.refund_card")
def refund_card() -> str:
    time.sleep(MOMENT)
    return "refunded"


@step("tour.ship")
def ship(ctx: Context) -> None:
    ctx.logger.warning("the carrier has no truck today")
    time.sleep(MOMENT)
    raise fail("the carrier has no truck today", category="external")


async def begin(engine: AsyncEngine) -> str | None:
    """Publish and start the tour in a new database; the run, or None where there is something already."""
    if (await engine.definitions())["definitions"] or (await engine.runs(limit=1))["runs"]:
        return None
    text = (files("stepkeep.cli.demo") / FILE).read_text(encoding="utf-8")
    started = await engine.start(await engine.publish(load_text(text, FILE)), {"customer": "Ada"})
    return started.run_id
