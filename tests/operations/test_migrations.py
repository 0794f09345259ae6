"""Live runs go on under another version, on both databases: what settled is adopted, or the run stays with reasons."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict, NotFound
from stepkeep.operations.continuation import migrating
from stepkeep.operations.continuation.jobs import JobSweep
from stepkeep.operations.limits.slots import SlotSweep
from stepkeep.operations.pipeline.expire import sweep_timers
from stepkeep.operations.pipeline.plans import plan_of

DONE: list[tuple[str, str]] = []


async def book(ctx: sk.Context) -> str:
    DONE.append(("book", ctx.idempotency_key))
    return "booked"


async def unbook(ctx: sk.Context) -> None:
    DONE.append(("unbook", ctx.idempotency_key))


async def ship(ctx: sk.Context) -> str:
    DONE.append(("ship", ctx.idempotency_key))
    return "shipped"


async def tell(ctx: sk.Context) -> str:
    DONE.append(("tell", ctx.idempotency_key))
    return "told"


def shop(
    version: int, *, added: bool = False, first: bool = False, undo: Any = unbook, name: str = "shop"
) -> sk.Workflow:
    """Book, then ask a person, then ship. `added` tells at the end; `first` tells before everything."""
    flow = sk.Workflow(name, version=version)
    told = flow.step("tell", tell) if first else None
    booked = flow.step("book", book, effect="write", undo=undo, **({"after": told} if told else {}))
    asked = flow.approval("ask", after=booked)
    shipped = flow.step("ship", ship, after=asked, retry=sk.Retry(max_attempts=version))
    if added:
        flow.step("tell", tell, after=shipped)
    return flow


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    DONE.clear()
    yield
    DONE.clear()


@asynccontextmanager
async def on(url: str) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(url, actor="ann") as engine:
        yield engine


def did() -> list[str]:
    return [name for name, _ in DONE]


async def certified(engine: AsyncEngine, *runs: str) -> None:
    for run in runs:
        certificate = await engine.certify(run)
        assert certificate.ok, certificate.page()


async def blocked(engine: AsyncEngine, **options: Any) -> str:
    """A run of version 1 that has booked, and asks."""
    result = await engine.run(shop(1), **options)
    assert result.state == "blocked"
    return result.run_id


async def test_a_live_run_goes_on_under_the_new_version_and_does_nothing_twice(database_url: str) -> None:
    async with on(database_url) as engine:
        old = await blocked(engine, business_key="order-7")
        await engine.publish(shop(2, added=True))
        looked = await engine.migrations.preview(old, 2)
        assert (looked["allowed"], looked["adopted"], looked["added"]) == (True, ["book"], ["tell"])
        moved = await engine.migrations.migrate(old, 2, reason="customers are told")
        new = moved["new_run_id"]
        assert (moved["created"], moved["version"]) == (True, 2)
        ended = (await engine.show(old))["run"]
        assert (ended["state"], ended["continued_by"]) == ("cancelled", [new])
        assert ended["error"] == f"cancelled by ann: migrated to version 2 as run {new}: customers are told"
        await engine.approve(new, by="bea")
        result = await engine.work_on(new)
        assert (result.state, did()) == ("succeeded", ["book", "ship", "tell"])
        view = (await engine.show(new))["run"]
        assert (view["version"], view["business_key"], view["continues"]["as"]) == (2, "order-7", "migrate")
        again = await engine.migrations.migrate(old, 2)
        assert (again["new_run_id"], again["created"]) == (new, False)
        await certified(engine, old, new)


async def test_a_migrated_run_undoes_once_what_the_earlier_one_did(database_url: str) -> None:
    async with on(database_url) as engine:
        old = await blocked(engine)
        await engine.publish(shop(2, added=True))
        new = (await engine.migrations.migrate(old, 2))["new_run_id"]
        await engine.cancel(new, compensate=True)
        assert (await engine.work_on(new)).state == "rolled_back"
        assert DONE[1:] == [("unbook", f"{old}:book:compensate")]
        await certified(engine, old, new)


async def test_a_run_stays_whose_finished_step_would_mean_something_else(database_url: str) -> None:
    async with on(database_url) as engine:
        old = await blocked(engine)
        await engine.publish(shop(2, undo=tell))
        await engine.publish(shop(3, first=True))
        for version, reason in ((2, "step book began, and its undo differs"), (3, "depends on tell")):
            with pytest.raises(Conflict, match=reason) as refused:
                await engine.migrations.migrate(old, version)
            assert refused.value.winner is not None
            assert refused.value.winner["reasons"]
        assert (await engine.show(old))["run"]["state"] == "blocked"
        with pytest.raises(Conflict, match="of version 1 already"):
            await engine.migrations.migrate(old, 1)
        with pytest.raises(NotFound):
            await engine.migrations.migrate(old, 9)


async def test_a_run_whose_step_a_worker_holds_stays_and_its_result_counts(database_url: str) -> None:
    async with on(database_url) as engine:
        flow, begun, go_on = sk.Workflow("slow", version=1), asyncio.Event(), asyncio.Event()

        async def wait(ctx: sk.Context) -> str:
            begun.set()
            await go_on.wait()
            return "done"

        flow.step("wait", wait, effect="write")
        work = asyncio.create_task(engine.run(flow))
        await begun.wait()
        after = sk.Workflow("slow", version=2)
        after.step("wait", wait, effect="write", retry=sk.Retry(max_attempts=5))
        await engine.publish(after)
        [run] = (await engine.runs(workflow="slow"))["runs"]
        looked = await engine.migrations.preview(run["id"], 2)
        assert looked["reasons"] == [
            "a worker holds step wait: pause the run, and migrate it when the step has settled"
        ]
        with pytest.raises(Conflict, match="a worker holds step wait"):
            await engine.migrations.migrate(run["id"], 2)
        go_on.set()
        assert (await work).state == "succeeded"


async def test_all_runs_of_a_workflow_are_migrated_and_the_others_are_told(database_url: str) -> None:
    async with on(database_url) as engine:
        runs = [await blocked(engine) for _ in range(3)]
        await engine.approve(runs[0], by="bea")
        kept = (await engine.start(shop(1), start_now=False)).run_id
        await engine.publish(shop(2, added=True))
        looked = await engine.migrations.preview_all("shop", 2)
        assert (looked["examined"], looked["could_migrate"], looked["must_stay"]) == (4, 3, 1)
        assert [row["state"] for row in looked["states"]] == ["blocked", "idle", "running"]
        [stays] = looked["staying"]
        assert (stays["run_id"], stays["state"]) == (kept, "idle")
        job = await engine.migrations.migrate_all("shop", 2, reason="v2")
        assert (job["action"], job["to"], job["runs"], job["waiting"]) == ("migrate", 2, 4, 4)
        await JobSweep(engine.transactor).sweep("w")
        done = await engine.jobs.show(job["job"])
        assert (done["state"], done["done"], done["refused"]) == ("done", 3, 1)
        told = {one["run_id"]: one for one in (await engine.jobs.runs(job["job"]))["runs"]}
        assert (told[kept]["result"], "it has not been started" in told[kept]["detail"]) == ("refused", True)
        for run in runs:
            view = (await engine.show(told[run]["new_run_id"]))["run"]
            assert view["version"] == 2
            await certified(engine, run, told[run]["new_run_id"])
        again = await engine.migrations.migrate_all("shop", 2, of=1)
        assert again["runs"] == 1


async def test_of_several_migrations_at_once_one_wins(database_url: str) -> None:
    async with on(database_url) as engine:
        old = await blocked(engine)
        await engine.publish(shop(2, added=True))
        told = await asyncio.gather(*(engine.migrations.migrate(old, 2) for _ in range(5)))
        assert len({one["new_run_id"] for one in told}) == 1
        assert sorted(one["created"] for one in told) == [False] * 4 + [True]


async def test_a_migration_that_another_one_overtakes_answers_as_that_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as engine:
        old = await blocked(engine)
        await engine.publish(shop(2, added=True))
        examine, first = migrating._examine, list[dict[str, Any]]()

        async def overtaken(*given: Any) -> Any:
            monkeypatch.setattr(migrating, "_examine", examine)
            first.append(await engine.migrations.migrate(old, 2))
            return await examine(*given)

        monkeypatch.setattr(migrating, "_examine", overtaken)
        told = await engine.migrations.migrate(old, 2)
        assert (told["created"], told["new_run_id"]) == (False, first[0]["new_run_id"])


async def test_messages_that_no_step_has_taken_keep_a_run_where_it_is(database_url: str) -> None:
    async with on(database_url) as engine:
        old = await blocked(engine)
        await engine.publish(shop(2))
        await engine.send(old, "note", {"n": 1})
        with pytest.raises(Conflict, match="1 of its messages"):
            await engine.migrations.migrate(old, 2)


def timed(version: int, *, slots: int | None = None, timeout: str = "1h", **budget: Any) -> sk.Workflow:
    """Ask, wait and sleep at once, each until a moment; a person's yes ships."""
    flow = sk.Workflow("timed", version=version, timeout=timeout, slots=slots, **budget)
    asked = flow.approval("ask", deadline="30m")
    flow.step("ship", ship, after=asked, retry=sk.Retry(max_attempts=version))
    flow.wait("paid", "paid", deadline="20m")
    flow.sleep("rest", "10m")
    return flow


async def times(engine: AsyncEngine, run: str) -> tuple[int | None, dict[str, int | None]]:
    """When the run times out, and when each of its open steps is due."""
    found = await engine.store.read_run("default", run)
    assert found is not None
    plan = await plan_of(engine.transactor, "default", run)
    steps = await engine.store.read_steps("default", run)
    return found.run.due_at, {plan.at(step.no).name: step.due_at for step in steps}


async def later(engine: AsyncEngine, minutes: int) -> None:
    engine.store.clock_offset += minutes * 60_000_000 + 1
    await sweep_timers(engine.transactor)


async def migrated(engine: AsyncEngine, run: str, to: int) -> str:
    new: str = (await engine.migrations.migrate(run, to))["new_run_id"]
    return new


async def test_a_migrated_run_keeps_its_timeout_and_the_ends_of_what_it_waits_for(database_url: str) -> None:
    async with on(database_url) as engine:
        for version, timeout in ((2, "1h"), (3, "2h"), (4, "1m")):
            await engine.publish(timed(version, timeout=timeout))
        first = (await engine.start(timed(1))).run_id
        before = await times(engine, first)
        assert None not in before[1].values() or before[1]["ship"] is None
        await later(engine, 5)
        second = await migrated(engine, first, 2)
        assert await times(engine, second) == before
        await later(engine, 1)
        third = await migrated(engine, second, 3)
        hour = 3_600_000_000
        assert await times(engine, third) == ((before[0] or 0) + hour, before[1]), "two hours from the first start"
        with pytest.raises(Conflict, match="its timeout under the new version has passed"):
            await engine.migrations.migrate(third, 4)
        await later(engine, 5)
        states = {step["name"]: step["state"] for step in (await engine.show(third))["steps"]}
        assert (states["rest"], states["paid"], states["ask"]) == ("succeeded", "awaiting_event", "awaiting_approval")
        await certified(engine, first, second, third)
        await later(engine, 20)
        assert (await engine.show(third))["run"]["state"] == "failed"
        await certified(engine, first, second, third)


async def test_a_migrated_run_times_out_when_the_first_one_would_have(database_url: str) -> None:
    def asking(version: int) -> sk.Workflow:
        flow = sk.Workflow("asking", version=version, timeout="1h")
        flow.approval("ask", **({} if version == 1 else {"description": "more"}))
        return flow

    async with on(database_url) as engine:
        old = (await engine.start(asking(1))).run_id
        await later(engine, 50)
        await engine.publish(asking(2))
        new = await migrated(engine, old, 2)
        await later(engine, 11)
        view = (await engine.show(new))["run"]
        assert (view["state"], view["category"]) == ("failed", "timeout")
        await certified(engine, old, new)


async def test_a_migrated_run_takes_over_the_slot_and_the_place_of_the_earlier_one(database_url: str) -> None:
    async with on(database_url) as engine:
        held, waits, behind = [(await engine.start(timed(1, slots=1))).run_id for _ in range(3)]
        await engine.publish(timed(2, slots=1))
        second = await migrated(engine, waits, 2)
        first = await migrated(engine, held, 2)
        assert (await engine.show(first))["run"]["state"] == "blocked"
        assert (await engine.show(second))["run"]["state"] == "queued"
        [use] = (await engine.slots.list())["slots"]
        assert (use["held"], use["waiting"]) == (1, 2)
        await engine.cancel(first)
        sweep = SlotSweep(engine.transactor)
        assert await sweep.sweep() == 1
        sweep.close()
        assert (await engine.show(second))["run"]["state"] == "blocked", "it came before the third run, and comes first"
        assert (await engine.show(behind))["run"]["state"] == "queued"
        await certified(engine, held, waits, first, second)


async def test_what_the_earlier_run_spent_counts_in_the_budget_of_the_new_one(database_url: str) -> None:
    def spending(version: int) -> sk.Workflow:
        flow = sk.Workflow("spending", version=version, budget={"attempts": 3})
        booked = flow.step("book", book, effect="write")
        again = flow.step("ship", ship, after=booked)
        asked = flow.approval("ask", after=again)
        told = flow.step("tell", tell, after=asked, retry=sk.Retry(max_attempts=version))
        flow.step("more", tell, after=told)
        return flow

    async with on(database_url) as engine:
        await engine.publish(spending(2))
        await engine.publish(spending(3))
        old = await engine.run(spending(1))
        assert old.state == "blocked"
        new = await migrated(engine, await migrated(engine, old.run_id, 2), 3)
        await engine.approve(new, by="bea")
        result = await engine.work_on(new)
        assert (result.state, did()) == ("failed", ["book", "ship", "tell"])
        await certified(engine, old.run_id, new)


async def test_a_gate_that_has_escalated_stays(database_url: str) -> None:
    def two_levels(version: int) -> sk.Workflow:
        flow = sk.Workflow("levels", version=version)
        flow.approval(
            "ask", deadline="10m", on_deadline="escalate", escalate=[{"roles": ["boss"], "deadline": "1h"}],
            **({} if version == 1 else {"description": "more"}),
        )  # fmt: skip
        return flow

    async with on(database_url) as engine:
        run = (await engine.start(two_levels(1))).run_id
        await engine.publish(two_levels(2))
        await later(engine, 11)
        with pytest.raises(Conflict, match="has escalated"):
            await engine.migrations.migrate(run, 2)


@pytest.mark.parametrize("covers", ["plan", "shown"])
async def test_a_gate_opens_anew_in_a_migration_that_changes_the_steps_behind_it(
    database_url: str, covers: Any
) -> None:
    def paying(version: int, handler: Any, **more: Any) -> sk.Workflow:
        flow = sk.Workflow("paying", version=version)
        flow.approval("sign", covers=covers)
        flow.wait("later", "go", after="sign", deadline="1d")
        flow.step("pay", handler, after="later", **more)
        return flow

    async with on(database_url) as engine:
        run = (await engine.run(paying(1, book), check=False)).run_id
        await engine.approve(run, by="bea")
        await engine.work_on(run)
        await engine.publish(paying(2, book, retry=sk.Retry(max_attempts=7)))
        await engine.publish(paying(3, ship))
        setting = await engine.migrations.preview(run, 2)
        assert (setting["allowed"], setting["reopens"], setting["adopted"]) == (True, [], ["sign"])
        seen = await engine.migrations.preview(run, 3)
        expected = ([], ["sign"]) if covers == "shown" else (["sign"], [])
        assert (seen["allowed"], (seen["reopens"], seen["adopted"])) == (True, expected), seen["reasons"]
        every = await engine.migrations.preview_all("paying", 3)
        assert every["reopens"] == [{"step": step, "runs": 1} for step in expected[0]]
        new = (await engine.migrations.migrate(run, 3))["new_run_id"]
        assert [one["step"] for one in (await engine.approvals(by="bea"))["approvals"]] == expected[0]
        certificate = await engine.certify(new)
        assert certificate.ok, certificate.page()
