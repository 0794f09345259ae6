"""Promise 1: one run per (tenant, operation, idempotency key); one live run per business key; idle until started."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import Conflict, InvalidInput, KeyReused, NotFound
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.going_on import rerun
from stepkeep.operations.people.people import cancel
from stepkeep.operations.pipeline.start import Started, StartRequest, start_idle
from tests.workbench import ACTOR, NOBODYS, SECOND, TENANT, benches, chain, count_calls, on, task

ONE = chain("one", 1)
NEVER = Definition(name="never", version=1, steps=(task("not", condition="false"),))


async def test_fifty_parallel_starts_with_one_key_make_one_run_and_refuse_every_other_body(database_url: str) -> None:
    async with benches(database_url, 4) as opened:
        plan = await opened[0].publish(ONE)
        bodies = [b'{"n":1}', b'{"n":2}']
        requests = [
            StartRequest(plan=plan, caller=Caller(TENANT, ACTOR), input=bodies[place % 2], idempotency_key="order-1")
            for place in range(50)
        ]
        replies = await asyncio.gather(
            *(opened[place // 2 % len(opened)].starter.start(request) for place, request in enumerate(requests)),
            return_exceptions=True,
        )
        kinds = Counter(type(reply) for reply in replies)
        assert kinds == {Started: 25, KeyReused: 25}
        started = [reply for reply in replies if isinstance(reply, Started)]
        assert len({reply.run_id for reply in started}) == 1
        assert sum(reply.created for reply in started) == 1
        assert sum((await opened[0].store.count_runs(TENANT)).values()) == 1


async def test_the_same_key_answers_with_the_same_run_also_after_its_end(database_url: str) -> None:
    async with on(database_url) as bench:
        first = await bench.start(ONE, idempotency_key="k")
        await bench.work_off()
        assert await bench.state(first) is RunState.SUCCEEDED
        assert await bench.start(ONE, idempotency_key="k") == first


async def test_the_order_of_fields_does_not_make_another_body(database_url: str) -> None:
    async with on(database_url) as bench:
        first = await bench.start(ONE, b'{"a":1,"b":{"c":2,"d":3}}', idempotency_key="k")
        assert await bench.start(ONE, b'{"b":{"d":3,"c":2},"a":1}', idempotency_key="k") == first


@pytest.mark.parametrize(
    "other",
    [
        {"business_key": "b"},
        {"correlation_id": "c"},
        {"priority": 7},
        {"start_now": False},
        {"labels": b'{"colour":"red"}'},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_whatever_else_differs_makes_another_body(database_url: str, other: dict[str, object]) -> None:
    async with on(database_url) as bench:
        await bench.start(ONE, idempotency_key="k")
        with pytest.raises(KeyReused, match="another body"):
            await bench.start(ONE, idempotency_key="k", **other)


async def test_a_key_of_one_operation_is_free_in_another(database_url: str) -> None:
    async with on(database_url) as bench:
        first = await bench.start(ONE, idempotency_key="k")
        await bench.work_off()
        again = await rerun(bench.transactor, bench.starter, first, caller=Caller(TENANT, ACTOR), idempotency_key="k")
        assert again.created
        once_more = await rerun(
            bench.transactor, bench.starter, first, caller=Caller(TENANT, ACTOR), idempotency_key="k"
        )
        assert once_more == Started(again.run_id, created=False)


async def test_of_fifty_parallel_starts_under_one_business_key_one_lives(database_url: str) -> None:
    async with benches(database_url, 4) as opened:
        plan = await opened[0].publish(ONE)
        replies = await asyncio.gather(
            *(opened[place % len(opened)].start(plan, business_key="customer-7") for place in range(50)),
            return_exceptions=True,
        )
        [winner] = [reply for reply in replies if isinstance(reply, str)]
        refused = [reply for reply in replies if isinstance(reply, Conflict)]
        assert len(refused) == 49
        assert all(refusal.winner == {"run_id": winner} for refusal in refused)


@pytest.mark.parametrize("ending", ["success", "cancel"])
async def test_a_business_key_is_free_again_when_its_run_has_ended(database_url: str, ending: str) -> None:
    async with on(database_url) as bench:
        first = await bench.start(ONE, business_key="customer-7")
        with pytest.raises(Conflict, match=first):
            await bench.start(ONE, business_key="customer-7")
        if ending == "success":
            await bench.work_off()
        else:
            await cancel(bench.transactor, first, caller=Caller(TENANT, ACTOR))
        second = await bench.start(ONE, business_key="customer-7")
        assert second != first
        with pytest.raises(Conflict, match=second):
            await bench.start(ONE, business_key="customer-7")


async def test_a_run_that_ends_at_birth_holds_no_business_key(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(NEVER)
        both = await asyncio.gather(*(bench.start(plan, business_key="customer-7") for _ in range(2)))
        assert [await bench.state(run_id) for run_id in both] == [RunState.SUCCEEDED] * 2


async def test_an_idle_run_waits_to_be_started_and_is_started_once(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(ONE, start_now=False)
        assert await bench.state(run_id) is RunState.IDLE
        assert await bench.claim() == []
        assert await bench.store.stuck_runs() == []
        replies = await asyncio.gather(
            *(start_idle(bench.transactor, run_id, caller=Caller(TENANT, ACTOR)) for _ in range(5))
        )
        assert {reply["state"] for reply in replies} == {RunState.QUEUED}
        assert await bench.work_off() == 1
        with pytest.raises(Conflict, match="Rerun it instead"):
            await start_idle(bench.transactor, run_id, caller=Caller(TENANT, ACTOR))


async def test_a_run_that_does_not_exist_cannot_be_started(database_url: str) -> None:
    async with on(database_url) as bench:
        for run_id in (NOBODYS, "nothing-like-an-id"):
            with pytest.raises(NotFound):
                await start_idle(bench.transactor, run_id, caller=Caller(TENANT, ACTOR))


async def test_one_bad_start_is_refused_alone_among_good_ones(database_url: str) -> None:
    """The actor slips past the edge here, so that it is the database (or the encoder) that chokes on it."""

    async with on(database_url) as bench:
        plan = await bench.publish(ONE)
        bad = StartRequest(plan=plan, caller=Caller(TENANT, "half\ud800"), input=b"{}", run_id=NOBODYS)
        good = [bench.starter.start(StartRequest(plan=plan, caller=Caller(TENANT, ACTOR))) for _ in range(9)]
        replies = await asyncio.gather(*good[:4], bench.starter._lane.put(bad), *good[4:], return_exceptions=True)
        assert isinstance(replies[4], Exception)
        assert not isinstance(replies[4], asyncio.CancelledError)
        assert [type(reply) for reply in replies].count(Started) == 9
        assert sum((await bench.store.count_runs(TENANT)).values()) == 9


async def test_a_priority_beyond_its_bounds_is_refused(database_url: str) -> None:
    async with on(database_url) as bench:
        for priority in (10**7, -(10**7), 2**70, True, 1.5):
            with pytest.raises(InvalidInput, match="priority"):
                await bench.start(ONE, priority=priority)


async def test_all_steps_are_there_from_the_start(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("long", 5))
        assert await bench.step_states(run_id) == [StepState.READY, *[StepState.PENDING] * 4]


async def test_once_the_clock_is_known_a_run_starts_without_a_look(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("two", 2))
        await bench.start(plan)
        looks = count_calls(bench, "change")
        before = await bench.store.now()
        run_id = await bench.start(plan)
        assert len(looks) == 0
        record = await bench.store.read_run(TENANT, run_id)
        assert record is not None
        assert abs(record.details.created_at - before) < SECOND
        assert {claim.run_id for claim in await bench.claim(limit=5)} >= {run_id}


async def test_what_a_key_may_have_made_before_is_looked_for(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("two", 2))
        await bench.start(plan)
        looks = count_calls(bench, "change")
        await bench.start(plan, idempotency_key="k")
        await bench.start(plan, business_key="order 7")
        assert len(looks) == 2


async def test_a_clock_that_runs_ahead_of_the_databases_makes_a_start_look(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("two", 2))
        await bench.start(plan)
        bench.transactor.clock.read(await bench.store.now() + 60 * SECOND)
        looks = count_calls(bench, "change")
        run_id = await bench.start(plan)
        assert len(looks) == 1
        assert len(await bench.claim(limit=5)) == 2
        record = await bench.store.read_run(TENANT, run_id)
        assert record is not None
        assert record.details.created_at <= await bench.store.now()
