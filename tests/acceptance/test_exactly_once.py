"""Promise 4: a transactional step's own writes and the decision about it commit together, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepkeep.kernel.definition import Definition, Handler
from stepkeep.kernel.machine.states import RunState
from tests.processes import Fleet
from tests.suites import first_on, in_proof
from tests.workbench import SECOND, TENANT, benches, eventually, task


@pytest.mark.parametrize("runs", [8, in_proof(30)])
@first_on("postgres")
async def test_a_transactional_step_writes_exactly_once_although_workers_are_killed_before_the_commit(
    database_url: str, tmp_path: Path, runs: int
) -> None:
    sqlite = database_url.startswith("sqlite")
    await make_table(database_url)
    handler = Handler(name="transfer" if sqlite else "transfer-async")
    step = task("transfer", executor=handler, transactional=True, timeout=60 * SECOND)
    async with benches(database_url) as (bench,):
        plan = await bench.publish(Definition(name="transfer", version=1, steps=(step,), lease=SECOND))
        run_ids = [await bench.start(plan, b'{"dies":%s}' % (b"false", b"true")[no % 3 == 0]) for no in range(runs)]
        with Fleet(database_url, tmp_path) as workers:

            async def all_done() -> bool:
                if all(process.poll() is not None for process in workers.programs):
                    workers.launch(2)
                counts = await bench.store.count_runs(TENANT)
                return counts.get(RunState.SUCCEEDED, 0) == runs

            await eventually(all_done, "every transfer to be made")
            tries = sum(workers.marked(f"tries-{run_id}") for run_id in run_ids)
            deaths = sum(process.poll() == -9 for process in workers.programs)
        assert deaths > 0, "no worker died between its write and its commit: nothing was shown"
        assert tries > runs
        assert sorted(await read_table(database_url)) == sorted(run_ids)
        print(f"{tries} tries, {deaths} workers killed before their commit, {runs} transfers, each once")


async def make_table(url: str) -> None:
    if url.startswith("sqlite"):
        import apsw

        apsw.Connection(url.removeprefix("sqlite:///")).execute("create table transfers (run_id text)")
    else:
        import asyncpg

        connection = await asyncpg.connect(url)
        await connection.execute("create table transfers (run_id text)")
        await connection.close()


async def read_table(url: str) -> list[str]:
    if url.startswith("sqlite"):
        import apsw

        return [row[0] for row in apsw.Connection(url.removeprefix("sqlite:///")).execute("select * from transfers")]
    import asyncpg

    connection = await asyncpg.connect(url)
    rows = await connection.fetch("select run_id from transfers")
    await connection.close()
    return [row[0] for row in rows]
