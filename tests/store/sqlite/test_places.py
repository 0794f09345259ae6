"""The places of journal entries: VACUUM does not change them, and none is used again."""

from __future__ import annotations

from pathlib import Path

import apsw

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.store.records import TailEntry

GATED = sk.Workflow("placed")
GATED.approval("sign")


async def told(engine: AsyncEngine, after: str) -> list[TailEntry]:
    return await engine.store.read_tail("default", after)


async def test_a_stream_goes_on_where_it_was_after_a_prune_and_a_vacuum(tmp_path: Path) -> None:
    async with AsyncEngine(f"sqlite:///{tmp_path}/s.db") as engine:
        begin = await engine.store.tail_position()
        old = [(await engine.start(GATED)).run_id for _ in range(5)]
        for run in old:
            await engine.cancel(run)
        kept = (await engine.start(GATED)).run_id
        before = await told(engine, begin)
        place = before[-1].position
        newest = (await engine.start(GATED)).run_id
        await engine.cancel(newest)
        seen = await told(engine, place)
        assert [one.entry.run_id for one in seen] == [newest] * 2
        await engine.prune(archive=None, keep=0)
        file = apsw.Connection(f"{tmp_path}/s.db")
        file.execute("vacuum")
        file.close()
        assert [one.entry.run_id for one in await told(engine, begin)] == [kept]
        assert (await told(engine, begin))[0].position == place
        # What is written next comes after everything that was ever told, also after what is deleted.
        assert await engine.store.tail_position() == seen[-1].position
        await engine.approve(kept)
        assert {one.entry.run_id for one in await told(engine, seen[-1].position)} == {kept}
