"""Checkpoints in the simulator: which attempts record some, and what must be true of them.

A function is never called again after its value was given to a handler, each step gets its own values, and what was
given is stored. `handlers` and `flows` call it during an attempt, `verdict` after everything has ended.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from stepkeep.worker.context import Context
from stepkeep_lab.simulation.ledger import Ledger
from stepkeep_lab.simulation.tables import Tables

SHARE = 0.3
"""The share of steps that record checkpoints."""

Place = tuple[str, int, str]
"""(run id, step number, name)."""


class Recorded:
    """The checkpoints of one simulation, as handlers know them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.made: dict[Place, list[Any]] = defaultdict(list)
        self.given: dict[Place, Any] = {}

    async def use(self, ctx: Context, no: int, fence: int, random: Random, pace: float) -> None:
        """Ask for a few checkpoints, as a handler would. `random` is the same for every attempt of the step.

        `pace` scales the time that their functions take: 0 where all handlers return at once.
        """
        if random.random() >= SHARE:
            return
        for name in ("a", "b")[: random.randint(1, 2)]:
            await self.one(ctx, (ctx.run_id, no, name), fence, pace * random.choice((0.0, 0.0, 0.5, 3.0)))

    async def one(self, ctx: Context, place: Place, fence: int, seconds: float) -> None:
        """Ask for one checkpoint, whose function takes so long."""

        async def work() -> Any:
            self.begin(place, fence)
            await asyncio.sleep(seconds)
            return self.make(place, fence)

        self.give(place, await ctx.once(place[2], work))

    def begin(self, place: Place, fence: int) -> None:
        """The function of a checkpoint is called. A worker that has lost the step may not know what came after it."""
        if place in self.given and self.given[place][3] <= fence:
            self._ledger.violation(f"checkpoints: {place} was given to its handler, and claim {fence} makes it again")

    def make(self, place: Place, fence: int) -> Any:
        """The function returns."""
        value = [*place, fence, len(self.made[place])]
        self.made[place].append(value)
        return value

    def give(self, place: Place, value: Any) -> None:
        """A handler got this value."""
        if not self._is_made(place, value):
            self._ledger.violation(f"checkpoints: {place} is given {value}, which it has not made")
        if self.given.setdefault(place, value) != value:
            self._ledger.violation(f"checkpoints: {place} is given {value}, and was given {self.given[place]}")
        self._ledger.met["a checkpoint given"] += 1

    def _is_made(self, place: Place, value: Any) -> bool:
        """Whether this step made the value, or that of an earlier run with which its own run goes on."""
        return value in self.made[place] or (value[0] != place[0] and value in self.made[value[0], *place[1:]])

    def wrong(self, tables: Tables) -> Iterator[str]:
        """Everything that is wrong with what is stored, after everything has ended."""
        stored: dict[Place, Any] = {}
        for (_, run_id), rows in tables.checkpoints.items():
            for one in rows.values():
                if one.value == b"true":
                    continue  # the answer of ctx.patched, which no handler made
                place = (run_id, one.no, one.name)
                stored[place] = msgspec.json.decode(one.value)
                if not self._is_made(place, stored[place]):
                    yield f"checkpoints: {place} is stored as {stored[place]}, which it has not made"
                elif stored[place][3] != one.fence:
                    yield f"checkpoints: {place} of claim {stored[place][3]} is stored under claim {one.fence}"
        for place, value in self.given.items():
            if stored.get(place) != value:
                yield f"checkpoints: {place} was given {value}, and stored is {stored.get(place)}"
