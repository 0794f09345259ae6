"""The handler of the made-up dialect's legs."""

from __future__ import annotations

import stepkeep as sk


@sk.step("toy.carry")
def carry(ctx: sk.Context) -> str:
    return ctx.step
