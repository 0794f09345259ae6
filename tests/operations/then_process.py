"""A worker in a process of its own that is killed after a commit.

`python then_process.py URL RUN COMMITS LEDGER AHEAD`

It holds the workflow of the tests, so that the tests and their processes have the same one.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import stepkeep as sk
from tests.operations import flows_process

registry = sk.Registry()
PATIENT = sk.Retry(max_attempts=10, max_losses=10)


@sk.step("trip.book", retry=PATIENT, registry=registry)
async def book(ctx: sk.Context, place: str) -> dict[str, str]:
    flows_process.note(ctx, f"book {place}")
    return {"place": place}


@sk.step("trip.more", retry=PATIENT, registry=registry)
async def more(ctx: sk.Context, near: str) -> Any:
    flows_process.note(ctx, f"more {near}")
    return sk.then({"name": "walk", "uses": book, "with": {"place": f"a walk in {near}"}}, output=near)


@sk.step("trip.plan", retry=PATIENT, registry=registry)
async def plan(ctx: sk.Context, city: str) -> Any:
    flows_process.note(ctx, "plan")
    return sk.then(
        {"name": "hotel", "uses": book, "with": {"place": city}, "depends_on": []},
        {"name": "then", "uses": more, "with": {"near": sk.output_of("hotel").place}, "depends_on": ["hotel"]},
        output=city,
    )


trip = sk.Workflow("trip", registry=registry)
trip.step("plan", plan, then={"max_steps": 3})

if __name__ == "__main__":
    flows_process.ledger = Path(sys.argv[4])
    asyncio.run(flows_process.main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[5]), registry))
