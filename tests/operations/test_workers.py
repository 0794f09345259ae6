"""A worker's own word about its end stands, whoever has given it up meanwhile."""

from __future__ import annotations

from stepkeep.kernel.machine.states import WorkerState
from stepkeep.operations.pipeline import workers
from tests.workbench import TENANT, on


async def test_a_draining_worker_that_was_thought_lost_says_goodbye_all_the_same(database_url: str) -> None:
    async with on(database_url) as bench:
        worker = await workers.register(bench.store, tenant=TENANT, app="bench", capacity=1)
        draining = await workers.drain(bench.store, worker)
        bench.store.clock_offset += workers.MISSED_BEATS * workers.HEARTBEAT + 1
        assert await workers.retire_silent(bench.store, actor="sweep") == 1
        # It knows nothing of that: its row is as it was when it began to drain.
        ended = await workers.shut_down(bench.store, draining)
        assert ended.state is WorkerState.SHUTDOWN
        kept = await bench.store.find_worker(TENANT, worker.id)
        assert kept is not None
        assert kept.state is WorkerState.SHUTDOWN
