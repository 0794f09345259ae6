"""A worker that has just written a run need not read it again to report on it, and is never wrong because of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import Fenced
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.store.change import Lease
from tests.workbench import SECOND, TENANT, Bench, chain, count_calls, on, report_of, task

DIAMOND = Definition(
    name="diamond",
    version=1,
    steps=(task("a"), task("b", 1, ["a"]), task("c", 2, ["a"]), task("d", 3, ["b", "c"])),
)


async def go_on(bench: Bench, claim: Claim) -> tuple[Any, list[Claim]]:
    """Complete a step, and claim what follows."""
    [reply], claims = await bench.transactor.report([report_of(claim)], await bench.claimer(slots=5))
    return reply, claims


async def test_a_chain_is_read_once_and_then_written_from_memory_to_its_end(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("five", 5))
        claims = await bench.claim()
        looks = count_calls(bench, "change")
        for _ in range(5):
            reply, claims = await go_on(bench, *claims)
            assert isinstance(reply, Accepted)
        assert claims == []
        assert len(looks) == 0
        assert await bench.state(run_id) is RunState.SUCCEEDED
        assert set(await bench.step_states(run_id)) == {StepState.SUCCEEDED}


async def test_what_is_written_from_memory_is_what_would_be_written_after_a_look(database_url: str) -> None:
    def without_names(steps: Sequence[Step]) -> list[list[object]]:
        kept = [each for each in Step.__struct_fields__ if each not in ("run_id", "claimed_at", "due_at")]
        return [[getattr(step, each) for each in kept] for step in steps]

    async with on(database_url) as bench:
        plan = await bench.publish(chain("three", 3))
        run_id, twin = await bench.start(plan, priority=4), await bench.start(plan, priority=4)
        claims = {claim.run_id: claim for claim in await bench.claim(limit=2)}
        looks = count_calls(bench, "change")
        _, [following] = await go_on(bench, claims[run_id])
        assert len(looks) == 0
        bench.transactor.forget(claims[twin])
        _, [its_following] = await go_on(bench, claims[twin])
        assert len(looks) == 1
        assert without_names([following.step]) == without_names([its_following.step])
        mine, theirs = await bench.store.read_steps(TENANT, run_id), await bench.store.read_steps(TENANT, twin)
        assert without_names(mine) == without_names(theirs)


async def test_a_run_that_somebody_else_has_changed_is_looked_at_again(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("two", 2))
        [claim] = await bench.claim()
        await bench.send(run_id, "news")
        looks = count_calls(bench, "change")
        reply, [following] = await go_on(bench, claim)
        assert isinstance(reply, Accepted)
        assert len(looks) == 1
        assert following.step.no == 1
        assert len(await bench.store.read_messages(TENANT, run_id)) == 1


async def test_a_report_is_refused_only_after_a_look(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.start(chain("two", 2))
        [claim] = await bench.claim(lease=5 * SECOND)
        bench.store.clock_offset += 6 * SECOND
        looks = count_calls(bench, "change")
        reply, claims = await go_on(bench, claim)
        assert isinstance(reply, Fenced)
        assert claims == []
        assert len(looks) == 1


async def test_a_lease_that_was_renewed_counts_though_the_memory_of_it_is_older(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.start(chain("two", 2))
        [claim] = await bench.claim(lease=5 * SECOND)
        lease = Lease(claim.tenant, claim.run_id, claim.step.no, claim.step.fence, 60 * SECOND)
        assert len(await bench.store.renew([lease])) == 1
        bench.store.clock_offset += 6 * SECOND
        reply, _ = await go_on(bench, claim)
        assert isinstance(reply, Accepted)


async def test_a_failed_attempt_is_told_from_memory_and_its_retry_goes_on_as_ever(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("two", 2))
        [claim] = await bench.claim()
        looks = count_calls(bench, "change")
        again = Failed(category=Category.TRANSIENT, error="not now", delay=0)
        assert isinstance(await bench.report(claim, again), Accepted)
        assert len(looks) == 0
        [second] = await bench.claim()
        assert (second.step.no, second.step.fence, second.step.attempts) == (0, 2, 1)
        _, [following] = await go_on(bench, second)
        await go_on(bench, following)
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_where_two_steps_of_a_run_are_held_each_report_looks(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(DIAMOND)
        [root] = await bench.claim()
        _, both = await go_on(bench, root)
        assert len(both) == 2
        looks = count_calls(bench, "change")
        for claim in both:
            _, following = await go_on(bench, claim)
        assert len(looks) == 2
        await go_on(bench, *following)
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_a_clock_that_was_read_long_ago_is_read_again(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.start(chain("two", 2))
        [claim] = await bench.claim()
        clock = bench.transactor.clock
        ours = clock._monotonic
        clock._monotonic = lambda: ours() + 10
        looks = count_calls(bench, "change")
        reply, _ = await go_on(bench, claim)
        assert isinstance(reply, Accepted)
        assert len(looks) == 1
