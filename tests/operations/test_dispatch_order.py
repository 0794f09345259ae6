"""Seed 003 section 1.2: with more runnable steps than slots, `order` decides within a run, not the ready time."""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, Retry
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.transact import Claim
from tests.workbench import SECOND, Bench, on, report_of, task


class OneSlot:
    """A worker with one slot: it claims, reports, and takes what its report hands over."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.dispatched: list[str] = []
        self.held: list[Claim] = []

    async def take(self) -> str:
        if not self.held:
            self.held = await self.bench.claim(1)
        self.dispatched += [claim.planned.name for claim in self.held]
        return self.dispatched[-1]

    async def report(self, outcome: Outcome | None = None) -> None:
        claimer = await self.bench.claimer(slots=1)
        event = report_of(self.held.pop(), outcome)
        _, self.held = await self.bench.transactor.report([event], claimer)

    async def work_off(self, steps: int) -> None:
        for _ in range(steps):
            await self.take()
            await self.report()


async def test_one_slot_runs_a_fan_before_the_chains_that_follow_it(database_url: str) -> None:
    fan = [task("p", 1), task("q", 2), task("r", 3)]
    chains = [task("s", 4, ["p"]), task("t", 5, ["q"]), task("u", 6, ["r"])]

    async with on(database_url) as bench:
        await bench.start(Definition(name="w", version=1, steps=(*fan, *chains)))
        slot = OneSlot(bench)
        await slot.work_off(6)
        assert slot.dispatched == ["p", "q", "r", "s", "t", "u"]


async def test_a_lower_order_that_becomes_ready_later_goes_first(database_url: str) -> None:
    steps = (task("a", 1), task("b", 2, ["a"]), task("d", 4), task("e", 5))

    async with on(database_url) as bench:
        await bench.start(Definition(name="w", version=1, steps=steps))
        slot = OneSlot(bench)
        assert await slot.take() == "a"
        bench.store.clock_offset += 3 * SECOND // 2
        await slot.report()
        await slot.work_off(3)
        assert slot.dispatched == ["a", "b", "d", "e"]


async def test_a_due_retry_takes_its_place_by_order(database_url: str) -> None:
    retry = Retry(max_attempts=2, initial=SECOND)
    steps = (task("x", 1, retry=retry), task("y", 2), task("z", 3))

    async with on(database_url) as bench:
        await bench.start(Definition(name="w", version=1, steps=steps))
        slot = OneSlot(bench)
        assert await slot.take() == "x"
        await slot.report(Failed(category=Category.TRANSIENT, error="again"))
        assert await slot.take() == "y"
        bench.store.clock_offset += 2 * SECOND
        await sweep(bench.transactor)
        await slot.report()
        await slot.work_off(2)
        assert slot.dispatched == ["x", "y", "x", "z"]


async def test_between_runs_the_step_that_has_waited_longest_decides(database_url: str) -> None:
    wide = Definition(name="wide", version=1, steps=(task("a", 1), task("b", 2, ["a"]), task("c", 3)))
    other = replace(wide, name="other", steps=(task("o", 1),))

    async with on(database_url) as bench:
        await bench.start(wide)
        bench.store.clock_offset += SECOND
        await bench.start(other)
        bench.store.clock_offset += SECOND
        slot = OneSlot(bench)
        await slot.work_off(4)
        # b became ready last and goes before c; that c has waited longest is what puts its run before the other one.
        assert slot.dispatched == ["a", "b", "c", "o"]


async def test_a_sequence_keeps_its_chained_claims(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.start(Definition(name="w", version=1, steps=(task("a", 1), task("b", 2, ["a"]))))
        [claim] = await bench.claim(1)
        _, chained = await bench.transactor.report([report_of(claim, Completed())], await bench.claimer(slots=1))
        assert [one.planned.name for one in chained] == ["b"]
