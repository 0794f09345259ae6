"""Where looking first costs less, a claim is decided on what was seen; who meets another worker looks with locks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stepkeep.operations.pipeline import transact
from stepkeep.store.change import Loaded, Propose
from tests.workbench import Bench, benches, chain, count_calls, on

ONE = chain("one", 1)


@pytest.fixture(autouse=True)
def never_wary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transact, "LOCKED_CLAIM_SECONDS", 0.0)


async def _acquainted(bench: Bench, runs: int) -> None:
    """Let a bench meet the definition, and start some runs for it to claim."""
    plan = await bench.publish(ONE)
    await bench.start(plan)
    await bench.work_off()
    for _ in range(runs):
        await bench.start(plan)


async def test_a_claim_is_recorded_without_a_transaction_where_that_costs_less(database_url: str) -> None:
    async with on(database_url) as bench:
        await _acquainted(bench, 3)
        looks = count_calls(bench, "change")
        claims = await bench.claim(limit=2)
        assert len(claims) == 2
        assert len(looks) == (0 if bench.store.prefers_optimistic_claims else 1)
        for claim in claims:
            await bench.report(claim)
        assert await bench.work_off() == 1


async def test_a_definition_that_is_new_here_is_read_by_itself(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        first, second = opened
        await _acquainted(first, 2)
        await second.claimer()
        locked = count_calls(second, "change")
        assert len(await second.claim(limit=2)) == 2
        assert len(locked) == (0 if second.store.prefers_optimistic_claims else 1)


async def test_of_two_who_saw_the_same_each_step_is_claimed_by_one(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        first, second = opened
        await _acquainted(first, 6)
        await second.publish(ONE)
        await second.claimer()
        find, early = second.store.find_claimable, []

        async def overtaken(propose: Propose) -> Loaded:
            found = await find(propose)
            early.extend(await first.claim(limit=4))
            return found

        second.store.find_claimable = overtaken  # type: ignore[method-assign]
        late = await second.claim(limit=4)
        taken = [claim.run_id for claim in (*early, *late)]
        assert len(taken) == len(set(taken))
        assert (len(early), len(late)) == ((4, 2) if second.store.prefers_optimistic_claims else (0, 4))


async def test_who_has_met_another_takes_locks_for_a_while(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on(database_url) as bench:
        await _acquainted(bench, 4)
        monkeypatch.setattr(transact, "LOCKED_CLAIM_SECONDS", 60.0)
        find, asked = bench.store.find_claimable, 0

        async def stale(propose: Propose) -> Loaded:
            nonlocal asked
            asked += 1
            found = await find(propose)
            for key, run in found.runs.items():
                found.runs[key] = replace(run, seq=run.seq - 1)
            return found

        bench.store.find_claimable = stale  # type: ignore[method-assign]
        assert len(await bench.claim(limit=2)) == 2
        assert len(await bench.claim(limit=2)) == 2
        assert asked == (1 if bench.store.prefers_optimistic_claims else 0)
