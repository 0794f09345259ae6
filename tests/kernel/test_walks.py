"""Random lives of random runs: whatever happens, in whatever order, every promise holds and every run ends.

The audit of the driver is the assertion: it looks after each decision and would fail here. Refused events leave no
trace, partial snapshots lead to the same bytes as whole ones, and the same question gets the same answer.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import strategies as st
from tests.kernel.driver import ENDED_WELL
from tests.kernel.walks import bring_home, live, world_of
from tests.suites import drawn, in_proof

from stepkeep.kernel.machine.states import RUN_TERMINAL


@drawn(25, 150, random=st.randoms(use_true_random=False), events=st.integers(0, 60))
def test_every_promise_holds_through_any_life_and_every_run_ends_when_it_is_served(random: Random, events: int) -> None:
    """Promises 2, 3, 5, 6 and 7 of the design; the invariants I1 to I12 as far as one run can show them."""
    world = world_of(random)
    live(world, random, events)
    bring_home(world)
    assert world.run.state in RUN_TERMINAL


@drawn(15, 60, random=st.randoms(use_true_random=False))
def test_a_run_that_meets_no_trouble_ends_well_unless_its_own_conditions_or_policies_end_it(random: Random) -> None:
    world = world_of(random)
    bring_home(world)
    ended = {"condition_broken", "denied"} & {hop.trigger for hop in world.hops}
    assert ended or world.run.state in ENDED_WELL


@pytest.mark.parametrize("seeds", [60, in_proof(500)])
def test_long_lives_over_many_seeds(seeds: int) -> None:
    """A wide campaign with plain seeds, so that a failure names the life that led to it."""
    transactions = 0
    for seed in range(5_000, 5_000 + seeds):
        random = Random(seed)
        world = world_of(random)
        try:
            live(world, random, 120)
            bring_home(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        transactions += world.run.seq
    assert transactions > 6 * seeds, "the lives have become too short to show anything"
