"""A cast from a mould is the birth it stands for, to the byte; plans that look before they begin have no mould."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.kernel.driver import World, bytes_of, gate, wait, when, work
from tests.kernel.walks import world_of

from stepkeep.kernel.birth import conceive
from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.mould import mould_of

GIVEN = b'{"amount":12}'
NOON = 1_790_000_000_000_000


def birth(**about: Any) -> dict[str, Any]:
    plain = {"tenant": "acme", "run_id": "r-1", "priority": 3, "business_key": "order-7", "actor": "ada", "now": NOON}
    return plain | about


@pytest.mark.parametrize("start", [True, False])
def test_a_cast_equals_the_birth_it_stands_for_in_every_row_and_every_byte(start: bool) -> None:
    cast = 0
    for seed in range(200):
        plan = world_of(Random(seed)).plan
        mould = mould_of(plan, start=start)
        if mould is None:
            continue
        for about in (birth(), birth(run_id="r-2", actor="bob", business_key=None, now=NOON + 1)):
            born = conceive(plan, given=GIVEN, start=start, **about)
            made = mould.cast(**about)
            assert bytes_of(made) == bytes_of(born)
            assert made == born
        cast += 1
    assert cast > 100


def test_a_timeout_a_gate_and_a_wait_count_from_the_run_s_own_beginning() -> None:
    world = World(gate("sign", deadline=5 * SECOND), wait("pay", "paid", deadline=7 * SECOND), timeout=60 * SECOND)
    mould = mould_of(world.plan, start=True)
    assert mould is not None
    made = mould.cast(**birth())
    assert made.run.due_at == NOON + 60 * SECOND
    assert sorted(step.due_at or 0 for step in made.added) == [NOON + 5 * SECOND, NOON + 7 * SECOND]


def test_a_plan_that_looks_before_it_begins_has_no_mould_unless_it_is_to_stay_idle() -> None:
    world = World(work("a", condition="a"), conditions={"a": when(lambda view: True)})
    assert mould_of(world.plan, start=True) is None
    assert mould_of(world.plan, start=False) is not None


def test_a_condition_on_a_later_step_is_no_hindrance() -> None:
    world = World(work("a"), work("b", "a", condition="b"), conditions={"b": when(lambda view: True)})
    assert mould_of(world.plan, start=True) is not None
