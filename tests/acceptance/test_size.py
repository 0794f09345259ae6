"""Thousands of steps in one run, one after the other and all at once; what a step costs is printed, never asserted."""

from __future__ import annotations

import time

import pytest

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.states import RunState
from tests.suites import in_proof
from tests.workbench import Bench, benches, chain, report_of, task

SIZES = pytest.mark.parametrize("steps", [300, in_proof(10_000)])


def fan(width: int) -> Definition:
    """One step, then `width` at once, then one that waits for them all."""
    middle = [task(f"m{no:05}", 1, ["first"]) for no in range(width)]
    last = task("last", 2, [step.name for step in middle])
    return Definition(name="fan", version=1, steps=(task("first", 0), *middle, last))


async def finish(bench: Bench, run_id: str) -> int:
    """Work a run off with chained claims, as a worker does."""
    claimer = await bench.claimer(slots=500)
    done = 0
    while claims := await bench.transactor.claim(claimer, limit=500):
        while claims:
            replies, claims = await bench.transactor.report([report_of(claim) for claim in claims], claimer)
            done += sum(not isinstance(reply, Exception) for reply in replies)
    assert await bench.state(run_id) is RunState.SUCCEEDED
    return done


async def measure(url: str, definition: Definition, what: str) -> None:
    async with benches(url) as (bench,):
        run_id = await bench.start(definition)
        begun = time.perf_counter()
        done = await finish(bench, run_id)
        spent = time.perf_counter() - begun
        assert done == len(definition.steps)
        print(f"{what}: {done} steps, {spent / done * 1e6:.0f} µs each")


@SIZES
async def test_a_chain_of_many_steps_finishes(database_url: str, steps: int) -> None:
    await measure(database_url, chain("chain", steps), "chain")


@SIZES
async def test_many_steps_at_once_fan_in_to_one(database_url: str, steps: int) -> None:
    await measure(database_url, fan(steps - 2), "fan-out and fan-in")
