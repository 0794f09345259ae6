"""The handler of measured steps: it does nothing and returns a kilobyte. Worker processes import it."""

from __future__ import annotations

import stepkeep as sk

KILOBYTE = "x" * 1000


@sk.step("bench.noop")
async def noop() -> dict[str, str]:
    return {"payload": KILOBYTE}
