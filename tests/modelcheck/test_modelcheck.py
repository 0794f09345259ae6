"""Every state of the small definitions, in the quick setting; and proof that the checker notices planted defects."""

from __future__ import annotations

import pytest
from tests.modelcheck.mutants import MUTANTS, Mutant

from stepkeep.kernel.states import RUN_TERMINAL
from stepkeep.modelcheck.campaign import QUICK, Campaign, check, explore
from stepkeep.modelcheck.family import cases
from stepkeep.modelcheck.world import Codec, born


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return check(QUICK)


def test_no_promise_fails_in_any_state_and_an_end_is_reachable_from_each(campaign: Campaign) -> None:
    """Promises 2, 3, 5 and 6; I1 to I12 as far as one run can show them."""
    assert campaign.findings == ()
    assert campaign.states > 25_000


def test_every_arrow_of_the_production_tables_is_taken(campaign: Campaign) -> None:
    """What was never taken was never checked."""
    assert campaign.untaken() == ()


def test_runs_end_in_every_way_there_is(campaign: Campaign) -> None:
    endings = {state for one in campaign.cases for state in one.endings}
    assert endings == {str(state) for state in RUN_TERMINAL}


def test_the_same_exploration_gives_the_same_figures() -> None:
    first, second = (check(600, chosen=("gates", "waits")) for _ in range(2))
    keys = ("states", "transitions", "probes", "depth")
    assert [first.as_json()[key] for key in keys] == [second.as_json()[key] for key in keys]


def test_a_state_survives_being_packed() -> None:
    for case in cases():
        codec, state = Codec(case.plan), born(case.plan, start=True)
        assert codec.unpack(codec.pack(state)) == state


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_defect_is_caught_by_the_property_that_is_meant(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    [case] = [case for case in cases() if case.name == mutant.case]
    mutant.plant(monkeypatch)
    found = explore(case, 6_000).finding
    assert found is not None, f"nobody noticed that {mutant.name}"
    assert found.name == mutant.caught_by, f"{found.name}: {found.what} after {found.path}"
