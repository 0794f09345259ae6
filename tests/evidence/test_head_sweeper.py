"""Heads of finished runs are signed by sweeps, each of which begins where the last one left nothing unsigned."""

from __future__ import annotations

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.evidence.heads import HeadSweeper
from stepkeep.evidence.signing import new_key
from stepkeep.store.records import FIRST_ID

GATED = sk.Workflow("gated")
GATED.approval("sign")


async def test_a_sweep_signs_what_ended_since_and_does_not_look_at_what_it_signed(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:

        async def started() -> str:
            return (await engine.start(GATED, by="ann")).run_id

        async def signed(run: str) -> bool:
            return bool(await engine.store.read_signed_heads(engine.tenant, run))

        key = new_key()
        sweeper = HeadSweeper(engine.transactor, key, tenant=engine.tenant, margin_seconds=0.0)
        late, early = await started(), await started()
        await engine.approve(early, by="bea")
        assert await sweeper.sweep() == 1
        assert (await signed(early), await signed(late)) == (True, False)
        assert FIRST_ID <= sweeper.after < late, "no run is passed that goes on"
        await engine.approve(late, by="bea")
        assert await sweeper.sweep() == 1, "a run that ends late is found"
        assert await signed(late)
        engine.store.clock_offset = 0
        assert await sweeper.sweep() == 0
        assert sweeper.after >= late[:13], "what is signed is not looked at again"
        again = await started()
        await engine.approve(again, by="bea")
        assert await sweeper.sweep() == 1
        assert await signed(again)


async def test_what_is_younger_than_the_margin_is_looked_at_again(database_url: str) -> None:
    """A client with a late clock makes ids of the past."""

    async with AsyncEngine(database_url) as engine:
        sweeper = HeadSweeper(engine.transactor, new_key(), tenant=engine.tenant)
        run = (await engine.start(GATED, by="ann")).run_id
        await engine.approve(run, by="bea")
        assert await sweeper.sweep() == 1
        assert FIRST_ID < sweeper.after < run
