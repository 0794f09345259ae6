"""Flows that hold until other code is there are found on every store, by run and number."""

from __future__ import annotations

from typing import Any

from tests.store.values import QUEUE, TENANT, a_step, new_run, ready, run_id, save

from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_ID, UnfitStep


def holding(number: int, no: int = 0, tried: tuple[str, ...] = ("a", "b"), **given: Any) -> Step:
    note = Note(exhausted=True, tried=tried, output='"exhausted":true,"tried":["x"]')
    return a_step(number, no, **{"state": StepState.AWAITING_APPROVAL, "fence": 2, "note": note, **given})


async def test_flows_that_hold_for_other_code_are_found_a_page_at_a_time(store: Store, other: Store) -> None:
    gate = a_step(1, 1, state=StepState.AWAITING_APPROVAL)
    by_people = holding(1, 2, tried=())
    await save(store, new_run(1, [holding(1), gate, by_people]), new_run(2, [ready(2)]), new_run(3, [holding(3)]))
    found = [UnfitStep(run_id(number), 0, QUEUE, ("a", "b")) for number in (1, 3)]
    assert await other.find_unfit(TENANT, FIRST_ID, 10) == found
    assert await other.find_unfit(TENANT, FIRST_ID, 1) == found[:1]
    assert await other.find_unfit(TENANT, run_id(1), 10) == found[1:]
    assert await other.find_unfit("another tenant", FIRST_ID, 10) == []
