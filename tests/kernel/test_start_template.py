"""A run made from a start template equals a created run, to the byte; plans with a condition on a first step have no
template."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.kernel.driver import World, bytes_of, gate, wait, when, work
from tests.kernel.walks import world_of

from stepkeep.kernel.decide.create import create_run, start_template
from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.people.authority import Caller

GIVEN = b'{"amount":12}'
NOON = 1_790_000_000_000_000


def about_run(**about: Any) -> dict[str, Any]:
    plain = {"run_id": "r-1", "priority": 3, "business_key": "order-7", "caller": Caller("acme", "ada"), "now": NOON}
    return plain | about


@pytest.mark.parametrize("start", [True, False])
def test_a_cast_equals_the_birth_it_stands_for_in_every_row_and_every_byte(start: bool) -> None:
    copies = 0
    for seed in range(450):
        plan = world_of(Random(seed)).plan
        template = start_template(plan, start=start)
        if template is None:
            continue
        for about in (
            about_run(),
            about_run(run_id="r-2", caller=Caller("acme", "bob"), business_key=None, now=NOON + 1),
        ):
            born = create_run(plan, given=GIVEN, start=start, **about)
            made = template.instantiate(given=GIVEN, **about)
            assert bytes_of(made) == bytes_of(born)
            assert made == born
        copies += 1
    assert copies > 75


def test_a_timeout_and_a_wait_count_from_the_run_s_own_beginning() -> None:
    world = World(
        wait("sign", "signed", deadline=5 * SECOND), wait("pay", "paid", deadline=7 * SECOND), timeout=60 * SECOND
    )
    template = start_template(world.plan, start=True)
    assert template is not None
    made = template.instantiate(given=GIVEN, **about_run())
    assert made.run.due_at == NOON + 60 * SECOND
    assert sorted(step.due_at or 0 for step in made.added) == [NOON + 5 * SECOND, NOON + 7 * SECOND]


def test_a_plan_with_a_condition_on_a_first_step_has_no_template_unless_it_stays_idle() -> None:
    world = World(work("a", condition="a"), conditions={"a": when(lambda view: True)})
    assert start_template(world.plan, start=True) is None
    assert start_template(world.plan, start=False) is not None


def test_a_plan_that_begins_with_a_gate_has_no_template_unless_it_stays_idle() -> None:
    """A gate notes when it opened and what it shows."""
    world = World(gate("sign"))
    assert start_template(world.plan, start=True) is None
    assert start_template(world.plan, start=False) is not None


def test_a_condition_on_a_later_step_is_no_hindrance() -> None:
    world = World(work("a"), work("b", "a", condition="b"), conditions={"b": when(lambda view: True)})
    assert start_template(world.plan, start=True) is not None
