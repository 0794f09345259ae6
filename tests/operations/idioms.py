"""Flows that use the idioms of structured concurrency, one each, with what they come to."""

from __future__ import annotations

import asyncio
from typing import Any

import stepkeep as sk

registry = sk.Registry()
PATIENT = sk.Retry(max_attempts=10, max_losses=10)


@sk.step("idioms.double", retry=PATIENT, registry=registry)
def double(n: int) -> int:
    return 2 * n


@sk.step("idioms.slow", retry=PATIENT, registry=registry)
async def slow(n: int) -> int:
    """Runs until it is stopped."""
    await asyncio.sleep(60)
    return n


@sk.step("idioms.refuse", registry=registry)
def refuse() -> int:
    raise sk.fail("no", category="conflict")


@sk.flow("idioms.sleeper", registry=registry)
async def sleeper(ctx: sk.FlowContext) -> None:
    await ctx.sleep("1h")


@sk.flow("group", retry=PATIENT, registry=registry)
async def group(ctx: sk.FlowContext) -> list[Any]:
    told: list[Any] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.sleep("1h"))
            tasks.create_task(ctx.step(refuse))
    except* sk.CallFailed as problems:
        told += [str(one) for one in problems.exceptions]
    return [*told, await ctx.step(double, 2)]


@sk.flow("gathered", retry=PATIENT, registry=registry)
async def gathered(ctx: sk.FlowContext) -> list[str]:
    found = await asyncio.gather(ctx.step(double, 1), ctx.step(refuse), ctx.step(double, 2), return_exceptions=True)
    return list(map(str, found))


@sk.flow("race", retry=PATIENT, registry=registry)
async def race(ctx: sk.FlowContext) -> list[int]:
    """A call races against a message, a gate and a sleep."""
    others: list[asyncio.Future[Any]] = [ctx.wait_for("paid"), ctx.gate("Go on?"), ctx.sleep("1h")]
    first = ctx.step(double, 1)
    done, left = await asyncio.wait([*others, first], return_when=asyncio.FIRST_COMPLETED)
    for one in others:
        one.cancel()
    assert len(left) == 3
    return [*(one.result() for one in done), await ctx.step(double, 2)]


@sk.flow("completed", retry=PATIENT, registry=registry)
async def completed(ctx: sk.FlowContext) -> int:
    """What it leaves behind by `break` is cancelled when it ends."""
    for one in asyncio.as_completed([ctx.sleep("1h"), ctx.step(double, 1)]):
        found = await one
        break
    return int(found or 0)


@sk.flow("timeouts", retry=PATIENT, registry=registry)
async def timeouts(ctx: sk.FlowContext) -> list[Any]:
    told: list[Any] = []
    async with asyncio.timeout(3600):
        try:
            async with asyncio.timeout(0.01):
                await ctx.sleep("1h")
        except TimeoutError:
            told.append("inner")
        told.append(await ctx.step(double, 2))
        try:
            await asyncio.wait_for(ctx.step(slow, 1), 0.01)
        except TimeoutError:
            told.append("claimed")
    begin = asyncio.get_running_loop().time()
    await asyncio.sleep(0.01)
    assert 0.01 <= asyncio.get_running_loop().time() - begin < 3600
    return told


@sk.flow("childless", retry=PATIENT, registry=registry)
async def childless(ctx: sk.FlowContext) -> str:
    try:
        await asyncio.wait_for(ctx.child(sleeper, {}), 0.01)
    except TimeoutError:
        return "called back"
    return ""


@sk.flow("at_last", retry=PATIENT, registry=registry)
async def at_last(ctx: sk.FlowContext) -> list[Any]:
    """A task that is cancelled makes a call in `finally`."""
    told: list[Any] = []

    async def work() -> None:
        try:
            await ctx.sleep("1h")
        finally:
            told.append(await ctx.step(double, 3))

    task = asyncio.create_task(work())
    await ctx.step(double, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [*told, task.cancelled()]


@sk.flow("limited", retry=PATIENT, registry=registry)
async def limited(ctx: sk.FlowContext) -> list[int]:
    free = asyncio.Semaphore(2)

    async def one(n: int) -> int:
        async with free:
            return await ctx.step(double, n)

    return await asyncio.gather(*(one(n) for n in range(5)))


@sk.flow("mapped", retry=PATIENT, registry=registry)
async def mapped(ctx: sk.FlowContext) -> list[Any]:
    """A map is cancelled with what it has under way."""
    task = asyncio.create_task(ctx.map(slow, [1, 2, 3], in_flight=2))
    found = await ctx.step(double, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [found, task.cancelled()]


OUTPUTS: dict[str, Any] = {
    "group": ["idioms.refuse failed: no", 4],
    "gathered": ["2", "idioms.refuse failed: no", "4"],
    "race": [2, 4],
    "completed": 2,
    "timeouts": ["inner", 4, "claimed"],
    "childless": "called back",
    "at_last": [6, True],
    "limited": [0, 2, 4, 6, 8],
    "mapped": [2, True],
}
"""What each comes to."""
CANCELLED = {
    "group": 1,
    "gathered": 0,
    "race": 3,
    "completed": 1,
    "timeouts": 3,
    "childless": 1,
    "at_last": 1,
    "limited": 0,
    "mapped": 2,
}
"""How many calls of each end cancelled."""
FLOWS: dict[str, sk.Workflow[Any]] = {
    one.name: one for one in (group, gathered, race, completed, timeouts, childless, at_last, limited, mapped)
}
