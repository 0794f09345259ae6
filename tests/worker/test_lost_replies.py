"""Commits whose answer never arrives: what was claimed or reported by them is neither lost nor done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

import asyncpg
import pytest
from tests.workbench import until
from tests.worker.bed import TENANT, Bed, On, step

from stepkeep.kernel.definition import Retry, Rule
from stepkeep.kernel.errors import ConnectionLost
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState, RunState
from stepkeep.store.change import Write

ONCE = Retry(max_attempts=1)


def lose_the_reply(bed: Bed, to: Callable[[Write], bool], times: int = 1) -> None:
    """The next commits that write what is asked for happen, and the line breaks before anybody hears of it."""
    real = bed.store.change
    left = times

    async def change(wants, decide, propose=None):
        nonlocal left
        written = Write()

        def overheard(loaded):
            nonlocal written
            answer = decide(loaded)
            written = answer if isinstance(answer, Write) else Write()
            return answer

        await real(wants, overheard, propose)
        if left and to(written):
            left -= 1
            raise ConnectionLost("the line broke after the commit")

    really_write = bed.store.write_if_unchanged

    async def write_if_unchanged(what, known, basis):
        nonlocal left
        now = await really_write(what, known, basis)
        if left and to(what):
            left -= 1
            raise ConnectionLost("the line broke after the commit")
        return now

    bed.store.change = change  # type: ignore[method-assign]
    bed.store.write_if_unchanged = write_if_unchanged  # type: ignore[method-assign]


def claims(write: Write) -> bool:
    return any(row.worker is not None for row in write.steps) and not write.attempts


def reports(write: Write) -> bool:
    return bool(write.attempts)


async def test_a_claim_whose_answer_was_lost_burns_no_attempt(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: 1)
        run_id = await bed.start(step("work", retry=ONCE))
        lose_the_reply(bed, claims, times=3)
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert [each.state for each in await bed.attempts(run_id)] == [AttemptState.RELEASED] * 3 + [
            AttemptState.SUCCEEDED
        ]


async def test_a_chained_claim_whose_answer_was_lost_burns_no_attempt(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: 1)
        first, second = (
            step("first", uses="work", retry=ONCE),
            step("second", "first", order=1, uses="work", retry=ONCE),
        )
        run_id = await bed.start(first, second)
        lose_the_reply(bed, lambda write: reports(write) and any(row.worker is not None for row in write.steps))
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert [(each.no, each.state) for each in await bed.attempts(run_id)] == [
            (0, AttemptState.SUCCEEDED),
            (1, AttemptState.RELEASED),
            (1, AttemptState.SUCCEEDED),
        ]


async def test_a_report_whose_answer_was_lost_is_made_once(on_store: On) -> None:
    async with on_store() as bed:
        calls = []
        bed.handler("work", lambda: calls.append(1))
        run_id = await bed.start(step("work", retry=ONCE))
        lose_the_reply(bed, reports)
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert [each.state for each in await bed.attempts(run_id)] == [AttemptState.SUCCEEDED]
        assert len(calls) == 1


async def test_a_completion_whose_answer_was_lost_is_still_checked_by_its_own_worker(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: 1)
        rule = Rule(expression="output == 1")
        run_id = await bed.start(step("work", retry=Retry(max_attempts=1, max_losses=1), rules=(rule,)))
        lose_the_reply(bed, reports)
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert (await bed.steps(run_id))[0].losses == 0


async def test_a_start_whose_answer_was_lost_makes_one_run(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: 1)
        run_id = await bed.start(step("work"))
        plan = bed.transactor.plans.get((await bed.run(run_id)).definition_id)
        lose_the_reply(bed, lambda write: bool(write.new_runs))
        again = await bed.start_again(plan)
        assert sum((await bed.store.count_runs(TENANT)).values()) == 2
        assert await bed.finish(run_id, again) is RunState.SUCCEEDED


LEAST_CUTS, MOST_CUTS = 12, 60


@pytest.mark.postgres
async def test_runs_end_well_while_their_connections_are_cut_all_the_time(on_postgres: On, postgres_dsn: str) -> None:
    """One run ends only after so many cuts: however fast the others are, the lines of the worker are cut so often."""

    async with on_postgres() as bed:
        cut, random = 0, Random(0)

        async def work() -> int:
            return 1

        async def outlive() -> int:
            await until(lambda: cut >= LEAST_CUTS, 120)
            return 1

        bed.handler("work", work)
        bed.handler("outlive", outlive)
        first, second = (
            step("first", uses="work", retry=ONCE),
            step("second", "first", order=1, uses="work", retry=ONCE),
        )
        runs = [await bed.start(first, second)]
        plan = bed.transactor.plans.get((await bed.run(runs[0])).definition_id)
        runs += [await bed.start_again(plan) for _ in range(150)]
        long = await bed.start(step("outlive", retry=ONCE), name="long")

        async def is_done() -> bool:
            nonlocal cut
            found = await knife.fetch(
                "select pid from pg_stat_activity where application_name = 'stepkeep' and datname = current_database()"
            )
            if found and cut < MOST_CUTS:
                await knife.execute("select pg_terminate_backend($1)", random.choice(found)[0])
                cut += 1
            counts = await bed.store.count_runs(TENANT)
            return sum(number for state, number in counts.items() if state in RUN_TERMINAL) == len(runs) + 1

        knife = await asyncpg.connect(postgres_dsn)
        try:
            async with asyncio.timeout(120):
                await bed.worker().run_until(is_done)
        finally:
            await knife.close()
        ends = Counter([each.state for run_id in (*runs, long) for each in await bed.attempts(run_id)])
        assert ends[AttemptState.SUCCEEDED] == 2 * len(runs) + 1
        assert set(ends) <= {AttemptState.SUCCEEDED, AttemptState.RELEASED}
        assert await bed.store.stuck_runs() == []
