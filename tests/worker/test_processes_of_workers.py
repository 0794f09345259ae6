"""Worker processes that are asked to end, or are killed (faults B4, B34, F1, F11)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
from tests.workbench import eventually, until
from tests.worker.bed import PAST_THE_LEASE_US, TENANT, Bed, on_sqlite, step

from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import AttemptState, RunState, StepState, WorkerState

ROOT = Path(__file__).parents[2]


def worker_process(tmp_path: Path) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("serve_script.py")
    return subprocess.Popen(
        [sys.executable, str(script), f"sqlite:///{tmp_path}/test.db", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


async def test_a_worker_that_gets_sigterm_finishes_what_it_holds_and_exits_well(tmp_path: Path) -> None:
    async with on_sqlite(tmp_path) as bed:
        bed.handler("slow", lambda: None)
        run_id = await bed.start(step("slow", order=0), step("next", "slow", order=1, uses="slow"))
        process = worker_process(tmp_path)
        await until((tmp_path / "started-1").exists)
        process.send_signal(signal.SIGTERM)
        (tmp_path / "release").touch()
        await until(lambda: process.poll() is not None)
        assert process.returncode == 0
        assert await bed.states(run_id) == ["succeeded", "ready"]
        [worker] = await bed.store.list_workers(TENANT)
        assert worker.state is WorkerState.SHUTDOWN


async def test_a_worker_that_gets_sigterm_hands_back_what_does_not_finish(tmp_path: Path) -> None:
    async with on_sqlite(tmp_path) as bed:
        run_id = await bed.start(step("endless"))
        process = worker_process(tmp_path)
        await until((tmp_path / "started-1").exists)
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None)
        assert process.returncode == 0
        row = (await bed.steps(run_id))[0]
        assert (row.state, row.attempts) == (StepState.READY, 0)


async def test_what_a_killed_worker_held_is_run_by_another_after_its_lease(tmp_path: Path) -> None:
    async with on_sqlite(tmp_path) as bed:
        seen = []

        def slow(ctx) -> str:
            seen.append(ctx.attempt)
            return "by the other"

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))
        process = worker_process(tmp_path)
        await until((tmp_path / "started-1").exists)
        process.kill()
        process.wait()
        bed.store.clock_offset += PAST_THE_LEASE_US
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert seen == [2]
        states = [attempt.state for attempt in await bed.attempts(run_id)]
        assert states == [AttemptState.LOST, AttemptState.SUCCEEDED]


async def test_a_worker_that_was_stopped_past_its_lease_is_fenced_when_it_comes_back(tmp_path: Path) -> None:
    async with on_sqlite(tmp_path) as bed:
        bed.handler("slow", lambda: "by the other")
        run_id = await bed.start(step("slow"))
        process = worker_process(tmp_path)
        await until((tmp_path / "started-1").exists)
        await asyncio.to_thread(stop_between_transactions, process, tmp_path)
        [stopped] = await bed.store.list_workers(TENANT, live_only=True)
        bed.store.clock_offset += PAST_THE_LEASE_US
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        bed.store.clock_offset = 0
        (tmp_path / "release").touch()
        process.send_signal(signal.SIGCONT)
        await eventually(lambda: heard_since(bed, stopped))
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None)
        assert await bed.output(run_id, 0) == "by the other"
        states = [attempt.state for attempt in await bed.attempts(run_id)]
        assert states == [AttemptState.LOST, AttemptState.SUCCEEDED]


def stop_between_transactions(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Stop it while it does not hold the file's lock: nobody could write until it went on."""
    for _ in range(100):
        process.send_signal(signal.SIGSTOP)
        connection = apsw.Connection(f"{tmp_path}/test.db")
        connection.set_busy_timeout(200)
        try:
            connection.execute("begin immediate; rollback")
        except apsw.BusyError:
            process.send_signal(signal.SIGCONT)
            continue
        finally:
            connection.close()
        return
    raise AssertionError("the worker never lets go of the file")


async def heard_since(bed: Bed, stopped: Worker) -> bool:
    """The stopped process has had a heartbeat since it went on."""
    workers = await bed.store.list_workers(TENANT, live_only=True)
    return any(worker.id == stopped.id and worker.heard_at > stopped.heard_at for worker in workers)
