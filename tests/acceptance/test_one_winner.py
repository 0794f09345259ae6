"""Promise 5: the first committed decision wins, and everybody else learns who it was."""

from __future__ import annotations

import asyncio

import pytest

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Approval, Definition
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import CancelRequested, Event, GateDecided, TimeCame
from stepkeep.kernel.machine.states import RunState
from tests.suites import in_proof
from tests.workbench import SECOND, TENANT, Bench, benches, gate

RIVALS = 50
OPENINGS = 4

SIGN_OFF = Definition(name="sign-off", version=1, steps=(gate("sign-off", approval=Approval(deadline=60 * SECOND)),))


def rivals(run_id: str) -> list[Event]:
    """Fifty people and clocks that all want to decide the same gate at once."""
    found: list[Event] = []
    for number in range(RIVALS):
        actor = f"rival-{number}"
        kind = number % 4
        if kind == 0:
            found.append(GateDecided(tenant=TENANT, run_id=run_id, actor=actor, approve=True, no=0))
        elif kind == 1:
            found.append(GateDecided(tenant=TENANT, run_id=run_id, actor=actor, approve=False, no=0))
        elif kind == 2:
            found.append(CancelRequested(tenant=TENANT, run_id=run_id, actor=actor))
        else:
            found.append(TimeCame(tenant=TENANT, run_id=run_id, actor=actor, no=0))
    return found


async def race(openings: list[Bench], run_id: str, round_number: int) -> tuple[list[int], int]:
    """Every rival in a transaction of its own, spread over all openings; who took effect, and how many were refused."""
    events = rivals(run_id)
    shift = round_number % RIVALS
    order = [*range(shift, RIVALS), *range(shift)]
    replies = await asyncio.gather(
        *(openings[place % OPENINGS].transactor.submit_all([events[place]]) for place in order)
    )
    winners = [
        place
        for place, (reply,) in zip(order, replies, strict=True)
        if isinstance(reply, Accepted) and not reply.repeated
    ]
    refused = sum(isinstance(reply, Conflict) for (reply,) in replies)
    return winners, refused


async def run_all(url: str, rounds: int) -> None:
    async with benches(url, OPENINGS) as openings:
        plan = await openings[0].publish(SIGN_OFF)
        for opening in openings:
            opening.store.clock_offset = 0
        run_ids = [await openings[0].start(plan) for _ in range(rounds)]
        for opening in openings:
            opening.store.clock_offset = 3600 * SECOND
        kinds = set()
        for number, run_id in enumerate(run_ids):
            winners, refused = await race(openings, run_id, number)
            assert len(winners) == 1, f"{len(winners)} rivals took effect on run {run_id}"
            assert refused >= RIVALS // 4, "losers were not told"
            ending = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.FAILED)[winners[0] % 4]
            assert await openings[1].state(run_id) is ending
            kinds.add(winners[0] % 4)
        assert len(kinds) > 1, "the race was always won by the same kind of rival: it raced nothing"
        assert await openings[0].store.stuck_runs() == []


@pytest.mark.parametrize("rounds", [12, in_proof(100)])
async def test_fifty_rivals_for_one_gate_have_exactly_one_winner_each_time(database_url: str, rounds: int) -> None:
    await run_all(database_url, rounds)
