"""States of the small definitions, and proof that the checker notices planted defects.

They explore 200 states of each definition, and 1,000 of two; `stepkeep lab check` any number.
"""

from __future__ import annotations

from array import array

import pytest
from msgspec.structs import replace
from tests.modelcheck.mutants import MUTANTS, Mutant
from tests.suites import some

from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep_lab.modelcheck.actions import Actions
from stepkeep_lab.modelcheck.backwards import first_without_way
from stepkeep_lab.modelcheck.campaign import Campaign, check, explore
from stepkeep_lab.modelcheck.family import cases
from stepkeep_lab.modelcheck.world import OLDEST, Codec, born


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    """The two that are explored further show the arrows that 200 states of each leave out."""
    few, more = check(200), check(1_000, chosen=("rules", "waits"))
    return replace(few, cases=(*few.cases, *more.cases))


def test_no_promise_fails_in_any_state_and_an_end_is_reachable_from_each(campaign: Campaign) -> None:
    """Promises 2, 3, 5 and 6; I1 to I12 as far as one run can show them."""
    assert campaign.findings == ()
    assert campaign.states > 5_000


NOT_YET = {
    "step running children_started": "a flow as code awaits steps of its own",
    "step awaiting_children children_settled": "a flow as code is run again",
    "step running held_unfit": "a flow as code holds",
    "step awaiting_approval code_changed": "a flow as code has other code",
}
"""Arrows that nothing produces yet, and what will."""


def test_every_arrow_of_the_production_tables_is_taken(campaign: Campaign) -> None:
    """What was never taken was never checked."""
    assert [arrow for arrow in campaign.untaken() if arrow not in NOT_YET] == []


def test_runs_end_in_every_way_there_is(campaign: Campaign) -> None:
    endings = {state for one in campaign.cases for state in one.endings}
    assert endings == {str(state) for state in RUN_TERMINAL}


def test_what_a_limit_cuts_off_is_driven_to_an_end_all_the_same() -> None:
    cut, whole = (check(limit, chosen=("gates",)).cases[0] for limit in (500, 5_000))
    assert (cut.complete, cut.finding, cut.edge > 100, cut.beyond > 0) == (False, None, True, True)
    assert (whole.complete, whole.edge, whole.beyond) == (True, 0, 0)


def test_a_run_that_never_ends_is_noticed_beyond_the_limit_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that was visited has a way on: only driving on from the edge shows that it leads nowhere."""
    [endless] = [mutant for mutant in MUTANTS if mutant.name == "nothing ever finishes"]
    [case] = [case for case in cases() if case.name == endless.case]
    endless.plant(monkeypatch)
    found = explore(case, 30).finding
    assert found is not None
    assert found.name == endless.caught_by


def test_nodes_without_a_way_to_an_end_are_found() -> None:
    sources, targets = array("I", [0, 1, 3, 4]), array("I", [1, 2, 4, 3])
    assert first_without_way(3, [2], sources[:2], targets[:2]) is None
    assert first_without_way(5, [2], sources, targets) == 3


def test_a_zombie_is_tried_on_every_step_that_was_ever_claimed() -> None:
    """Zombies are in no state, so each state must have all of them knock: the last holder, and one before it."""
    [case] = [case for case in cases() if case.name == "crowd"]
    actions, fresh = Actions(case, case.plan), born(case.plan, start=True)
    row = replace(fresh.rows[0], fence=OLDEST)
    told = [event for label, event, _ in actions.probes(fresh._replace(rows={0: row})) if label == "a stale report"]
    assert {event.fence for event in told if isinstance(event, StepReported)} == {OLDEST - 1, OLDEST}
    assert not [label for label, *_ in actions.probes(fresh) if "report" in label]


def test_the_same_exploration_gives_the_same_figures() -> None:
    first, second = (check(600, chosen=("gates", "waits")) for _ in range(2))
    keys = ("states", "transitions", "probes", "depth")
    assert [first.as_json()[key] for key in keys] == [second.as_json()[key] for key in keys]


def test_a_state_survives_being_packed() -> None:
    for case in cases():
        codec, state = Codec(case.plan), born(case.plan, start=True)
        assert codec.unpack(codec.pack(state)) == state


@pytest.mark.parametrize("mutant", some(MUTANTS, 4, lambda mutant: mutant.name))
def test_a_planted_defect_is_caught_by_the_property_that_is_meant(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    [case] = [case for case in cases() if case.name == mutant.case]
    mutant.plant(monkeypatch)
    found = explore(case, 6_000).finding
    assert found is not None, f"nobody noticed that {mutant.name}"
    assert found.name == mutant.caught_by, f"{found.name}: {found.what} after {found.path}"
