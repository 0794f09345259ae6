"""Trees of runs in random orders, with transactions that fail before or after their commit: nothing is forgotten.

Two sweeps, workers, cancels and clocks act in a drawn order. Whatever happens, the whole tree comes to an end, no child
is left running for a parent that has ended, and nothing is left to do. Planted bugs must be found.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.kernel.definition import Handler, Undo
from stepkeep.kernel.errors import Refused, StoreUnavailable
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.rows import Child
from stepkeep.kernel.machine.states import RUN_TERMINAL, Category, OnFailure, RunState, StepState
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.pipeline import batch
from stepkeep.operations.pipeline.expire import sweep_timers
from tests.operations.test_children import call, flow
from tests.suites import in_proof
from tests.workbench import SECOND, TENANT, Bench, on, task

UNDO = Undo(executor=Handler(name="noop"))
LEAF = flow("leaf", task("one", 0, undo=UNDO), task("two", 1, ["one"]), on_failure=OnFailure.COMPENSATE)
MIDDLE = flow("middle", call("inner", 0, "leaf", undo=UNDO), task("beside", 1), on_failure=OnFailure.COMPENSATE)
TOP = flow(
    "top",
    call("sub", 0, "middle"),
    task("beside", 1, undo=UNDO),
    call("last", 2, "leaf", ("sub",), on_failure=OnFailure.SKIP),
    on_failure=OnFailure.COMPENSATE,
    grace=3 * SECOND,
)
BAD = Failed(category=Category.VALIDATION, error="no", final=True)


class Faulty:
    """A store's table of children whose saves fail before or after they are written."""

    def __init__(self, table: Any, random: Random, rate: float) -> None:
        self._table, self._random, self.rate = table, random, rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    async def save(self, *given: Any) -> bool:
        if self._random.random() < self.rate / 2:
            raise StoreUnavailable("lost before it was written")
        done: bool = await self._table.save(*given)
        if self._random.random() < self.rate / 2:
            raise StoreUnavailable("lost after it was written")
        return done


async def tree_of(bench: Bench, run: str) -> list[str]:
    runs = [run]
    for one in runs:
        links = await bench.store.children.read_all(TENANT, one)
        runs += [link.child_id for link in links if await bench.store.read_run(TENANT, link.child_id) is not None]
    return runs


async def life(bench: Bench, seed: int) -> None:
    """One tree in a drawn order of events, and then home without faults."""
    random = Random(seed)
    table = Faulty(bench.store.children, random, random.choice((0.0, 0.4)))
    bench.store.children = table  # type: ignore[misc]
    sweeps = [ChildSweep(bench.transactor) for _ in range(2)]
    run = await bench.start(TOP)
    held: list[Any] = []
    failing, cancels = random.choice((0.0, 0.15)), random.choice((0.0, 0.05))

    async def act() -> None:
        chosen = random.random()
        if chosen < 0.35:
            await random.choice(sweeps).sweep(random.choice((1, 5)))
        elif chosen < 0.6:
            held.extend(await bench.claim(random.choice((1, 3))))
        elif chosen < 0.8 and held:
            claim = held.pop(random.randrange(len(held)))
            await bench.report(claim, BAD if random.random() < failing else Completed(output=b"1"))
        elif chosen < 0.9:
            bench.store.clock_offset += random.choice((1, 10)) * SECOND
            await sweep_timers(bench.transactor)
        elif random.random() < cancels * 10:
            await bench.cancel(random.choice(await tree_of(bench, run)), compensate=random.random() < 0.5)

    for _ in range(60):
        try:
            await act()
        except (StoreUnavailable, Refused):
            continue
    table.rate = 0.0
    for _ in range(60):
        bench.store.clock_offset += 31 * SECOND
        await sweep_timers(bench.transactor)
        while await sweeps[0].sweep():
            pass
        for claim in await bench.claim(20):
            await bench.report(claim)
    await judge(bench, run)


async def judge(bench: Bench, run: str) -> None:
    """The whole tree has ended, each link says how, and every step ended as its child did."""
    for one in await tree_of(bench, run):
        assert await bench.state(one) in RUN_TERMINAL, f"{one} never ends"
        steps = {step.no: step for step in await bench.store.read_steps(TENANT, one)}
        for link in await bench.store.children.read_all(TENANT, one):
            assert link.todo is None, f"{link} is left to do"
            assert (link.started_at is not None) == (await bench.store.read_run(TENANT, link.child_id) is not None)
            if steps[link.no].state is StepState.SUCCEEDED:
                assert link.outcome is RunState.SUCCEEDED
            if link.started_at is not None:
                assert await bench.state(link.child_id) is link.outcome


async def lives(url: str, seeds: range) -> None:
    async with on(url) as bench:
        for one in (LEAF, MIDDLE, TOP):
            await bench.publish(one)
        plain = bench.store.children
        for seed in seeds:
            bench.store.children, bench.store.clock_offset = plain, 0  # type: ignore[misc]
            await life(bench, seed)


@pytest.mark.parametrize("seeds", [8, in_proof(300)])
async def test_no_order_of_events_and_faults_loses_a_child(database_url: str, seeds: int) -> None:
    await lives(database_url, range(seeds))


def _ends_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch, "notices_of", lambda run: [])


def _parents_are_told_after_the_link_is_closed(patch: pytest.MonkeyPatch) -> None:
    real = ChildSweep._report_end

    async def tell(self: ChildSweep, child: Child) -> None:
        assert child.todo is not None
        await self._save(replace(child, todo=None, todo_at=None), child.todo)
        if child.activation % 2:
            return
        await real(self, child)

    patch.setattr(ChildSweep, "_report_end", tell)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the end of a child is not noted": _ends_are_not_noted,
    "a link is closed before its parent is told": _parents_are_told_after_the_link_is_closed,
}


@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_is_found(bug: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    with pytest.raises(AssertionError):
        await lives(f"sqlite:///{tmp_path}/bug.db", range(20))
