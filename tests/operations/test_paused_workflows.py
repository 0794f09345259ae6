"""Paused workflows, on both databases: their runs start paused, whatever starts them; live runs are unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotFound
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.continuation.pausing import resume_run
from stepkeep.operations.limits.pauses import list_pauses, pause_workflow, resume_workflow
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.start import StartRequest, start_idle
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.status import read_status
from tests.operations.test_children import call, flow, only_child
from tests.workbench import SECOND, TENANT, Bench, benches, chain, on, task

CALLER = Caller(TENANT, "bea")
ORDER = chain("order", 2)


async def hold(bench: Bench, workflow: str = "order", reason: str = "a bad release") -> dict[str, Any]:
    found = await pause_workflow(bench.store, workflow, reason, caller=CALLER)
    bench.starter.pauses.forget(TENANT)
    return found


async def release(bench: Bench, workflow: str = "order") -> dict[str, Any]:
    found = await resume_workflow(bench.store, workflow, caller=CALLER)
    bench.starter.pauses.forget(TENANT)
    return found


async def causes(bench: Bench, run_id: str) -> list[list[tuple[str, str]]]:
    """The events of each journal entry, with their actors."""
    entries = await bench.store.read_journal(TENANT, run_id, after=0, limit=100)
    return [[(one.event, one.actor) for one in open_entry(entry.body).causes] for entry in entries]


async def test_a_run_of_a_paused_workflow_starts_paused_and_goes_on_when_it_is_resumed(database_url: str) -> None:
    async with on(database_url) as bench:
        before = await bench.start(ORDER)
        await hold(bench)
        run, other = await bench.start(ORDER), await bench.start(chain("other", 1))
        states = [await bench.state(one) for one in (before, run, other)]
        assert states == [RunState.QUEUED, RunState.PAUSED, RunState.QUEUED]
        assert (await causes(bench, run))[1:] == [[("pause_requested", "bea")]]
        assert {claim.run_id for claim in await bench.claim(10)} == {before, other}
        told = await explain(bench.transactor, run, None, tenant=TENANT)
        said = " ".join(cause.sentence for cause in told.causes)
        assert "is paused by bea since" in said
        assert "workflow order is paused: a bad release" in said
        await release(bench)
        assert await bench.state(await bench.start(ORDER)) is RunState.QUEUED
        assert await bench.state(run) is RunState.PAUSED
        await resume_run(bench.transactor, run, caller=Caller(TENANT, "bea"))
        await bench.work_off()
        assert await bench.state(run) is RunState.SUCCEEDED


async def test_what_is_paused_is_listed_and_keeps_its_first_note(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(ORDER)
        await hold(bench, reason="first")
        await hold(bench, reason="second")
        [one] = (await list_pauses(bench.store, TENANT))["pauses"]
        assert (one["scope"], one["workflow"], one["queue"]) == ("workflow", "order", None)
        assert (one["by"], one["reason"]) == ("bea", "first")
        status = (await read_status(bench.transactor, tenant=TENANT))["status"]
        assert (status["paused"], [one["workflow"] for one in status["paused_workflows"]]) == ([], ["order"])
        assert (await list_pauses(bench.store, "other"))["pauses"] == []
        with pytest.raises(NotFound, match="ordre"):
            await hold(bench, "ordre")
        with pytest.raises(NotFound, match="ordre"):
            await release(bench, "ordre")
        assert (await release(bench))["pauses"] == []
        assert (await release(bench))["pauses"] == []


async def test_another_process_notices_the_pause_within_a_second(database_url: str) -> None:
    async with benches(database_url, 2) as several:
        here, there = several
        await there.start(ORDER)
        await hold(here)
        # What it read before is a second old by now.
        read_at, known = there.starter.pauses._known[TENANT]
        there.starter.pauses._known[TENANT] = (read_at - 1, known)
        assert await there.state(await there.start(ORDER)) is RunState.PAUSED


async def test_one_key_starts_one_run_whether_the_workflow_is_paused_or_not(database_url: str) -> None:
    async with on(database_url) as bench:
        first = await bench.start(ORDER, idempotency_key="k")
        await hold(bench)
        assert await bench.start(ORDER, idempotency_key="k") == first
        assert await bench.state(first) is RunState.QUEUED


async def test_idle_and_delayed_runs_are_paused_in_the_transaction_that_starts_them(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(ORDER)
        await hold(bench)

        async def made(**options: Any) -> str:
            request = StartRequest(plan=plan, caller=Caller(TENANT, "ann"), **options)
            return (await bench.starter.start(request)).run_id

        idle, delayed = await made(start_now=False), await made(start_delay=60 * SECOND)
        assert [await bench.state(one) for one in (idle, delayed)] == [RunState.IDLE, RunState.IDLE]
        assert await start_idle(bench.transactor, idle, caller=Caller(TENANT, "ann")) == {"state": RunState.PAUSED}
        bench.store.clock_offset = 61 * SECOND
        await sweep(bench.transactor)
        assert [await bench.state(one) for one in (idle, delayed)] == [RunState.PAUSED, RunState.PAUSED]
        for run, starter in ((idle, "ann"), (delayed, "sweep")):
            assert (await causes(bench, run))[-1] == [("run_started", starter), ("pause_requested", "bea")]
        assert await bench.claim(10) == []
        await resume_run(bench.transactor, idle, caller=Caller(TENANT, "bea"))
        assert (await start_idle(bench.transactor, idle, caller=Caller(TENANT, "ann")))["state"] is RunState.QUEUED


async def test_a_child_of_a_paused_workflow_starts_paused(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(flow("leaf", task("work", 0)))
        await hold(bench, "leaf")
        run = await bench.start(flow("parent", call("sub", 0, "leaf")))
        children = ChildSweep(bench.transactor)
        while await children.sweep():
            pass
        children.close()
        child = await only_child(bench, run)
        assert await bench.state(child.child_id) is RunState.PAUSED
        assert await bench.claim(10) == []


async def test_a_run_under_a_limit_starts_paused_and_is_granted_its_slot_after_it(database_url: str) -> None:
    async with on(database_url) as bench:
        definition = chain("order", 1, slots=1)
        await bench.publish(definition)
        await hold(bench)
        run = await bench.start(definition)
        assert (await bench.state(run), await bench.claim(10)) == (RunState.PAUSED, [])
        await release(bench)
        await resume_run(bench.transactor, run, caller=Caller(TENANT, "bea"))
        await bench.start(definition)
        assert [claim.run_id for claim in await bench.claim(10)] == [run]


DONE: list[str] = []


async def ship(ctx: sk.Context) -> str:
    DONE.append(ctx.run_id)
    return "shipped"


async def break_(ctx: sk.Context) -> None:
    raise sk.fail("it is broken")


def shop(version: int = 1) -> sk.Workflow:
    made = sk.Workflow("shop", version=version)
    asked = made.approval("ask")
    made.step("ship", ship, after=asked, retry=sk.Retry(max_attempts=version))
    return made


def broken() -> sk.Workflow:
    made = sk.Workflow("broken", version=1)
    made.step("ship", break_, after=made.step("first", ship))
    return made


@asynccontextmanager
async def with_engine(url: str) -> AsyncIterator[AsyncEngine]:
    DONE.clear()
    async with AsyncEngine(url, actor="ann") as engine:
        yield engine


async def test_triggers_messages_retries_and_migrations_start_paused_runs(database_url: str) -> None:
    async with with_engine(database_url) as engine:
        failed = (await engine.run(broken())).run_id
        live = (await engine.run(shop())).run_id
        DONE.clear()
        await engine.publish(shop(2))
        await engine.triggers.add("hourly", "shop", every="1h")
        for workflow in ("shop", "broken"):
            await engine.pauses.pause_workflow(workflow, reason="a bad release", by="bea")
        fired = await engine.triggers.fire("hourly")
        sent = await engine.send(None, "paid", key="order-7", start="shop")
        migrated = (await engine.migrations.migrate(live, 2))["new_run_id"]
        retried = (await engine.continuations.retry(failed)).run_id
        forked = (await engine.continuations.fork(failed, "ship")).run_id
        begun = (await engine.run(broken())).run_id
        runs = [fired["run_id"], sent["run_id"], migrated, retried, forked, begun]
        for run in runs:
            assert (await engine.show(run))["run"]["state"] == "paused", runs.index(run)
            certificate = await engine.certify(run)
            assert certificate.ok, certificate.page()
        assert DONE == []


async def test_a_live_run_is_paused_by_a_job_and_can_be_undone_while_its_workflow_is_paused(database_url: str) -> None:
    async with with_engine(database_url) as engine:
        live = (await engine.run(shop())).run_id
        await engine.pauses.pause_workflow("shop")
        assert (await engine.show(live))["run"]["state"] == "blocked"
        found = await engine.jobs.start("pause", where={"workflow": "shop"}, dry_run=True)
        assert found["first"] == [live]
        await engine.cancel(live, compensate=True)
        assert (await engine.show(live))["run"]["state"] in ("cancelled", "rolled_back")
