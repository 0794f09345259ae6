"""An operator sets runs aside, readable or not, and releases them; both are on record, and nothing else moves them."""

from __future__ import annotations

from typing import Any

import pytest

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound, Quarantined, Unreadable
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.quarantine import quarantine, quarantined, release
from stepkeep.operations.logs.retention import Policy, prune
from stepkeep.operations.pipeline.expire import sweep_timers
from tests.damage import damage
from tests.workbench import NOBODYS, SECOND, TENANT, chain, on

BY: dict[str, Any] = {"caller": Caller(TENANT, "ann"), "reason": "it does harm"}


async def test_a_run_that_cannot_be_read_is_set_aside_and_gets_in_nobodys_way(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        bad, good = await bench.start(plan), await bench.start(plan)
        await damage(database_url, f"update runs set state = 'flying' where id = '{bad}'")
        noted = await quarantine(bench.transactor, bad, **BY)
        assert (noted["run"], noted["by"], noted["reason"]) == (bad, "ann", "it does harm")
        [claim] = await bench.claim(limit=1)
        assert claim.run_id == good
        assert bench.transactor._hidden_steps == 0, "the claim query itself passes it over"
        assert await sweep_timers(bench.transactor) == 0
        assert (await quarantined(bench.transactor, tenant=TENANT))["quarantined"] == [noted]
        with pytest.raises(Conflict, match="was quarantined before, by ann"):
            await quarantine(bench.transactor, bad, **BY)
        await release(bench.transactor, bad, caller=Caller(TENANT, "bea"), reason="restored")
        with pytest.raises(NotFound, match="is not quarantined"):
            await release(bench.transactor, bad, caller=Caller(TENANT, "bea"), reason="restored")
        kept = (await quarantined(bench.transactor, tenant=TENANT, history=True))["quarantined"]
        assert [(one["by"], one["released_by"], one["release_reason"]) for one in kept] == [("ann", "bea", "restored")]


async def test_a_worker_that_holds_an_attempt_is_refused_and_the_run_goes_on_after_the_release(
    database_url: str,
) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("two", 2))
        run_id, other = await bench.start(plan), await bench.start(plan)
        claims = {claim.run_id: claim for claim in await bench.claim(limit=2, lease=30 * SECOND)}
        await quarantine(bench.transactor, run_id, **BY)
        # From memory, without a look at the run; then with one.
        for _ in range(2):
            assert isinstance(await bench.report(claims[run_id]), Quarantined)
        assert isinstance(await bench.report(claims[other]), Accepted)
        before = await bench.store.read_run(TENANT, run_id)
        bench.store.clock_offset += 60 * SECOND
        assert await sweep_timers(bench.transactor) == 0
        assert await bench.store.read_run(TENANT, run_id) == before
        await release(bench.transactor, run_id, **BY)
        assert await sweep_timers(bench.transactor) == 1
        bench.store.clock_offset += 60 * SECOND
        await sweep_timers(bench.transactor)
        await bench.work_off()
        assert await bench.state(run_id) is RunState.SUCCEEDED
        assert await bench.store.stuck_runs() == []


async def test_a_finished_run_that_is_set_aside_is_never_pruned(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        kept, gone = await bench.start(plan), await bench.start(plan)
        await bench.work_off()
        await quarantine(bench.transactor, kept, **BY)
        pruned = await prune(bench.transactor, Policy(keep=0), tenant=TENANT, folder=None)
        assert (pruned.found, pruned.deleted) == (1, 1)
        assert await bench.store.read_run(TENANT, kept) is not None
        assert await bench.store.read_run(TENANT, gone) is None


async def test_the_engine_sets_aside_shows_and_releases(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(await bench.publish(chain("one", 1)))
        async with AsyncEngine(database_url, tenant=TENANT, actor="ann") as engine:
            await engine.quarantine(run_id, reason="why", by="bea")
            assert (await engine.show(run_id))["run"]["quarantined"]["by"] == "bea"
            assert (await engine.runs())["runs"][0]["quarantined"]["reason"] == "why"
            with pytest.raises(Quarantined, match="stepkeep quarantine --release"):
                await engine.send(run_id, "paid")
            with pytest.raises(Quarantined):
                await engine.cancel(run_id)
            assert (await engine.release(run_id, reason="seen")).released_by == "ann"
            assert (await engine.show(run_id))["run"]["quarantined"] is None
            assert (await engine.quarantined()).quarantined == []
            assert len((await engine.quarantined(history=True)).quarantined) == 1
            await engine.cancel(run_id)


@pytest.mark.parametrize(
    ("run_id", "changes", "refusal"),
    [
        (NOBODYS, {}, NotFound),
        ("nope", {}, NotFound),
        (5, {}, NotFound),
        (NOBODYS, {"reason": " "}, InvalidInput),
        (NOBODYS, {"reason": "a\x00b"}, InvalidInput),
        (NOBODYS, {"reason": "x" * 5000}, InvalidInput),
        (NOBODYS, {"reason": None}, InvalidInput),
        (NOBODYS, {"caller": Caller(TENANT, "")}, InvalidInput),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    database_url: str, run_id: Any, changes: Any, refusal: type[Exception]
) -> None:
    async with on(database_url) as bench:
        for ask in (quarantine, release):
            with pytest.raises(refusal):
                await ask(bench.transactor, run_id, **{**BY, **changes})
        assert (await quarantined(bench.transactor, tenant=TENANT, history=True))["quarantined"] == []


async def test_an_unreadable_run_is_refused_as_quarantined_while_it_is_set_aside(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(await bench.publish(chain("one", 1)))
        await damage(database_url, f"update runs set state = 'flying' where id = '{run_id}'")
        async with AsyncEngine(database_url, tenant=TENANT) as engine:
            with pytest.raises(Unreadable):
                await engine.cancel(run_id)
            await engine.quarantine(run_id, reason="damaged")
            with pytest.raises(Quarantined):
                await engine.cancel(run_id)
