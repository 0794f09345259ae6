"""Random lives of random runs: whatever happens, in whatever order, every promise holds and every run ends.

The audit of the driver is the assertion: it looks after each decision and would fail here. Refused events leave no
trace, partial snapshots lead to the same bytes as whole ones, and the same question gets the same answer.
"""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernel.driver import ENDED_WELL
from tests.kernel.walks import bring_home, live, world_of

from stepkeep.kernel.states import RUN_TERMINAL

HYPOTHESIS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@settings(HYPOTHESIS, max_examples=150)
@given(random=st.randoms(use_true_random=False), events=st.integers(0, 60))
def test_every_promise_holds_through_any_life_and_every_run_ends_when_it_is_served(random: Random, events: int) -> None:
    """Promises 2, 3, 5, 6 and 7 of the design; the invariants I1 to I12 as far as one run can show them."""
    world = world_of(random)
    live(world, random, events)
    bring_home(world)
    assert world.run.state in RUN_TERMINAL


@settings(HYPOTHESIS, max_examples=60)
@given(random=st.randoms(use_true_random=False))
def test_a_run_that_meets_no_trouble_ends_well_unless_its_own_conditions_break(random: Random) -> None:
    world = world_of(random)
    bring_home(world)
    broken = "condition_broken" in {hop.trigger for hop in world.hops}
    assert broken or world.run.state in ENDED_WELL


def test_long_lives_over_many_seeds() -> None:
    """A wide campaign with plain seeds, so that a failure names the life that led to it."""
    transactions = 0
    for seed in range(5_000, 5_500):
        random = Random(seed)
        world = world_of(random)
        try:
            live(world, random, 120)
            bring_home(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        transactions += world.run.seq
    assert transactions > 4_000, "the lives have become too short to show anything"
