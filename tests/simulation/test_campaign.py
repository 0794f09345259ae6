"""Seeds with faults and no violation, the same histories each time, and nearly every case met.

`make test` runs the first eight seeds, `make proof` a hundred; `stepkeep lab simulate` any number.
"""

import functools
import gc
import os
import subprocess
import sys

import msgspec
import pytest
from tests.suites import in_proof, some

from stepkeep_lab.simulation.campaign import Campaign, run_campaign
from stepkeep_lab.simulation.coverage import table_rows
from stepkeep_lab.simulation.documents import DRAWERS
from stepkeep_lab.simulation.ledger import Ledger
from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import CORNERS, DEAR_CORNERS, FAULTS, NONE, draw, with_changes
from stepkeep_lab.simulation.stage import Stage

SEEDS = 100
TWICE = 2


def test_no_seed_violates_anything() -> None:
    campaign = run_campaign(8)
    assert campaign.failures == []
    assert campaign.seeds == 8
    assert sum(campaign.faults.values()) > 0


def test_a_seed_leaves_nothing_behind_when_it_is_over() -> None:
    """A campaign of a million runs plays fifty thousand seeds in one process."""
    run_seed(with_changes(draw(3), {"runs": 2}))
    gc.collect()
    assert [one for one in gc.get_objects() if isinstance(one, Ledger | Stage)] == []


@pytest.mark.proof
def test_no_seed_violates_anything_and_nearly_everything_is_met() -> None:
    campaign = run_campaign(SEEDS)
    print(f"{campaign.seeds} seeds, {campaign.runs} runs, {sum(campaign.faults.values())} faults")
    assert campaign.failures == []
    assert campaign.seeds == campaign.following == SEEDS
    assert len(campaign.rows & table_rows()) >= len(table_rows()) - 12, campaign.unreached
    assert not [what for what in campaign.unreached if what.startswith("refusal")]
    assert len([what for what in campaign.unreached if what.startswith("fault")]) <= 2
    assert {"native", *DRAWERS} == set(campaign.written_in)


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    first = [run_seed(draw(seed)).digest for seed in range(TWICE)]
    again = [run_seed(draw(seed)).digest for seed in range(TWICE)]
    assert first == again
    assert len(set(first)) == TWICE


def test_it_does_not_matter_who_plays_which_seeds() -> None:
    together = run_campaign(2)
    apart = run_campaign(1)
    apart.join(run_campaign(1, first=1))
    assert without_time(apart) == without_time(together)
    assert without_time(run_campaign(2, jobs=2)) == without_time(together)


def without_time(campaign: Campaign) -> dict[str, object]:
    told = campaign.as_json()
    return {name: told[name] for name in told if name != "seconds"}


@pytest.mark.proof
def test_a_campaign_ends_when_there_were_enough_runs_and_goes_on_where_it_left_off() -> None:
    some = run_campaign(runs=1)
    assert some.runs >= 1
    assert some.seeds == some.following < 30
    assert run_campaign(runs=1, campaign=some) is some
    more = run_campaign(runs=some.runs + 1, campaign=some)
    assert without_time(more) == without_time(run_campaign(more.seeds))


def test_remote_workers_play_the_same_history_each_time() -> None:
    scenario = with_changes(draw(5), CORNERS["remote workers"])
    first = run_seed(scenario)
    assert (first.violations, run_seed(scenario).digest) == ((), first.digest)
    assert first.met["remote: a report that was accepted"] > 0


TELL = "from stepkeep_lab.simulation.run_seed import run_seed; from stepkeep_lab.simulation.scenario import draw; "
TELL += "print(run_seed(draw(0)).digest)"


def test_another_process_with_another_hash_seed_tells_the_same_history() -> None:
    told = subprocess.run(
        [sys.executable, "-c", TELL],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert told == f"{run_seed(draw(0)).digest}\n"


def test_without_faults_nothing_is_lost_fenced_or_unreachable() -> None:
    # Nor are there rules: where a run stops, judging may outlast its grace, and is then fenced off as it should be.
    calm = dict.fromkeys(FAULTS, 0.0) | {"poison": 0.0, "cancel": 0.0, "hang": 0.0, "deaf": 0.0, "bias": {"rules": 0.0}}
    for seed in range(2):
        result = run_seed(with_changes(draw(seed), calm))
        assert result.ok, result.violations
        assert result.refusals["Fenced"] == 0
        assert result.met["a caller met StoreUnavailable"] == 0


@functools.cache
def scenarios(count: int) -> list[dict[str, object]]:
    return [msgspec.structs.asdict(draw(seed)) for seed in range(count)]


@pytest.mark.parametrize("name", CORNERS)
def test_every_corner_is_visited_by_a_few_seeds_of_a_hundred(name: str) -> None:
    assert 2 <= sum(CORNERS[name].items() <= scenario.items() for scenario in scenarios(200)) <= 24


@pytest.mark.proof
def test_a_run_of_more_than_five_thousand_entries_ends_like_any_other() -> None:
    result = run_seed(with_changes(draw(1), DEAR_CORNERS["long journal"]))
    assert result.violations == ()
    assert result.longest > 5000
    assert sum(result.faults.values()) > 0
    assert result.ended["succeeded"] > 0


@pytest.mark.proof
@pytest.mark.parametrize("name", DEAR_CORNERS)
def test_every_dear_corner_is_visited_by_a_few_seeds_of_ten_thousand(name: str) -> None:
    assert 1 <= sum(DEAR_CORNERS[name].items() <= scenario.items() for scenario in scenarios(10_000)) <= 15


def test_a_process_stands_still_only_at_the_statement_that_is_named() -> None:
    still = NONE | {"pause": 0.1, "chaos": 20.0, "runs": 4}
    assert run_seed(with_changes(draw(1), still | {"pause_at": "find due"})).faults["pause"] > 0
    assert run_seed(with_changes(draw(1), still | {"pause_at": "no such statement"})).faults["pause"] == 0


def test_an_unknown_field_of_a_scenario_is_refused() -> None:
    with pytest.raises(ValueError, match="a scenario has no weather"):
        with_changes(draw(1), {"weather": 1})


@pytest.mark.parametrize(
    ("seed", "told"),
    [
        *some(
            [
                (70518, "a handler that is stopped, where the dialect hides whether it completed"),
                (71390, "a second cancel, where the dialect hides that the run stops"),
                (601301, "a message that is kept by a transaction which began before a run ended"),
                (230022, "a wait that opens with a message that came before, where the dialect hides the opening"),
                (210029, "a retry by an approval of a hold that the dialect hides"),
                (700058, "a workstream that adopted a task and is ready"),
                (700120, "a hold of a retry, in the entry in which another step was held"),
                (700190, "a gate that was adopted"),
                (810097, "an adopted step that a person completed in its first run"),
                (811646, "a rejected hold after a retry that the action dialect hides"),
                (900839, "a flow that is suspended after its deadline while another worker runs a call of it"),
                (900100, "calls that a late flow stops, where the dialect hides when their time began"),
                (900587, "a late flow that stops calls of a workstream"),
                (900666, "a late flow that stops calls of a linear run, some of them new"),
                (900886, "a late flow that stops calls, after a decision about it was refused"),
                (800462, "a run that an element of a loop moves after a wait for input"),
                (800035, "an adopted step that was skipped because a rule did not hold"),
            ],
            nth=4,
        ),
        in_proof(1200022, "a resource of a step that lost its lease while its rules were to run"),
        in_proof(1200155, "a child that outlasts the grace of a run whose stop the dialect hides"),
        in_proof(1200163, "a resource of a step that lost its lease, where the dialect hides that"),
        in_proof(1300123, "a lease that runs out while its renewal waits in a line for the run"),
        in_proof(1300169, "a step that a spent budget of a run above denies, which asks no policy"),
        in_proof(1500086, "a list that ends when a person decides about one of its elements"),
        in_proof(1500099, "a step that waited, and then added no steps, where the dialect hides both"),
        in_proof(1500187, "an added step that a person skips after it failed"),
        in_proof(2000217, "the rollback of a child that adopts only some of the steps that a handler added"),
        in_proof(2001743, "a decision about an adopted gate that is made again"),
        in_proof(2000831, "the rollback of a child that keeps why an effect remains"),
    ],
)
def test_a_true_log_that_a_judge_once_refused_gives_no_finding(seed: int, told: str) -> None:
    assert list(run_seed(draw(seed)).violations) == [], told


def test_an_adopted_wait_took_its_messages_in_the_run_that_it_comes_from() -> None:
    changes = {"runs": 30, "workers": 1, "steps": 6, "slow": 0.0, "hint_late": 0.0, "hint_doubled": 0.0, "emit": 0.0}
    changes |= dict.fromkeys(("approve", "reject", "complete", "duplicate", "skew"), 0.0)
    assert list(run_seed(with_changes(draw(6005), changes | {"bias": {"grown": 0.5}})).violations) == []
