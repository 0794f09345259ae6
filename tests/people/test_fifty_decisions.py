"""Fifty decisions at once about a gate that takes three of five: three count, the others are told why not."""

from __future__ import annotations

import asyncio
import random

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict
from stepkeep.operations.people.people import Decided
from tests.people.stage import TENANT, Stage, handlers
from tests.suites import in_proof

FIVE = ("bea", "cyd", "dan", "eve", "fay")
DECISIONS = 50
QUORUM = 3

FEW = sk.Workflow("three-of-five")
FEW.approval("sign", roles=["finance"], quorum=QUORUM, not_=["requester"])


async def decide_at_once(engines: list[AsyncEngine], stage: Stage, chance: random.Random) -> None:
    """One gate, each person ten times through several connections, in a random order."""
    run = (await stage.engine.start(FEW, by="ann")).run_id
    people = [*FIVE] * (DECISIONS // len(FIVE))
    chance.shuffle(people)
    calls = [engines[place % len(engines)].approve(run, "sign", by=name) for place, name in enumerate(people)]
    told = await asyncio.gather(*calls, return_exceptions=True)
    votes = await stage.votes(run)
    counted = {vote.person for vote in votes}
    assert (len(votes), len(counted)) == (QUORUM, QUORUM)
    first = [one.by for one in told if isinstance(one, Decided) and not one.repeated]
    assert sorted(first) == sorted(counted), "each of the three was told once that the decision is new"
    for name, one in zip(people, told, strict=True):
        if name in counted:
            assert isinstance(one, Decided), one
            assert one["by"] == name
            continue
        assert type(one) is Conflict, one
        winner = one.winner or {}
        assert {vote["by"] for vote in winner["votes"]} == counted, "who decided"
        assert f"was approved by {winner['by']} first" in str(one), "and why this decision did not count"
    assert (await stage.engine.show(run))["run"]["state"] == "succeeded"


@pytest.mark.parametrize("rounds", [3, in_proof(100)])
async def test_of_fifty_decisions_exactly_three_count(database_url: str, rounds: int) -> None:
    async with (
        AsyncEngine(database_url, tenant=TENANT, actor="root", registry=handlers()) as engine,
        AsyncEngine(database_url, tenant=TENANT, actor="root") as second,
        AsyncEngine(database_url, tenant=TENANT, actor="root") as third,
    ):
        stage = Stage(engine, database_url)
        for name in FIVE:
            await engine.users.create(name)
            await engine.users.grant(name, role="finance")
        for number in range(rounds):
            await decide_at_once([engine, second, third], stage, random.Random(number))
