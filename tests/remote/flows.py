"""Flows that run on workers with the database and on remote ones, without change."""

from __future__ import annotations

import asyncio
from typing import Any

import stepkeep as sk

undone: list[Any] = []
called: list[str] = []
paid: list[tuple[int, str]] = []
broken: set[int] = set()


@sk.step("far.double")
def double(n: int) -> int:
    return 2 * n


@sk.step("far.unbook")
def unbook(room: str) -> None:
    undone.append(room)


@sk.step("far.book", undo=unbook, timeout="20s", retry=sk.Retry(max_attempts=4, initial="1ms", jitter=0.0))
def book(ctx: sk.Context, room: str) -> dict[str, str]:
    if room == "flaky" and ctx.attempt < 3:
        raise ConnectionError("the hotel does not answer")
    return {"room": room}


@sk.step("far.refuse")
def refuse(why: str) -> None:
    raise sk.fail(why, category="conflict")


@sk.flow("far.sums")
async def sums(ctx: Any, numbers: list[int]) -> dict[str, Any]:
    """Calls in a row, at once and as a map; a failure that is caught; a checkpoint; events and costs."""
    one = await ctx.step(double, numbers[0])
    ctx.emit("doubled", {"n": one})
    ctx.cost(usd=0.5)
    at_once = await asyncio.gather(*(ctx.step(double, number) for number in numbers))
    mapped = await ctx.map(double, numbers, in_flight=2)
    drawn = await ctx.once("drawn", lambda: called.append("drawn") or 7)
    await ctx.sleep("1ms")
    try:
        await ctx.step(refuse, "no")
    except sk.CallFailed as problem:
        return {"one": one, "at_once": at_once, "mapped": mapped, "drawn": drawn, "why": problem.error}
    return {}


@sk.step("far.pay", effect="write")
def pay(ctx: sk.Context, n: int) -> int:
    paid.append((n, ctx.idempotency_key))
    if n in broken:
        raise sk.fail(f"{n} is broken")
    return n


@sk.flow("far.payments")
async def payments(ctx: Any) -> list[int]:
    """Three payments at once, and one after them."""
    found = await asyncio.gather(*(ctx.step(pay, n) for n in (1, 2, 3)), return_exceptions=True)
    if any(isinstance(one, sk.CallFailed) for one in found):
        raise ExceptionGroup("payments", [one for one in found if isinstance(one, Exception)])
    return [*found, await ctx.step(pay, 4)]


@sk.flow("far.trip", on_failure="compensate")
async def trip(ctx: Any, ends: str = "well") -> str:
    await ctx.step(book, "flaky")
    await ctx.options(timeout="5s").step(book, room="suite")
    if ends == "badly":
        await ctx.step(refuse, "no visa")
    return "booked"


@sk.flow("far.asking")
async def asking(ctx: Any) -> dict[str, Any]:
    paid = await ctx.wait_for("paid", deadline="1h", where="message.cents > 10")
    decided = await ctx.gate("Send it?", roles=["finance"])
    return {"paid": paid, "decision": decided["decision"]}


@sk.flow("far.racing")
async def racing(ctx: Any) -> list[Any]:
    """A race that is cancelled, a time limit that passes, and a call that it leaves behind."""
    others = [ctx.wait_for("paid"), ctx.sleep("1h")]
    done, _ = await asyncio.wait([*others, ctx.step(double, 1)], return_when=asyncio.FIRST_COMPLETED)
    for one in others:
        one.cancel()
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(0.01):
            await ctx.gate("Go on?")
    except TimeoutError:
        ctx.sleep("1h")
    return [done.pop().result(), 0.01 <= asyncio.get_running_loop().time() - began < 3600]


@sk.flow("far.parent")
async def parent(ctx: Any, n: int = 3) -> dict[str, Any]:
    found = await ctx.child("far.sums", {"numbers": [n]}, deadline="1h")
    loose = await ctx.child("far.sums", {"numbers": [n]}, detached=True)
    try:
        await ctx.child("far.absent", {})
    except sk.CallFailed as problem:
        return {"one": found["one"], "loose": sorted(loose), "absent": str(problem.category)}
    return {}


@sk.flow("far.crawl", input=["page", "seen"])
async def crawl(ctx: Any, page: int, seen: int) -> int:
    seen += await ctx.step(double, page)
    if page < 3:
        ctx.continue_as_new({"page": page + 1, "seen": seen})
    return seen


@sk.flow("far.many", max_calls=5)
async def many(ctx: Any) -> None:
    await asyncio.gather(*(ctx.step(double, n) for n in range(6)))


@sk.flow("far.large")
async def large(ctx: Any) -> None:
    await asyncio.gather(*(ctx.options(name=f"c{n}").step(double, "x" * 250_000) for n in range(14)))


@sk.flow("far.halves")
async def halves(ctx: Any, n: int) -> list[Any]:
    """A wait in the middle, with something of each kind before it."""
    first = await ctx.step(double, n)
    ctx.emit("begun", first)
    drawn = await ctx.once("drawn", lambda: called.append("drawn") or 7)
    told = await ctx.wait_for("on", deadline="1h")
    ctx.emit("ended", told)
    return [first, drawn, told, await ctx.step(double, told)]


FLOWS = (halves, sums, trip, payments, asking, parent, racing, crawl, many, large)
