"""Seed 004's worker machine on the real engine: every arrow, what it does to the tasks, and the journal of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.seeds.workstream import Floor, Line, broken_by, judged, lines_of, on_floor, task, together, workstream
from tests.workbench import SECOND, TENANT

from stepkeep.conformance.validate import validate
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.definition.native.build import has_word
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.workstream.machine import JUDGED
from stepkeep.kernel.errors import Fenced, InvalidInput
from stepkeep.kernel.machine.rows import Worker as Row
from stepkeep.kernel.machine.states import RUN_TERMINAL, StepState, WorkerState
from stepkeep.kernel.machine.tables import WorkerTrigger
from stepkeep.kernel.workers import move_worker
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import export_together
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings

QUICK = Settings(
    concurrency=2,
    sweep_seconds=0.02,
    idle_poll_seconds=0.02,
    heartbeat_seconds=0.02,
    refresh_queues_seconds=0.02,
    grace_seconds=20.0,
    commands=CommandPolicy(tenants=(TENANT,)),
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stepkeep.db"


async def registered(floor: Floor, capacity: int = 1) -> Row:
    return await workers.register(floor.store, tenant=TENANT, app="ci", capacity=capacity, capabilities=("python",))


async def life(floor: Floor, worker: Row) -> list[str]:
    return [line["to_state"] for line in _moves(await floor.worker_log(worker.id))]


def _moves(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["event_type"] == "worker_state_transition"]


def arrow(lines: list[Line], source: str, target: str) -> Line:
    (found,) = [line for line in _moves(lines) if (line["from_state"], line["to_state"]) == (source, target)]
    return found


async def row_of(floor: Floor, worker_id: str) -> Row:
    return next(row for row in await floor.store.list_workers(TENANT) if row.id == worker_id)


# -- idle and busy -----------------------------------------------------------------------------------------------------
async def test_a_worker_registers_works_and_rests(database_url: str) -> None:
    """initializing → idle → busy → idle: registration_complete, task_assigned, task_completed."""

    async with on_floor(database_url) as floor:
        worker = await registered(floor, capacity=3)
        busy = await workers.mark_busy(floor.store, worker)
        await workers.mark_idle(floor.store, busy)
        lines = _moves(await floor.worker_log(worker.id))
        assert [(line["to_state"], line["trigger"]) for line in lines] == [
            ("initializing", "created"),
            ("idle", "registration_complete"),
            ("busy", "task_assigned"),
            ("idle", "task_completed"),
        ]
        assert lines[0]["metadata"]["capacity"] == 3
        assert (await row_of(floor, worker.id)).capabilities == ("python",)
        assert {line["severity"] for line in lines} == {"info"}


async def test_marking_a_worker_busy_twice_is_one_arrow(url: str) -> None:
    async with on_floor(url) as floor:
        worker = await workers.mark_busy(floor.store, await registered(floor))
        await workers.mark_busy(floor.store, worker)
        assert await life(floor, worker) == ["initializing", "idle", "busy"]


async def test_a_worker_that_cannot_start_is_shut_down_at_once(url: str) -> None:
    """The extension initializing → shutdown."""

    async with on_floor(url) as floor:
        now = await floor.store.now()
        blank = replace(
            await registered(floor), id="stillborn", no=0, state=WorkerState.INITIALIZING, seq=0, head=b"", heard_at=now
        )
        worker, entry = move_worker(blank, (WorkerTrigger.STARTED, WorkerTrigger.START_FAILED), now=now, actor="ci")
        await floor.store.add_worker(worker, entry)
        line = arrow(await floor.worker_log("stillborn"), "initializing", "shutdown")
        assert (line["metadata"]["extension"], line["severity"]) == (True, "error")


# -- silence -----------------------------------------------------------------------------------------------------------
async def test_three_missed_heartbeats_make_a_busy_worker_unresponsive_and_free_its_task(database_url: str) -> None:
    """busy → unresponsive: missed N consecutive health checks; its task is given to another, severity="error"."""

    async with on_floor(database_url) as floor:
        await floor.start(workstream(task("build")))
        await floor.claim()
        assert floor.bench.registered is not None
        lost = await workers.mark_busy(floor.store, floor.bench.registered)
        await floor.pass_time(29)
        assert (await life(floor, lost))[-1] == "busy", "two missed are not three"
        await floor.pass_time(2)
        line = arrow(await floor.worker_log(lost.id), "busy", "unresponsive")
        assert (line["trigger"], line["severity"]) == ("health_check_timeout", "error")
        assert (await floor.life("build"))[-2:] == ["retrying", "queued"]
        floor.bench.registered = None
        assert await floor.claim() == ["build"], "another worker takes it"
        await floor.report("build")
        both = together(await floor.log(), await floor.worker_log(lost.id))
        assert broken_by(both) == set()


async def test_an_idle_worker_falls_silent_too(url: str) -> None:
    """The extension idle → unresponsive."""

    async with on_floor(url) as floor:
        worker = await registered(floor)
        await floor.pass_time(31)
        line = arrow(await floor.worker_log(worker.id), "idle", "unresponsive")
        assert line["metadata"]["extension"] is True


async def test_heartbeats_keep_a_worker_from_being_missed(url: str) -> None:
    """Health Monitoring: idle and busy workers send heartbeats."""

    async with on_floor(url) as floor:
        worker = await registered(floor)
        for _ in range(6):
            await floor.pass_time(20)
            worker = await workers.beat(floor.store, worker)
        assert await life(floor, worker) == ["initializing", "idle"]


async def test_a_worker_that_is_heard_again_is_a_new_incarnation_and_its_old_claims_are_void(url: str) -> None:
    """unresponsive → idle: health_check_recovered; resource cleanup: what it held is no longer its own."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("build")))
        await floor.claim()
        assert floor.bench.registered is not None
        before = await workers.mark_busy(floor.store, floor.bench.registered)
        await floor.pass_time(31)
        back = await workers.beat(floor.store, before)
        assert (back.id, back.incarnation, back.state) == (before.id, before.incarnation + 1, WorkerState.IDLE)
        assert isinstance(await floor.bench.report(floor.held["build"]), Fenced)
        line = arrow(await floor.worker_log(back.id), "unresponsive", "idle")
        assert (line["trigger"], line["severity"]) == ("health_check_recovered", "info")
        assert (await floor.life("build"))[-1] == "queued"
        floor.store.clock_offset += SECOND
        assert await workers.beat(floor.store, before) == back, "the old incarnation learns of it, and is not heard"


async def test_a_worker_silent_for_three_minutes_is_given_up_and_stays_so(database_url: str) -> None:
    """unresponsive → shutdown: max_timeout_exceeded; shutdown is terminal, and nobody hears its heartbeats."""

    async with on_floor(database_url) as floor:
        worker = await registered(floor)
        await floor.pass_time(31)
        await floor.pass_time(148)
        assert (await life(floor, worker))[-1] == "unresponsive"
        await floor.pass_time(2)
        line = arrow(await floor.worker_log(worker.id), "unresponsive", "shutdown")
        assert (line["trigger"], line["severity"]) == ("max_timeout_exceeded", "error")
        gone = await row_of(floor, worker.id)
        await floor.pass_time(10)
        await workers.beat(floor.store, gone)
        assert await row_of(floor, worker.id) == gone


# -- shutting down -----------------------------------------------------------------------------------------------------
async def test_an_idle_worker_that_drains_is_shown_idle_and_then_shut_down(url: str) -> None:
    """idle → shutdown: it was never busy, so it must not be shown so."""

    async with on_floor(url) as floor:
        worker = await workers.drain(floor.store, await registered(floor))
        assert await life(floor, worker) == ["initializing", "idle"]
        await workers.shut_down(floor.store, worker)
        line = arrow(await floor.worker_log(worker.id), "idle", "shutdown")
        assert (line["trigger"], line["metadata"]["because"]) == ("shutdown_requested", "drained")


async def test_a_busy_worker_that_drains_is_shown_busy_and_then_shut_down(url: str) -> None:
    """busy → shutdown: shutdown_requested (after_task_complete)."""

    async with on_floor(url) as floor:
        worker = await workers.mark_busy(floor.store, await registered(floor))
        worker = await workers.drain(floor.store, worker)
        assert await life(floor, worker) == ["initializing", "idle", "busy"]
        await workers.shut_down(floor.store, worker)
        assert arrow(await floor.worker_log(worker.id), "busy", "shutdown")["trigger"] == "shutdown_requested"


async def test_a_worker_that_dies_while_it_drains_is_unresponsive_like_any_other(url: str) -> None:
    async with on_floor(url) as floor:
        worker = await workers.mark_busy(floor.store, await registered(floor))
        await workers.drain(floor.store, worker)
        await floor.pass_time(31)
        assert await life(floor, worker) == ["initializing", "idle", "busy", "unresponsive"]


async def test_a_draining_worker_completes_its_task_before_it_ends(url: str, tmp_path: Path) -> None:
    """Graceful Shutdown: a real worker, a real program that ends only when it was asked to after the drain began."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async with on_floor(url) as floor:
        await floor.start(workstream(task("long", command=["cat", str(gate)]), task("next", "long")))
        worker = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT)

        async def begun() -> bool:
            [first, _] = await floor.store.read_steps(TENANT, floor.run_id)
            return first.state is StepState.RUNNING

        async def let_go() -> str:
            while True:
                rows = await floor.store.list_workers(TENANT)
                if rows and rows[0].state is WorkerState.DRAINING:
                    shown = await life(floor, rows[0])
                    gate.write_text("go on")
                    return shown[-1]
                await asyncio.sleep(0.01)

        async with asyncio.timeout(30):
            shown, _ = await asyncio.gather(let_go(), worker.run_until(begun))
        assert shown == "busy"
        assert (await floor.life("long"))[-1] == "completed"
        assert (await floor.life("next"))[-1] == "queued", "it takes nothing more"
        assert worker.id is not None
        log = await floor.worker_log(worker.id)
        assert [line["to_state"] for line in _moves(log)] == ["initializing", "idle", "busy", "shutdown"]
        assert broken_by(together(await floor.log(), log)) == set()


# -- tasks and workers together ----------------------------------------------------------------------------------------
async def test_a_task_waits_for_a_worker_with_its_capabilities(url: str) -> None:
    """queued → running, guard: worker with required capabilities available; idle → busy, guard: it provides them."""

    async with on_floor(url) as floor:
        gpu = {"capabilities": ["gpu", "python"]}
        await floor.start(workstream(task("plain"), task("special", worker_requirements=gpu)))

        def settled(name: str) -> Callable[[], Awaitable[bool]]:
            async def look() -> bool:
                return (await floor.life(name))[-1] == "completed"

            return look

        some = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT, capabilities=["python"])
        await some.run_until(settled("plain"))
        assert (await floor.life("special"))[-1] == "queued"
        able = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT, capabilities=["gpu", "python"])
        await able.run_until(settled("special"))
        line = lines_of(await floor.log(), "special")[2]
        assert (line["to_state"], line["metadata"]["worker"]) == ("running", able.id)


async def test_a_task_waits_for_a_worker_of_its_version(url: str) -> None:
    """worker_requirements.min_version; a worker declares its version by a capability."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("new", worker_requirements={"min_version": "2.9"}), task("any")))

        def settled(name: str) -> Callable[[], Awaitable[bool]]:
            async def look() -> bool:
                return (await floor.life(name))[-1] == "completed"

            return look

        old = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT, capabilities=["version:2.8.5"])
        await old.run_until(settled("any"))
        assert (await floor.life("new"))[-1] == "queued"
        able = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT, capabilities=["version:2.10"])
        await able.run_until(settled("new"))
        assert lines_of(await floor.log(), "new")[2]["metadata"]["worker"] == able.id


@pytest.mark.parametrize(
    ("has", "wants", "enough"),
    [
        ("2.10", "2.9", True),
        ("2.9", "2.10", False),
        ("2", "2.0.0", True),
        ("2.0-beta", "2.0", False),
        ("2.0", "2.0-beta", True),
        ("v3.1", "3", True),
        ("3.x", "3.0", False),
    ],
)
def test_versions_are_compared_part_by_part(has: str, wants: str, enough: bool) -> None:
    assert has_word({f"version:{has}", "gpu"}, f"version:{wants}") is enough


async def test_a_task_without_a_required_file_fails_before_its_program_runs(tmp_path: Path) -> None:
    """context_requirements.required_files: insufficient context is no reason to try again."""
    (tmp_path / "there.py").touch()
    mark = tmp_path / "ran"

    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        good, bad = ({"required_files": [name]} for name in ("there.py", "missing.py"))
        fields = {"working_directory": str(tmp_path), "max_retries": 3}
        await floor.start(
            workstream(
                task("good", context_requirements=good, **fields),
                task("bad", context_requirements=bad, command=["touch", str(mark)], **fields),
            )
        )

        async def ended() -> bool:
            return {(await floor.life(name))[-1] for name in ("good", "bad")} == {"completed", "failed"}

        worker = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT)
        async with asyncio.timeout(30):
            await worker.run_until(ended)
        assert not mark.exists()


async def test_a_real_worker_never_holds_more_than_its_capacity_and_its_journal_verifies(database_url: str) -> None:
    """Capacity Limit, on the logs of a run and of its worker together; a smaller limit would have been broken."""

    async with on_floor(database_url) as floor:
        await floor.start(workstream(*(task(f"t{number}") for number in range(6))))

        async def ended() -> bool:
            found = await floor.store.read_run(TENANT, floor.run_id)
            assert found is not None
            return found.run.state in RUN_TERMINAL

        worker = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT)
        await worker.run_until(ended)
        assert (await floor.life())[-1] == "completed"
        assert worker.id is not None
        log = await floor.worker_log(worker.id)
        run = await floor.log()
        assert broken_by(together(run, log)) == set()
        smaller = [{**line, "metadata": line["metadata"] | {"capacity": 1}} for line in log]
        assert broken_by(together(run, smaller)) == {"capacity-limit"}
        assert [line["to_state"] for line in _moves(log)][:3] == ["initializing", "idle", "busy"]
        for place in range(len(log)):
            assert judged(log[:place] + log[place + 1 :]), f"dropping line {place + 1} goes unseen"


async def test_workers_and_tasks_are_exported_as_one_log_on_which_capacity_is_judged(database_url: str) -> None:
    async with on_floor(database_url) as floor:
        runs = [await floor.start(workstream(*(task(f"t{n}") for n in range(4)))) for _ in range(2)]

        async def ended() -> bool:
            found = [await floor.store.read_run(TENANT, run_id) for run_id in runs]
            return all(one is not None and one.run.state in RUN_TERMINAL for one in found)

        worker = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT)
        await worker.run_until(ended)
        unused = await registered(floor)
        for chosen in (runs, None):
            canonical = [one async for one in export_together(floor.transactor, chosen, tenant=TENANT)]
            _, report = validate(encode_line(line) for line in canonical)
            assert (report.findings, report.runs) == ((), 3 if chosen else 4)
            assert any(line["entity_id"] == unused.id for line in canonical) is (chosen is None)
            lines = [
                one async for one in export_together(floor.transactor, chosen, tenant=TENANT, dialect="workstream")
            ]
            times = [line["metadata"]["at"] for line in lines]
            assert times == sorted(times)
            assert {line["event_type"].partition("_")[0] for line in lines} >= {"task", "workstream", "worker"}
            assert judged(lines) == []
        forged = [{**line, "metadata": {**line["metadata"]}} for line in lines]
        for line in forged:
            if "capacity" in line["metadata"]:
                line["metadata"]["capacity"] = 1
        assert any("capacity-limit" in finding for finding in judged(forged))
        with pytest.raises(InvalidInput, match="no words for workers"):
            await anext(export_together(floor.transactor, runs, tenant=TENANT, dialect="ioa"))


async def test_a_worker_is_busy_no_later_than_its_task_runs_and_the_workstream_executes_after_that(
    database_url: str,
) -> None:
    """Guards of idle → busy and of ready → executing; the log holds without our own metadata, too."""

    async with on_floor(database_url) as floor:
        await floor.start(workstream(task("one"), task("two", "one")))

        async def ended() -> bool:
            found = await floor.store.read_run(TENANT, floor.run_id)
            return found is not None and found.run.state in RUN_TERMINAL

        worker = Worker(floor.transactor, Registry(), settings=QUICK, tenant=TENANT)
        await worker.run_until(ended)
        together = export_together(floor.transactor, [floor.run_id], tenant=TENANT, dialect="workstream")
        lines = [line async for line in together if line["event_type"].endswith("_state_transition")]
        order = [(line["event_type"].partition("_")[0], line["to_state"]) for line in lines]
        assert order.index(("worker", "busy")) < order.index(("task", "running"))
        assert order.index(("task", "running")) + 1 == order.index(("workstream", "executing"))
        plain = [
            {**line, "metadata": {key: line["metadata"][key] for key in SEEDS_OWN if key in line["metadata"]}}
            for line in lines
        ]
        assert judged(plain, sealed=False) == []


SEEDS_OWN = ("duration_seconds", "retry_count")
"""The metadata of the seed's event schema."""


async def test_workers_and_runs_out_of_the_order_of_time_are_noted(url: str) -> None:
    async with on_floor(url) as floor:
        await floor.start(workstream(task("build")))
        await floor.do("build")
        assert floor.bench.registered is not None
        log = [*await floor.log(), *await floor.worker_log(floor.bench.registered.id)]
        report = replay_lines((encode_line(line) for line in log), JUDGED)
        assert report.ok
        assert "not in the order of time" in " ".join(report.notes)


async def test_the_clock_alone_decides_whether_a_worker_is_silent(url: str) -> None:
    """A sweep that looks twice changes nothing the second time."""

    async with on_floor(url) as floor:
        worker = await registered(floor)
        floor.store.clock_offset += 31 * SECOND
        await sweep(floor.transactor)
        before = await floor.worker_log(worker.id)
        await sweep(floor.transactor)
        assert await floor.worker_log(worker.id) == before
