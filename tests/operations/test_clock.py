"""A clock that is set back (a correction, another server after a failover) harms no lease, hides no work and leaves a
record that still verifies. For a run, time stands still until the clock has caught up."""

from __future__ import annotations

import pytest

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.store.change import Lease
from tests.operations.test_log import exported, verdict
from tests.workbench import SECOND, TENANT, chain, on

HOUR = 3600 * SECOND


async def test_work_goes_on_and_the_record_verifies_when_the_clock_is_set_back(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("four", 4))
        [first] = await bench.claim()
        bench.store.clock_offset = -HOUR
        assert isinstance(await bench.report(first), Accepted)
        [second] = await bench.claim()
        assert isinstance(await bench.report(second), Accepted)
        assert verdict(await exported(bench, run_id)) == set()
        bench.store.clock_offset = 0
        assert await bench.work_off() == 2
        assert await bench.state(run_id) is RunState.SUCCEEDED
        assert verdict(await exported(bench, run_id)) == set()


async def test_a_renewal_never_shortens_a_lease(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.start(chain("one", 1))
        [claim] = await bench.claim()
        bench.store.clock_offset = -HOUR
        lease = Lease(TENANT, claim.run_id, 0, claim.step.fence, 30 * SECOND)
        [renewed] = await bench.store.renew([lease])
        assert renewed.fence == claim.step.fence
        [row] = await bench.store.read_steps(TENANT, claim.run_id)
        assert row.due_at == claim.step.due_at
        assert isinstance(await bench.report(claim), Accepted)


async def test_timers_of_a_run_wait_for_the_clock_to_catch_up(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("one", 1))
        [claim] = await bench.claim()
        bench.store.clock_offset = -HOUR
        await bench.report(claim, Failed(category=Category.TRANSIENT, error="later"))
        bench.store.clock_offset = -HOUR + 60 * SECOND
        await sweep(bench.transactor)
        assert await bench.step_states(run_id) == [StepState.RETRYING]
        assert await bench.store.stuck_runs() == []
        bench.store.clock_offset = 60 * SECOND
        await sweep(bench.transactor)
        assert await bench.work_off() == 1
        assert verdict(await exported(bench, run_id)) == set()


@pytest.mark.parametrize("back", [1, SECOND, HOUR])
async def test_a_run_never_ends_before_it_began(database_url: str, back: int) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("one", 1))
        bench.store.clock_offset = -back
        await bench.cancel(run_id)
        found = await bench.store.read_run(TENANT, run_id)
        assert found is not None
        assert found.run.started_at is not None
        assert found.run.ended_at is not None
        assert found.run.ended_at >= found.run.started_at
        assert verdict(await exported(bench, run_id)) == set()
