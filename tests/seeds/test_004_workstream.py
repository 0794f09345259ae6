"""Seed 004 on the real engine: every arrow of tasks and workstreams, with its trigger, guard, actions and severity.

The judge replays each log these tests make (`Floor.log`), so every one of them also shows that the arrows are legal
and the invariants hold. Workers have a file of their own, and so have the format, the derivation and the words.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.seeds.workstream import (
    BROKEN,
    DOES_NOT_HOLD,
    HOLDS,
    RULE,
    Line,
    arrow,
    lines_of,
    on_floor,
    task,
    workstream,
)
from tests.workbench import SECOND, TENANT

from stepkeep.kernel.errors import Fenced
from stepkeep.kernel.machine.outcomes import Failed, Released, TimedOut
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.people.people import cancel
from stepkeep.operations.pipeline.start import start_idle


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stepkeep.db"


def pause(line: Line) -> float:
    """The seconds after which a retrying task is due."""
    return float((line["metadata"]["due_at"] - line["metadata"]["at"]) / SECOND)


DIAMOND = workstream(
    task("build"), task("lint", "build"), task("test", "build", post=[RULE]), task("ship", "lint", "test")
)


# -- task: the way that succeeds -------------------------------------------------------------------------------------
async def test_a_task_goes_from_pending_through_queued_running_and_validating_to_completed(database_url: str) -> None:
    """Task Lifecycle, Transitions: the way without a failure, on both databases."""

    async with on_floor(database_url) as floor:
        await floor.start(DIAMOND)
        for name in ("build", "lint", "test"):
            await floor.do(name)
        await floor.report("test", HOLDS)
        await floor.do("ship")
        way = ["pending", "queued", "running", "validating", "completed"]
        for name in ("build", "lint", "test", "ship"):
            assert await floor.life(name) == way
        lines = await floor.log()
        assert [line["trigger"] for line in lines_of(lines, "test")] == [
            "created", "scheduler_assigned", "worker_started", "execution_completed", "validation_passed",
        ]  # fmt: skip
        assert {line["severity"] for line in lines} == {"info"}


async def test_pending_to_queued_waits_for_every_dependency(url: str) -> None:
    """pending → queued, guard: task dependencies satisfied."""

    async with on_floor(url) as floor:
        await floor.start(DIAMOND)
        assert await floor.claim() == ["build"]
        await floor.report("build")
        assert await floor.claim() == ["lint", "test"], "ready tasks are taken in the order of their ids"
        await floor.report("lint")
        assert await floor.life("ship") == ["pending"]
        await floor.report("test")
        assert await floor.life("ship") == ["pending"], "its rules are still to pass"
        await floor.report("test", HOLDS)
        assert await floor.life("ship") == ["pending", "queued"]


async def test_queued_to_running_assigns_a_worker_and_sets_started_at(url: str) -> None:
    """queued → running, actions: assign worker_id, start the timeout timer, set started_at."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("build", timeout_seconds=7)))
        queued = await floor.shown("build")
        assert (queued["status"], queued["state"]["assigned_worker"], queued["state"]["started_at"]) == (
            "queued", None, None,
        )  # fmt: skip
        await floor.claim()
        line = arrow(await floor.log(), "build", "queued", "running")
        assert floor.bench.registered is not None
        running = await floor.shown("build")
        assert line["metadata"]["worker"] == running["state"]["assigned_worker"] == floor.bench.registered.id
        assert running["state"]["started_at"] == line["timestamp"]
        assert running["execution"]["timeout_seconds"] == 7


async def test_validating_to_completed_sets_completed_at_and_lets_the_worker_go(url: str) -> None:
    """validating → completed: completed_at, dependents unblocked, resources released; only running has a worker."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("test", post=[RULE]), task("ship", "test")))
        await floor.do("test")
        checked = await floor.shown("test")
        assert (checked["status"], checked["state"]["assigned_worker"], checked["state"]["completed_at"]) == (
            "validating", None, None,
        )  # fmt: skip
        assert floor.bench.registered is not None
        assert checked["state"]["validated_by"] == floor.bench.registered.id, "its rules are in the hands of a worker"
        await floor.report("test", HOLDS)
        line = arrow(await floor.log(), "test", "validating", "completed")
        done = await floor.shown("test")
        assert done["state"]["validated_by"] is None
        assert done["state"]["completed_at"] == line["timestamp"]
        assert line["metadata"]["duration_seconds"] >= 0
        assert (await floor.shown("ship"))["status"] == "queued"


# -- task: failures --------------------------------------------------------------------------------------------------
async def test_max_retries_of_n_means_n_plus_one_attempts_with_doubling_delays(url: str) -> None:
    """running → retrying while retry_count < max_retries, then running → failed; the delay is 2^retry_count seconds."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("flaky", max_retries=3)))
        for retry_count in (1, 2, 3):
            await floor.do("flaky", BROKEN)
            assert (await floor.shown("flaky"))["state"]["retry_count"] == retry_count
            assert await floor.claim() == [], "not before it is due"
            assert pause(lines_of(await floor.log(), "flaky")[-1]) == 2**retry_count
            await floor.pass_time(2**retry_count)
            assert (await floor.life("flaky"))[-1] == "queued"
        await floor.do("flaky", BROKEN)
        life = await floor.life("flaky")
        assert life == ["pending", *["queued", "running", "retrying"] * 3, "queued", "running", "failed"]
        assert (await floor.shown("flaky"))["state"]["retry_count"] == 3


async def test_a_retry_is_a_warning_and_a_failure_an_error(url: str) -> None:
    """running → retrying: severity="warning"; running → failed: severity="error", last_error from the output."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("flaky", max_retries=1)))
        await floor.do("flaky", BROKEN)
        assert (await floor.shown("flaky"))["state"]["assigned_worker"] is None, "the worker is released"
        await floor.pass_time(2)
        await floor.do("flaky", BROKEN)
        lines = await floor.log()
        retrying, failed = arrow(lines, "flaky", "running", "retrying"), arrow(lines, "flaky", "running", "failed")
        assert (retrying["severity"], retrying["trigger"]) == ("warning", "execution_failed")
        assert (failed["severity"], failed["trigger"]) == ("error", "execution_failed")
        assert (retrying["metadata"]["retry_count"], failed["metadata"]["retry_count"]) == (1, 1)
        assert arrow(lines, "flaky", "retrying", "queued")["trigger"] == "retry_delay_elapsed"
        assert (await floor.shown("flaky"))["state"]["last_error"] == "exit status 1"


async def test_no_retries_means_one_attempt(url: str) -> None:
    """running → failed at once where max_retries is 0."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("once", max_retries=0)))
        await floor.do("once", BROKEN)
        assert await floor.life("once") == ["pending", "queued", "running", "failed"]


async def test_a_written_retry_delay_takes_the_place_of_the_first_two_seconds(url: str) -> None:
    """retry_delay_seconds is the first delay; it doubles like the other."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("slow", max_retries=2, retry_delay_seconds=10)))
        for delay in (10, 20):
            await floor.do("slow", BROKEN)
            assert pause(lines_of(await floor.log(), "slow")[-1]) == delay
            await floor.pass_time(delay)
            assert (await floor.life("slow"))[-1] == "queued"


async def test_a_timeout_takes_the_arrows_of_a_failure(url: str) -> None:
    """The task timeout timer: running → retrying, then running → failed."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("slow", max_retries=1)))
        await floor.do("slow", TimedOut())
        await floor.pass_time(2)
        await floor.do("slow", TimedOut())
        assert await floor.life("slow") == [
            "pending", "queued", "running", "retrying", "queued", "running", "failed",
        ]  # fmt: skip
        assert arrow(await floor.log(), "slow", "running", "failed")["metadata"]["category"] == "timeout"


async def test_a_failed_validation_is_never_retried(url: str) -> None:
    """validating → failed: any post_execution rule fails; last_error has the details, severity="error"."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("test", post=[RULE], max_retries=5), task("ship", "test")))
        await floor.do("test")
        await floor.report("test", DOES_NOT_HOLD)
        assert await floor.life("test") == ["pending", "queued", "running", "validating", "failed"]
        line = arrow(await floor.log(), "test", "validating", "failed")
        assert (line["severity"], line["trigger"]) == ("error", "validation_failed")
        assert (await floor.shown("test"))["state"]["last_error"] == "the rule does not hold"
        assert (await floor.shown("ship"))["state"]["reason"] == "test, which it depends on, did not complete"


async def test_a_lost_lease_counts_as_a_retry_and_the_old_claim_is_refused(url: str) -> None:
    """Worker lost: running → retrying → queued at once, and nothing its claim says is believed."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("build")))
        await floor.claim()
        old = floor.held["build"]
        await floor.pass_time(31)
        assert (await floor.life("build"))[-2:] == ["retrying", "queued"]
        assert arrow(await floor.log(), "build", "running", "retrying")["severity"] == "warning"
        await floor.claim()
        assert isinstance(await floor.bench.report(old), Fenced)
        await floor.report("build")
        assert (await floor.shown("build"))["state"]["retry_count"] == 1


async def test_a_task_that_loses_three_workers_fails_even_with_retries_left(url: str) -> None:
    """Design section 4: what kills every worker must not go on forever."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("poison", max_retries=9)))
        for _ in range(3):
            await floor.claim()
            await floor.pass_time(31)
        assert (await floor.life("poison"))[-1] == "failed"
        assert arrow(await floor.log(), "poison", "running", "failed")["metadata"]["category"] == "poison"


# -- dependents and criticality --------------------------------------------------------------------------------------
async def test_a_failure_that_is_not_critical_lets_everything_else_finish_and_then_fails_the_workstream(
    url: str,
) -> None:
    """State derivation: non-critical task failure, continue execution; completed only if all tasks completed."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("build"), task("docs", max_retries=0), task("test", "build")))
        await floor.do("docs", BROKEN)
        assert await floor.life() == ["planned", "ready", "executing"]
        await floor.report("build")
        await floor.do("test")
        assert await floor.life() == ["planned", "ready", "executing", "failed"]
        assert (await floor.life("test"))[-1] == "completed"


async def test_dependents_of_a_failed_task_are_cancelled_with_the_reason_down_the_whole_chain(url: str) -> None:
    """running → failed, action: mark dependent tasks as blocked. Hard edges: a skipped task satisfies nobody."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a", max_retries=0), task("b", "a"), task("c", "b"), task("other")))
        await floor.do("a", BROKEN)
        assert await floor.life("b") == await floor.life("c") == ["pending", "cancelled"]
        line = arrow(await floor.log(), "c", "pending", "cancelled")
        assert line["metadata"]["extension"] is True
        assert (line["metadata"]["because"], line["metadata"]["of"]) == ("dependency_unmet", "b")
        assert (await floor.shown("b"))["state"]["reason"] == "a, which it depends on, did not complete"
        assert (await floor.life("other"))[-1] == "running"


async def test_a_critical_failure_cancels_what_remains_and_fails_the_workstream(database_url: str) -> None:
    """executing → failed: critical_task_failed, remaining tasks cancelled, severity="critical"."""

    async with on_floor(database_url) as floor:
        await floor.start(
            workstream(task("build", critical=True, max_retries=0), task("flaky"), task("ship", "build"), task("waits"))
        )
        await floor.do("flaky", BROKEN)
        await floor.report("waits")
        await floor.report("build", BROKEN)
        lines = await floor.log()
        assert [line["to_state"] for line in lines_of(lines)] == ["planned", "ready", "executing", "failed"]
        ended = arrow(lines, None, "executing", "failed")
        assert (ended["severity"], ended["trigger"]) == ("critical", "critical_task_failed")
        assert ended["metadata"]["error"] == "exit status 1"
        assert arrow(lines, "flaky", "retrying", "cancelled")["metadata"]["extension"] is True
        assert arrow(lines, "ship", "pending", "cancelled")["metadata"]["extension"] is True
        assert (await floor.shown("waits"))["status"] == "completed", "completed tasks stay as they are: no rollback"


async def test_what_is_in_flight_when_a_critical_task_fails_settles_before_the_workstream_has_failed(url: str) -> None:
    """executing → failed follows once nothing runs; a retry asked for meanwhile ends cancelled."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("build", critical=True, max_retries=0), task("long"), task("flaky")))
        await floor.do("build", BROKEN)
        assert await floor.life() == ["planned", "ready", "executing"]
        assert (await floor.show())["workstream"]["derived_status"] == "executing"
        await floor.report("flaky", BROKEN)
        assert (await floor.life("flaky"))[-1] == "cancelled"
        await floor.report("long")
        assert (await floor.life("long"))[-1] == "completed"
        assert (await floor.life())[-1] == "failed"


# -- workstream ------------------------------------------------------------------------------------------------------
async def test_a_workstream_goes_from_planned_through_ready_executing_and_validating_to_completed(url: str) -> None:
    """Workstream Lifecycle, Transitions: the way without a failure, each arrow by its own trigger."""

    async with on_floor(url) as floor:
        final = {"post_execution": ["${{ steps.build.output.ok }}"]}
        await floor.start(workstream(task("build"), validation_rules=final), start_now=False)
        assert await floor.life() == ["planned"]
        await start_idle(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"))
        assert await floor.life() == ["planned", "ready"]
        await floor.claim()
        assert await floor.life() == ["planned", "ready", "executing"]
        await floor.report("build")
        assert await floor.life() == ["planned", "ready", "executing", "validating"]
        await floor.do("check:run", HOLDS)
        lines = lines_of(await floor.log())
        assert [line["to_state"] for line in lines][-2:] == ["validating", "completed"]
        assert [line["trigger"] for line in lines] == [
            "created", "all_tasks_created", "first_task_started", "all_tasks_completed", "validation_passed",
        ]  # fmt: skip


async def test_planned_to_ready_comes_when_every_task_of_the_specification_was_created(url: str) -> None:
    """planned → ready, guard: task count matches workstream specification."""

    async with on_floor(url) as floor:
        await floor.start(DIAMOND)
        lines = await floor.log()
        place = lines.index(arrow(lines, None, "planned", "ready"))
        created = [line for line in lines[:place] if line["to_state"] == "pending"]
        assert len(created) == lines[1]["metadata"]["steps"] == 4


async def test_a_final_validation_that_fails_fails_the_workstream_and_keeps_every_task(url: str) -> None:
    """validating → failed; a failed workstream is preserved, and nothing is undone."""

    async with on_floor(url) as floor:
        final = {"post_execution": ["${{ steps.build.output.ok }}"]}
        await floor.start(workstream(task("build"), validation_rules=final))
        await floor.do("build")
        await floor.do("check:run", DOES_NOT_HOLD)
        line = arrow(await floor.log(), None, "validating", "failed")
        assert (line["trigger"], line["severity"]) == ("validation_failed", "critical")
        assert (await floor.shown("build"))["status"] == "completed"


async def test_max_duration_seconds_fails_a_workstream_that_executes(url: str) -> None:
    """ready → executing starts the workstream timer; when it ends, tasks are cancelled and all of it has failed."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a"), task("b", "a"), max_duration_seconds=5))
        await floor.claim()
        await floor.pass_time(6)
        assert await floor.life("b") == ["pending", "cancelled"]
        assert (await floor.life("a"))[-1] == "cancelled"
        ended = arrow(await floor.log(), None, "executing", "failed")
        assert ended["metadata"]["category"] == "timeout"


async def test_max_duration_seconds_may_run_out_before_anything_started(url: str) -> None:
    """The extension ready → failed."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a"), task("b", "a"), max_duration_seconds=5))
        await floor.pass_time(6)
        line = arrow(await floor.log(), None, "ready", "failed")
        assert line["metadata"]["extension"] is True
        assert await floor.life("a") == ["pending", "queued", "cancelled"]


# -- cancelling ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("state", ["planned", "ready", "executing", "validating"])
async def test_a_workstream_is_cancelled_from_every_state_that_is_not_terminal(url: str, state: str) -> None:
    """planned, ready, executing → cancelled by user_cancelled; validating → cancelled is an extension."""

    async with on_floor(url) as floor:
        final = {"post_execution": ["${{ steps.a.output.ok }}"]}
        await floor.start(workstream(task("a"), validation_rules=final), start_now=state != "planned")
        if state == "executing":
            await floor.claim()
        if state == "validating":
            await floor.do("a")
        await cancel(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"), reason="enough")
        line = arrow(await floor.log(), None, state, "cancelled")
        assert line["metadata"].get("extension", False) is (state == "validating")
        assert line["trigger"] == ("cancelled" if state == "validating" else "user_cancelled")
        assert line["metadata"]["actor"] == "ann"


async def test_a_cancel_ends_tasks_in_every_state(url: str) -> None:
    """running → cancelled is the seed's; pending, queued, retrying and validating → cancelled are extensions."""

    async with on_floor(url) as floor:
        tasks = [task("validates", post=[RULE]), task("retries"), task("runs"), task("waits", "runs"), task("zqueued")]
        await floor.start(workstream(*tasks))
        claims = await floor.bench.claim(3)
        floor.held = {claim.planned.name: claim for claim in claims}
        await floor.report("validates")
        await floor.report("retries", BROKEN)
        await cancel(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"))
        lines = await floor.log()
        sources = {"validates": "validating", "retries": "retrying", "runs": "running", "waits": "pending"}
        for name, source in (sources | {"zqueued": "queued"}).items():
            line = arrow(lines, name, source, "cancelled")
            assert line["metadata"].get("extension", False) is (source != "running")
            assert (await floor.shown(name))["state"]["reason"] == "cancelled by ann"


async def test_nothing_follows_a_cancel(url: str) -> None:
    """Monotonic progress: the worker's late report changes nothing."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a")))
        await floor.claim()
        await cancel(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"))
        before = await floor.log()
        assert isinstance(await floor.bench.report(floor.held["a"]), Fenced)
        assert await floor.log() == before


async def test_a_cancel_that_lets_tasks_finish_still_ends_cancelled(url: str) -> None:
    """A cancel with compensation undoes nothing here: workstreams have no hooks."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a"), task("b", "a")))
        await floor.claim()
        await cancel(floor.transactor, floor.run_id, caller=Caller(TENANT, "ann"), compensate=True)
        assert (await floor.life())[-1] == "executing"
        await floor.report("a")
        assert (await floor.life("a"))[-1] == "completed"
        assert (await floor.life())[-1] == "cancelled"


# -- hand-back and rules again ---------------------------------------------------------------------------------------
async def test_a_task_handed_back_by_a_worker_that_shuts_down_is_queued_again_and_nothing_is_counted(url: str) -> None:
    """The extension running → queued."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a", max_retries=0)))
        await floor.do("a", Released())
        line = arrow(await floor.log(), "a", "running", "queued")
        assert line["metadata"]["extension"] is True
        await floor.do("a")
        assert (await floor.shown("a"))["state"]["retry_count"] == 0
        assert (await floor.life("a"))[-1] == "completed"


async def test_rules_run_again_where_their_worker_was_lost_and_the_task_does_not(url: str) -> None:
    """A task in validating stays there: what was executed is not executed again."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("test", post=[RULE])))
        await floor.do("test")
        await floor.pass_time(31)
        assert await floor.claim() == ["test"]
        await floor.report("test", HOLDS)
        assert await floor.life("test") == ["pending", "queued", "running", "validating", "completed"]


async def test_an_error_that_cannot_pass_is_not_retried(url: str) -> None:
    """A command that cannot be started is a validation failure of its own."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a", max_retries=5)))
        await floor.do("a", Failed(category=Category.VALIDATION, error="there is no such program", final=True))
        assert await floor.life("a") == ["pending", "queued", "running", "failed"]
