"""Workers that pause past their leases, and workers with a wrong clock."""

from __future__ import annotations

import asyncio
import signal

from stepkeep.kernel.machine.states import AttemptState
from stepkeep_lab.torture.process import TENANT
from stepkeep_lab.torture.stage import NotRun, Stage

LEASE = 1.0
PAUSE = 1.6 * LEASE
ZOMBIES = 48
MANY = 1000
"""Late writes that a thorough campaign tries on each database."""
SLOW = 4.0
"""Longer than the lease of the skewed: without renewals it would end."""


async def stopped_past_lease(stage: Stage) -> None:
    """SIGSTOP past the lease, SIGCONT, and then late writes, over and over: none may be accepted."""
    stage.needs("late writes tried", at_least=MANY if stage.thorough else min(500, int(30 * stage.seconds)))
    await stage.workers(2, zombie=True, concurrency=ZOMBIES)
    async with stage.loading() as load:
        stage.begin()
        while stage.goes_on(reached=stage.tally.read()["late writes tried"] >= MANY):
            run_ids = await load.start_many("slow", 8, seconds=0.6)
            sleeper = await stage.busiest(run_ids)
            stage.fleet.send(sleeper, signal.SIGSTOP)
            stage.counts["stops"] += 1
            await asyncio.sleep(PAUSE)
            stage.fleet.send(sleeper, signal.SIGCONT)
            await asyncio.sleep(0.3)
        # The last of the late writes are still to come.
        await asyncio.sleep(2.5)


async def clock_skew(stage: Stage) -> None:
    """Workers an hour before and an hour behind the database: its clock alone counts, and no lease ends early."""
    if stage.server is None:
        raise NotRun("an SQLite file has no clock but the machine's, which all its processes share")
    await stage.worker(skew=3600.0)
    await stage.worker(skew=-3600.0)
    stage.counts["skewed workers"] = 2
    async with stage.under_load(rate=15.0) as load:
        stage.begin()
        while stage.goes_on():
            await load.start_many("slow", 1, seconds=SLOW)
            await asyncio.sleep(0.5)
    async with stage.looking() as transactor:
        stage.must(await stage.settle(transactor), "skewed workers did not finish the work")
        for run_id, kind in load.acknowledged.values():
            stage.counts["slow runs"] += kind == "slow"
            for attempt in await transactor.store.read_attempts(TENANT, run_id):
                stage.counts["leases ended early"] += attempt.state is AttemptState.LOST
    stage.must(not stage.counts["leases ended early"], "a worker whose clock is wrong lost a lease that it kept")
    stage.must_have_hit("slow runs")
    stage.must_have_hit("skewed workers", at_least=2)
