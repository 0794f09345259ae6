"""Seed 004, validating → completed: merge to main, clean up the worktree; failed workstreams are preserved.

Real git repositories, real programs as tasks, real workers; the kills are real, too.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.databases import migrated_file
from tests.seeds.workstream import arrow, judged, task, workstream
from tests.suites import in_proof
from tests.worker.bed import TENANT, Bed, bed_on
from tests.worker.repositories import calls, change_main, commit, files_of, git, killer, make_repository, refs_of

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.rows import is_exhausted
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.people.people import decide_hold
from stepkeep.operations.runs.projected import describe_run_as

ROOT = Path(__file__).parents[2]


def writes(name: str, *needs: str, text: str = "", **fields: Any) -> dict[str, Any]:
    """A task that writes a file of its own name into the worktree."""
    script = f"open('{name}.txt', 'w').write({text or name!r})"
    return task(name, *needs, command=[sys.executable, "-c", script], max_retries=0, **fields)


def ten_tasks(repository: Path, *, last: dict[str, Any] | None = None, **fields: Any) -> Definition:
    # Only a worker that is given `go` runs a task, so that a test can act after the worktree was made.
    first = [writes("base", worker_requirements={"capabilities": ["go"]})]
    middle = [writes(f"part{number}", "base") for number in range(1, 9)]
    join = last or writes("join", *(one["task_id"] for one in middle))
    return workstream(*first, *middle, join, repository={"path": str(repository)}, **fields)


async def step_of(bed: Bed, run_id: str, plan: Any, name: str) -> Any:
    return (await bed.steps(run_id))[plan.numbers[name]]


async def is_legal(bed: Bed, run_id: str) -> None:
    """The judge finds nothing wrong with the run's log in the seed's words."""
    lines = [line async for line in export_run(bed.transactor, run_id, tenant=TENANT, dialect="workstream")]
    assert judged(lines) == []


async def work(bed: Bed, until: Any, *capabilities: str) -> None:
    async with asyncio.timeout(60):
        await bed.worker(capabilities=capabilities).run_until(until)


@asynccontextmanager
async def on(url: str) -> AsyncIterator[Bed]:
    async with bed_on(url) as bed:
        yield bed


async def test_ten_tasks_work_in_their_worktree_and_are_merged_to_main(database_url: str, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "shop.git")

    async def body(bed: Bed) -> None:
        plan = await bed.publish(ten_tasks(repository))
        run_id = await bed.start_again(plan)
        assert await bed.finish(run_id, capabilities=["go"]) is RunState.SUCCEEDED
        await is_legal(bed, run_id)
        merged = await bed.output(run_id, plan.numbers["merge"])
        assert merged["merged"] is True
        assert merged["commit"] == git(repository, "rev-parse", "main")
        planned = await bed.output(run_id, plan.numbers["merge_plan"])
        assert planned["conflicts"] == []
        assert [one["file"] for one in planned["files"]] == sorted(f"{name}.txt" for name in names)

    names = ["base", *(f"part{number}" for number in range(1, 9)), "join"]
    async with on(database_url) as bed:
        await body(bed)
    assert files_of(repository) == {"README": "first", **{f"{name}.txt": name for name in names}}
    assert refs_of(repository) == ["refs/heads/main"], "the branch and the marks of the run are gone"
    assert list((tmp_path / "shop.git.worktrees").iterdir()) == []
    assert git(repository, "worktree", "list").count("\n") == 0


async def test_a_conflict_holds_the_merge_until_a_person_has_settled_it(database_url: str, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "shop.git", {"join.txt": "was\n"})

    async with on(database_url) as bed:
        plan = await bed.publish(ten_tasks(repository))
        run_id = await bed.start_again(plan)
        # The other person is faster than the workstream, with the same file.
        await work(bed, bed.step_is(run_id, plan.numbers["worktree"], StepState.SUCCEEDED))
        change_main(repository, {"join.txt": "theirs\n"})

        async def held() -> bool:
            return is_exhausted(await step_of(bed, run_id, plan, "merge"))

        await work(bed, held, "go")
        shown = await describe_run_as(bed.transactor, run_id, "workstream", tenant=TENANT)
        assert shown["workstream"]["status"] == "validating", "a conflict leaves it there"
        planned = await bed.output(run_id, plan.numbers["merge_plan"])
        assert planned["conflicts"] == ["join.txt"]
        step = await step_of(bed, run_id, plan, "merge")
        place = Path(planned["path"])
        assert "conflicts in join.txt" in step.error
        assert str(place) in step.error
        assert files_of(repository)["join.txt"] == "theirs", "nothing was merged"

        with pytest.raises(Conflict, match="cannot be skipped"):
            await decide(bed, run_id, "skip")
        await decide(bed, run_id, "retry")
        await work(bed, held, "go")
        again = await step_of(bed, run_id, plan, "merge")
        assert "conflicts in join.txt" in again.error, "a retry alone settles nothing"

        git(place, "merge", "--quiet", "main", check=False)
        await decide(bed, run_id, "retry")
        await work(bed, held, "go")
        assert "not committed: join.txt" in (await step_of(bed, run_id, plan, "merge")).error

        commit(place, {"join.txt": "both\n"}, "settle the conflict")
        await decide(bed, run_id, "retry")
        assert await bed.finish(run_id, capabilities=["go"]) is RunState.SUCCEEDED
        await is_legal(bed, run_id)
    assert files_of(repository)["join.txt"] == "both"
    assert files_of(repository)["part1.txt"] == "part1"
    assert refs_of(repository) == ["refs/heads/main"]


async def decide(bed: Bed, run_id: str, choice: str) -> None:
    await decide_hold(bed.transactor, run_id, "merge", choice, caller=Caller(TENANT, "alice"), reason="settled it")


async def test_a_failed_workstream_keeps_its_worktree_and_main_does_not_move(database_url: str, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "shop.git")
    before = git(repository, "rev-parse", "main")
    fails = task("join", "part1", command="false", max_retries=0)

    async with on(database_url) as bed:
        plan = await bed.publish(ten_tasks(repository, last=fails))
        run_id = await bed.start_again(plan)
        assert await bed.finish(run_id, capabilities=["go"]) is RunState.FAILED
        await is_legal(bed, run_id)
        shown = await describe_run_as(bed.transactor, run_id, "workstream", tenant=TENANT)
        assert {one["name"]: one["state"] for one in shown["workstream"]["final_steps"]}["merge"] == "skipped"
        assert shown["workstream"]["status"] == "failed"
        [kept] = (tmp_path / "shop.git.worktrees").iterdir()
        assert kept.name == f"ws-001-{run_id}"
        assert (kept / "part8.txt").read_text() == "part8"
        assert f"refs/heads/workstreams/ws-001/{run_id}" in refs_of(repository)
    assert git(repository, "rev-parse", "main") == before


async def test_ten_tasks_go_through_a_failure_and_a_conflict_to_main(database_url: str, tmp_path: Path) -> None:
    """One repository: the first run fails and is preserved, the second one conflicts, is settled and merged."""
    repository, stock = make_repository(tmp_path / "shop.git", {"join.txt": "was\n"}), tmp_path / "stock"
    script = f"assert open({str(stock)!r}).read(); open('join.txt', 'w').write('join\\n')"
    join = task("join", *(f"part{one}" for one in range(1, 9)), command=[sys.executable, "-c", script], max_retries=0)
    before = git(repository, "rev-parse", "main")

    async def body(bed: Bed) -> None:
        plan = await bed.publish(ten_tasks(repository, last=join))
        failed = await bed.start_again(plan)
        assert await bed.finish(failed, capabilities=["go"]) is RunState.FAILED
        assert git(repository, "rev-parse", "main") == before
        [kept] = (tmp_path / "shop.git.worktrees").iterdir()
        assert (kept / "part8.txt").read_text() == "part8", "a failed workstream is preserved"

        stock.write_text("there")
        run_id = await bed.start_again(plan)
        await work(bed, bed.step_is(run_id, plan.numbers["worktree"], StepState.SUCCEEDED))
        change_main(repository, {"join.txt": "theirs\n"})

        async def held() -> bool:
            return is_exhausted(await step_of(bed, run_id, plan, "merge"))

        await work(bed, held, "go")
        place = Path((await bed.output(run_id, plan.numbers["merge_plan"]))["path"])
        assert place != kept
        git(place, "merge", "--quiet", "main", check=False)
        commit(place, {"join.txt": "both\n"}, "settle the conflict")
        await decide(bed, run_id, "retry")
        assert await bed.finish(run_id, capabilities=["go"]) is RunState.SUCCEEDED
        for one in (failed, run_id):
            await is_legal(bed, one)
        assert list((tmp_path / "shop.git.worktrees").iterdir()) == [kept]
        assert f"refs/heads/workstreams/ws-001/{failed}" in refs_of(repository)

    async with on(database_url) as bed:
        await body(bed)
    parts = {f"part{number}.txt": f"part{number}" for number in range(1, 9)}
    assert files_of(repository) == {"join.txt": "both", "base.txt": "base", **parts}
    assert git(repository, "rev-list", "--count", "--merges", "main") >= "1"


async def test_final_rules_run_in_the_worktree_before_the_merge(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "shop.git")
    rules = {
        "validation_rules": {"post_execution": ["no_part"]},
        "rule_commands": {"no_part": [sys.executable, "-c", "import os, sys; sys.exit(os.path.exists('part1.txt'))"]},
    }

    async with on(migrated_file(tmp_path / "test.db")) as bed:
        plan = await bed.publish(ten_tasks(repository, **rules))
        run_id = await bed.start_again(plan)
        assert await bed.finish(run_id, capabilities=["go"]) is RunState.FAILED
        assert "no_part" in (await step_of(bed, run_id, plan, "merge_plan")).error
        await is_legal(bed, run_id)
        lines = [line async for line in export_run(bed.transactor, run_id, tenant=TENANT, dialect="workstream")]
        assert arrow(lines, None, "validating", "failed")["trigger"] == "validation_failed"
    assert files_of(repository) == {"README": "first"}


async def test_runs_on_one_repository_do_not_disturb_each_other(database_url: str, tmp_path: Path) -> None:
    """Six runs at once, three of them with the same file: one merges it, the others may meet a conflict."""
    repository = make_repository(tmp_path / "shop.git")

    def small(number: int) -> Definition:
        mine = "shared" if number % 2 else f"own{number}"
        return replace(
            workstream(writes(mine, text=repr(f"text {number}")), repository={"path": str(repository)}),
            name=f"ws-{number}",
        )

    async with on(database_url) as bed:
        plans = [await bed.publish(small(number)) for number in range(6)]
        run_ids = [await bed.start_again(plan) for plan in plans]

        async def settled() -> bool:
            for run_id, plan in zip(run_ids, plans, strict=True):
                run = await bed.run(run_id)
                if run.state is not RunState.SUCCEEDED and not is_exhausted(await step_of(bed, run_id, plan, "merge")):
                    return False
            return True

        await work(bed, settled)
        states = [(await bed.run(run_id)).state for run_id in run_ids]
        assert states[0] == states[2] == states[4] == RunState.SUCCEEDED
        assert {*states} <= {RunState.SUCCEEDED, RunState.BLOCKED}
        merges = int(git(repository, "rev-list", "--count", "--merges", "main"))
        assert merges == states.count(RunState.SUCCEEDED), "each was merged once, and none of those that wait"
        assert merges >= 4
    merged = files_of(repository)
    assert {name for name in merged if name != "README"} == {"own0.txt", "own2.txt", "own4.txt", "shared.txt"}
    assert git(repository, "fsck", "--no-progress", "--no-dangling") == ""


# -- kill -9 ---------------------------------------------------------------------------------------------------------
SERVE = """
import asyncio, sys
from stepkeep.definition.python.registry import Registry
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.connect import connect
from stepkeep.worker.loop import Worker
from tests.worker.bed import QUICK

async def main():
    store = connect(sys.argv[1])
    await store.open()
    await Worker(Transactor(store), Registry(), settings=QUICK).serve()

asyncio.run(main())
"""

# What git is called for in a run without faults: 1 to 11 create, 12 to 24 plan, 25 to 39 merge, 40 to 49 clean up.
SHORT = [("sqlite", 7, "after"), ("postgres", 37, "after")]
ALL = [(("sqlite", "postgres")[at // 2 % 2], at, when) for at in range(1, 50, 2) for when in ("before", "after")]
POINTS = [*SHORT, *(in_proof(*point) for point in ALL if point not in SHORT)]


@pytest.mark.parametrize(("database_url", "at", "when"), POINTS, indirect=["database_url"])
async def test_a_worker_killed_at_any_call_of_git_is_made_up_for_by_another(
    database_url: str, tmp_path: Path, at: int, when: str
) -> None:
    repository = make_repository(tmp_path / "shop.git")
    url = database_url

    async with on(url) as bed:
        definition = workstream(writes("one"), writes("two", "one"), repository={"path": str(repository)})
        plan = await bed.publish(definition)
        run_id = await bed.start_again(plan)
        environment = killer(tmp_path / "bin", at, when) | {"PYTHONPATH": str(ROOT)}
        first = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVE, url, env=environment)
        try:
            async with asyncio.timeout(60):
                assert await first.wait() == -signal.SIGKILL
        finally:
            if first.returncode is None:
                first.kill()
                await first.wait()
        assert calls(tmp_path / "bin") == at
        bed.store.clock_offset += definition.lease + 1_000_000
        assert await bed.finish(run_id, capabilities=["go"]) is RunState.SUCCEEDED
        await is_legal(bed, run_id)
    assert files_of(repository) == {"README": "first", "one.txt": "one", "two.txt": "two"}
    assert git(repository, "rev-list", "--count", "--merges", "main") == "1", "merged once"
    assert refs_of(repository) == ["refs/heads/main"]
    assert list((tmp_path / "shop.git.worktrees").iterdir()) == []
