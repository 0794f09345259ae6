"""Workers are killed before and after any append: what a reader assembles is what is recorded, and its digest fits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.evidence.collect import collect
from stepkeep.kernel.definition import Definition, Handler, Retry
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.streams.reading import StreamPiece, StreamReader, read_page
from stepkeep.operations.streams.tailing import StreamTail, follow
from tests.operations.streams_process import PARTS
from tests.operations.test_streams import assembled
from tests.suites import in_proof
from tests.workbench import TENANT, on, task
from tests.worker.bed import PAST_THE_LEASE_US

HERE = Path(__file__)
DEATHS = [(1, "before"), (1, "after"), (3, "after")]
EVERY_DEATH = [(number, place) for number in range(1, PARTS + 1) for place in ("before", "after")]


@pytest.mark.parametrize("deaths", [DEATHS, in_proof(EVERY_DEATH)], ids=["some", "every"])
async def test_what_a_reader_assembled_is_what_is_recorded(database_url: str, deaths: Any) -> None:
    async with on(database_url) as bench:
        one = replace(
            task("talk", 0, []),
            executor=Handler(name="talk"),
            retry=Retry(max_attempts=20, max_losses=20, initial=1000, max=1000),
        )
        run = (await bench.begin(await bench.publish(Definition(name="talk", version=1, steps=(one,))))).run_id
        tail, told = StreamTail(bench.store), list[StreamPiece]()

        async def listen() -> None:
            """From before the first chunk to the end of the run, over every death."""
            reader = StreamReader(bench.transactor, TENANT, run, None, None, 0)
            async for pieces in follow(reader, tail, 0.5):
                told.extend(pieces)

        listening = asyncio.create_task(listen())
        for place, (appends, when) in enumerate([*deaths, (1_000, "never")]):
            given = [str(appends), when, str(place * PAST_THE_LEASE_US)]
            program = [sys.executable, "-m", "tests.operations.streams_process", database_url, run, *given]
            process = await asyncio.create_subprocess_exec(*program, cwd=HERE.parents[2])
            async with asyncio.timeout(60):
                status = await process.wait()
            assert status == (0 if when == "never" else -9), (appends, when)
        found = await bench.store.read_run(TENANT, run)
        assert found is not None
        assert found.run.state is RunState.SUCCEEDED, found.run.error
        async with asyncio.timeout(30):
            await listening
        await tail.close()
        later = (await read_page(bench.transactor, TENANT, run, None, None, 0, 1_000)).pieces
        assert assembled(told) == assembled(later), "a reader that was there has what one that comes later has"
        assert assembled(later)["talk", "again"] == list(range(PARTS))
        assert assembled(later)["talk", "tokens"][-1] == "end"
        certificate = await (await collect(bench.transactor, run, tenant=TENANT)).certificate()
        assert certificate.ok, certificate.payloads
