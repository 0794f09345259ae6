"""Promise 5: messages are never lost for being early and never consumed twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Definition, Wait
from stepkeep.kernel.errors import Conflict, Fenced, InvalidInput, NotFound
from stepkeep.kernel.machine.outcomes import Completed, Waiting
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.people.people import MAX_PAYLOAD_BYTES
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.start import start_idle
from stepkeep.operations.runs.views import describe_run
from tests.workbench import NOBODYS, SECOND, TENANT, Bench, benches, chain, gate, on, task

PAID = Definition(name="paid", version=1, steps=(gate("wait", wait=Wait(event="paid")), task("ship", 1, ["wait"])))
LATER = Definition(name="later", version=1, steps=(task("pack"), gate("wait", 1, ["pack"], wait=Wait(event="paid"))))
ONE = chain("one", 1)


async def outputs(bench: Bench, run_id: str, no: int) -> object:
    key = (TENANT, run_id, no)
    found = (await bench.store.read_outputs([key]))[key]
    return None if found is None else json.loads(found)


async def consumers(bench: Bench, run_id: str) -> list[int | None]:
    return [message.consumed_by for message in await bench.store.read_messages(TENANT, run_id)]


async def test_a_message_ends_the_wait_for_it_and_is_its_output(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(PAID)
        assert await bench.state(run_id) is RunState.BLOCKED
        await bench.send(run_id, "shipped", b"1")
        assert await bench.state(run_id) is RunState.BLOCKED
        reply = await bench.send(run_id, "paid", b'{"amount":7}')
        assert reply.record["consumed_by"] == 0
        assert await outputs(bench, run_id, 0) == {"amount": 7}
        await bench.work_off()
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_an_early_message_is_kept_until_somebody_waits_and_the_oldest_is_taken_first(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(LATER)
        for number in range(3):
            reply = await bench.send(run_id, "paid", str(number).encode())
            assert reply.record["consumed_by"] is None
        await bench.work_off()
        assert await bench.state(run_id) is RunState.SUCCEEDED
        assert await outputs(bench, run_id, 1) == 0
        assert await consumers(bench, run_id) == [1, None, None]


async def test_a_message_to_an_idle_run_is_kept_for_its_life(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(PAID, start_now=False)
        await bench.send(run_id, "paid", b"5")
        assert await bench.state(run_id) is RunState.IDLE
        await start_idle(bench.transactor, run_id, caller=Caller(TENANT, "somebody"))
        assert await outputs(bench, run_id, 0) == 5


async def test_a_handler_that_parks_finds_the_message_that_came_while_it_ran(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(ONE)
        [claim] = await bench.claim()
        await bench.send(run_id, "paid", b'"now"')
        await bench.report(claim, Waiting(event="paid"))
        assert await bench.step_states(run_id) == [StepState.READY]
        [again] = await bench.claim()
        assert again.step.note is not None
        assert again.step.note.woken_by is not None
        assert json.loads(again.step.note.woken_by)["message"]["payload"] == "now"
        assert again.step.attempts == 0, "a wake-up after a wait is no attempt"
        await bench.report(again)
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_the_same_message_again_changes_nothing(database_url: str) -> None:
    async with benches(database_url, 3) as opened:
        run_id = await opened[0].start(LATER)
        replies = await asyncio.gather(
            *(opened[place % len(opened)].send(run_id, "paid", b"1", message_id="m-1") for place in range(30))
        )
        assert sum(not reply.repeated for reply in replies) == 1
        assert len(await opened[0].store.read_messages(TENANT, run_id)) == 1
        await opened[0].work_off()
        reply = await opened[1].send(run_id, "paid", b"1", message_id="m-1")
        assert reply.repeated, "also after it was consumed, and after the run has ended"


async def test_of_many_messages_at_once_each_wait_takes_exactly_one(database_url: str) -> None:
    waits = Definition(
        name="three", version=1, steps=tuple(gate(f"w{no}", no, wait=Wait(event="go")) for no in range(3))
    )

    async def act(opened: list[Bench]) -> None:
        run_id = await opened[0].start(waits)
        replies = await asyncio.gather(
            *(opened[place % len(opened)].send(run_id, "go", str(place).encode()) for place in range(20)),
            return_exceptions=True,
        )
        taken = [reply.record["consumed_by"] for reply in replies if not isinstance(reply, BaseException)]
        assert sorted(no for no in taken if no is not None) == [0, 1, 2]
        assert await opened[0].state(run_id) is RunState.SUCCEEDED
        assert all(isinstance(reply, Conflict) for reply in replies if isinstance(reply, BaseException))

    async with benches(database_url, 3) as opened:
        await act(opened)


async def test_a_message_races_the_report_that_waits_for_it_and_is_never_lost(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        plan = await opened[0].publish(ONE)
        for _ in range(20):
            run_id = await opened[0].start(plan)
            [claim] = await opened[0].claim()
            await asyncio.gather(opened[0].report(claim, Waiting(event="paid")), opened[1].send(run_id, "paid", b"1"))
            assert await opened[0].step_states(run_id) == [StepState.READY]
            [again] = await opened[0].claim()
            await opened[0].report(again)


async def test_a_late_message_is_refused_by_a_run_that_has_ended(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(PAID)
        await bench.cancel(run_id)
        with pytest.raises(Conflict, match="takes no more messages"):
            await bench.send(run_id, "paid")


async def test_a_message_after_the_deadline_of_its_wait_does_not_bring_it_back(database_url: str) -> None:
    hurried = Definition(
        name="hurried",
        version=1,
        steps=(gate("wait", wait=Wait(event="paid", deadline=60 * SECOND)),),
    )

    async with on(database_url) as bench:
        run_id = await bench.start(hurried)
        bench.store.clock_offset = 61 * SECOND
        await sweep(bench.transactor)
        assert await bench.state(run_id) is RunState.FAILED
        with pytest.raises(Conflict):
            await bench.send(run_id, "paid")


async def test_the_deadline_of_a_wait_decides_and_not_the_sweep(database_url: str) -> None:
    """A late approval is refused before a sweep, too."""
    hurried = Wait(event="paid", deadline=60 * SECOND)
    shop = Definition(name="shop", version=1, steps=(gate("wait", wait=hurried), task("ship", 1, ["wait"])))

    async with on(database_url) as bench:
        run_id = await bench.start(shop)
        bench.store.clock_offset = 60 * SECOND
        with pytest.raises(Conflict, match="is failed; it takes no more messages"):
            await bench.send(run_id, "paid")
        assert await bench.state(run_id) is RunState.FAILED
        assert not await sweep(bench.transactor)


async def test_a_run_ends_at_its_timeout_although_a_worker_holds_a_step(database_url: str) -> None:
    """000 §3.4: a handler that blocks its thread does not keep the run; its lease is fenced."""
    limited = replace(chain("limited", 2), timeout=60 * SECOND)

    async with on(database_url) as bench:
        run_id = await bench.start(limited)
        [held] = await bench.claim(1, lease=3600 * SECOND)
        bench.store.clock_offset = 60 * SECOND
        await sweep(bench.transactor)
        assert await bench.state(run_id) is RunState.FAILED
        assert isinstance(await bench.report(held, Completed()), Fenced)
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert view["steps"][0]["error"].startswith("IN_DOUBT")


async def test_a_run_that_does_not_exist_takes_no_message(database_url: str) -> None:
    async with on(database_url) as bench:
        for run_id in (NOBODYS, "nothing-like-an-id"):
            with pytest.raises(NotFound):
                await bench.send(run_id, "paid")


async def test_one_bad_message_is_refused_alone_among_good_ones(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(PAID)
        runs = [await bench.start(plan) for _ in range(9)]
        good = [bench.send(run_id, "paid", b"1") for run_id in runs]
        replies = await asyncio.gather(
            *good[:4],
            bench.send(runs[0], "paid", b"1", message_id="a\x00b"),
            bench.send(NOBODYS, "paid"),
            bench.send(runs[0], "paid", b"x" * (MAX_PAYLOAD_BYTES + 1)),
            *good[4:],
            return_exceptions=True,
        )
        assert [type(reply) for reply in replies[4:7]] == [InvalidInput, NotFound, InvalidInput]
        assert not any(isinstance(reply, BaseException) for reply in (*replies[:4], *replies[7:]))


def test_a_handler_chooses_its_messages_and_learns_what_it_took(database_url: str) -> None:
    registry = Registry()

    def count_votes(ctx: sk.Context) -> Any:
        if ctx.woken_by is None:
            return sk.wait_for("vote", where="message.n > input.least", count=2)
        return {"votes": ctx.woken_by.payload, "last": ctx.woken_by.id}

    registry.register(HandlerSpec(name="ballot.count", function=count_votes))
    flow = sk.Workflow("ballot", version=1)
    flow.step("count", "ballot.count")
    with sk.open(database_url, registry=registry) as engine:
        run = engine.start(flow, {"least": 10}).run_id
        engine.send(run, "vote", {"n": 5}, message_id="v0")
        assert engine.work_on(run).state is RunState.BLOCKED
        for number, value in enumerate((20, 7, 30, 40), start=1):
            engine.send(run, "vote", {"n": value}, message_id=f"v{number}")
        assert engine.work_on(run).output == {"votes": [{"n": 20}, {"n": 30}], "last": "v3"}
