"""Seed 004, executing → validating → completed: what a repository adds after the tasks is the final validation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.workstream import BROKEN, DOES_NOT_HOLD, HOLDS, Floor, arrow, judged, on_floor, task, workstream
from tests.workbench import TENANT

from stepkeep.definition.policy import publishable_policy
from stepkeep.dialects.workstream.machine import FINAL_STEPS, JUDGED
from stepkeep.dialects.workstream.repository import OWN_STEPS
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.definition import Definition, Handler
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.going_on import ContinuationOptions, continue_run
from stepkeep.operations.continuation.pausing import pause_run, resume_run
from stepkeep.operations.people import policies
from stepkeep.operations.people.people import cancel, decide_hold
from stepkeep.operations.pipeline.start import Starter

CONFLICT = Failed(category=Category.CONFLICT, error="conflicts in a.txt")
RULE = {"validation_rules": {"post_execution": ["${{ steps.build.output.exit_code == 0 }}"]}}


def merged(**fields: Any) -> Definition:
    return workstream(task("build"), task("test", "build"), repository={"path": "/srv/shop.git"}, **fields)


async def do_tasks(floor: Floor, **fields: Any) -> None:
    await floor.start(merged(**fields))
    for name in ("worktree", "build", "test"):
        await floor.do(name)


def named(definition: Definition) -> dict[str, str]:
    return {one.name: one.executor.name for one in definition.steps if isinstance(one.executor, Handler)}


def test_the_steps_after_the_tasks_are_those_that_the_machine_names() -> None:
    handlers = named(merged())
    assert set(handlers) == set(OWN_STEPS)
    assert {handlers[name] for name in ("merge_plan", "merge", "cleanup")} == FINAL_STEPS == JUDGED.final


async def test_merge_plan_merge_and_clean_up_are_told_in_validating(database_url: str) -> None:
    async with on_floor(database_url) as floor:
        await do_tasks(floor)
        for name in ("merge_plan", "merge", "cleanup"):
            shown = (await floor.show())["workstream"]
            assert (shown["status"], shown["derived_status"]) == ("validating", "validating"), name
            await floor.do(name)
        assert await floor.life() == ["planned", "ready", "executing", "validating", "completed"]
        log = await floor.log()
        enters = arrow(log, None, "executing", "validating")
        assert enters["trigger"] == "all_tasks_completed"
        assert log.index(arrow(log, "test", "validating", "completed")) + 1 == log.index(enters)
        assert arrow(log, None, "validating", "completed")["trigger"] == "validation_passed"
        assert {line["metadata"].get("step") for line in log} == {None, "worktree", "build", "test"}
        body = await floor.show()
        assert [one["task_id"] for one in body["tasks"]] == ["build", "test", "worktree"]
        assert [(one["name"], one["state"]) for one in body["workstream"]["final_steps"]] == [
            ("merge_plan", "succeeded"), ("merge", "succeeded"), ("cleanup", "succeeded"),
        ]  # fmt: skip
        for place in range(1, len(log)):
            assert judged(log[:place] + log[place + 1 :]), f"dropping line {place} goes unseen"


async def test_a_final_rule_that_fails_is_a_failed_validation(database_url: str) -> None:
    async with on_floor(database_url) as floor:
        await do_tasks(floor, **RULE)
        assert (await floor.show())["workstream"]["validation_rules"]["post_execution"], (
            "the rules are the workstream's"
        )
        await floor.do("merge_plan")
        await floor.report("merge_plan", DOES_NOT_HOLD)
        log = await floor.log()
        assert await floor.life() == ["planned", "ready", "executing", "validating", "failed"]
        assert arrow(log, None, "validating", "failed")["trigger"] == "validation_failed"
        assert {await last_of(floor, name) for name in ("worktree", "build", "test")} == {"completed"}


async def last_of(floor: Floor, name: str) -> str:
    return (await floor.life(name))[-1]


async def test_a_conflict_leaves_the_workstream_in_validating(database_url: str) -> None:
    async with on_floor(database_url) as floor:
        await do_tasks(floor)
        await floor.do("merge_plan")
        await floor.do("merge", CONFLICT)
        assert (await floor.show())["workstream"]["status"] == "validating"
        await decide(floor, "retry")
        await floor.do("merge", CONFLICT)
        assert await floor.life() == ["planned", "ready", "executing", "validating"]
        await decide(floor, "fail")
        assert (await floor.life())[-1] == "failed"
        assert arrow(await floor.log(), None, "validating", "failed")["trigger"] == "validation_failed"


async def decide(floor: Floor, choice: str) -> None:
    await decide_hold(floor.transactor, floor.run_id, "merge", choice, caller=Caller(TENANT, "ann"), reason="so be it")


async def cancelled(floor: Floor) -> None:
    await cancel(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"), compensate=False)


async def out_of_time(floor: Floor) -> None:
    await floor.pass_time(4000)


@pytest.mark.parametrize(("end", "state"), [(cancelled, "cancelled"), (out_of_time, "failed")])
@pytest.mark.parametrize("held", [False, True], ids=["before the merge", "held by a conflict"])
async def test_a_final_validation_is_cancelled_or_runs_out_of_time(
    tmp_path: Path, end: Callable[[Floor], Awaitable[None]], state: str, held: bool
) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        await do_tasks(floor)
        await floor.do("merge_plan")
        if held:
            await floor.do("merge", CONFLICT)
        await end(floor)
        assert await floor.life() == ["planned", "ready", "executing", "validating", state]
        assert arrow(await floor.log(), None, "validating", state)["metadata"]["extension"] is True


@pytest.mark.parametrize("critical", [False, True])
async def test_a_task_that_fails_leads_to_no_final_validation(tmp_path: Path, critical: bool) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        last = task("last", max_retries=0, critical=critical)
        await floor.start(workstream(last, repository={"path": "/srv/shop.git"}))
        await floor.do("worktree")
        await floor.do("last", BROKEN)
        assert await floor.life() == ["planned", "ready", "executing", "failed"]
        word = "critical_task_failed" if critical else "task_failed"
        assert arrow(await floor.log(), None, "executing", "failed")["trigger"] == word


@pytest.mark.parametrize("then", ["hold", "deny"])
async def test_a_policy_about_the_merge_plan_is_told_in_the_final_validation(tmp_path: Path, then: str) -> None:
    rule = {"name": "books", "then": then, "steps": ["merge_plan"]} | (
        {"approval": {"prompt": "Are the books closed?"}} if then == "hold" else {"reason": "The books are closed."}
    )

    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        document = publishable_policy({"policy": "p", "rules": [rule]})
        await policies.publish_policy(floor.transactor, document, caller=Caller(TENANT, "ann"))
        await do_tasks(floor)
        assert "validating" in await floor.life()
        if then == "deny":
            assert arrow(await floor.log(), None, "validating", "failed")["trigger"] == "validation_failed"


async def test_a_pause_keeps_the_final_validation(tmp_path: Path) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        await do_tasks(floor)
        await pause_run(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"))
        assert (await floor.life())[-1] == "validating"
        await resume_run(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"))
        for name in ("merge_plan", "merge", "cleanup"):
            await floor.do(name)
        assert await floor.life() == ["planned", "ready", "executing", "validating", "completed"]


async def test_tasks_of_the_file_are_tasks_whatever_their_names(tmp_path: Path) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        await floor.start(workstream(task("merge"), task("cleanup", "merge", post=["${{ true }}"])))
        await floor.do("merge")
        await floor.do("cleanup")
        assert await floor.life("merge") == ["pending", "queued", "running", "validating", "completed"]
        await floor.report("cleanup", HOLDS)
        assert (await floor.life())[-1] == "completed"


@pytest.mark.parametrize("start", ["merge_plan", "merge"])
async def test_a_workstream_that_adopts_all_its_tasks_begins_with_its_final_validation(
    tmp_path: Path, start: str
) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        await do_tasks(floor)
        await floor.do("merge_plan")
        await floor.do("merge", CONFLICT)
        await decide(floor, "fail")
        wanted = ContinuationOptions(how=ContinuationKind.RERUN, start=start)
        starter = Starter(floor.transactor)
        again = await continue_run(floor.transactor, starter, floor.run_id, wanted, caller=Caller(TENANT, "ann"))
        floor.run_id = again.run_id
        assert await floor.life() == ["planned", "ready"]
        for name in ("merge_plan", "merge", "cleanup")[start == "merge" :]:
            await floor.do(name)
        assert await floor.life() == ["planned", "ready", "executing", "validating", "completed"]
