"""Planted bugs are caught: the quick ones here, all by `stepkeep lab mutants`."""

import functools
import inspect

import pytest

from stepkeep.kernel.decide import execution
from stepkeep.kernel.decide.retry import may_retry_lost
from stepkeep_lab.simulation.campaign import MUTANT_SEEDS, hunt, run_campaign
from stepkeep_lab.simulation.mutants import MUTANTS
from stepkeep_lab.simulation.mutation import Edit, Misfit, Mutant, planted
from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import CORNERS, Scenario, draw, with_changes
from stepkeep_lab.simulation.shrink import replay_command, shrink

QUICK = (
    "fence-stays",
    "output-lost",
    "join-early",
    "slots-ignored",
    "undo-forwards",
    "business-key-kept",
    "no-lock-no-was",
    "join-counts-twice",
    "adopts-what-did-not-finish",
    "in-flight-exceeded",
    "element-undo-lost",
    "checkpoint-of-another-step",
)
"""Caught within a few seeds each, in a third of a second of CPU."""


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught(name: str) -> None:
    [score] = hunt([name], most=60)
    assert score.seeds is not None, f"{score.name}: {score.what}"


def test_a_planted_bug_is_caught_at_once_by_the_seed_that_showed_it_last() -> None:
    [score] = hunt(["in-flight-exceeded"], most=60)
    assert score.seeds is not None
    assert score.seeds > 1
    assert hunt([score.name], most=1) != [score]
    assert hunt([score.name], most=1, tried_first={score.name: score.seeds - 1}) == [score]


@pytest.mark.parametrize(
    ("name", "corner"),
    [
        ("completed-without-rules", "stuck steps"),
        ("required-and-skipped", "stuck steps"),
        ("rollback-owns-nothing", "trees undone"),
        ("child-not-called-back", "trees undone"),
        ("chosen-child-kept", "trees undone"),
        ("remote-wait-unfiltered", "remote workers"),
        ("reassigned-while-decidable", "nobody may decide"),
        ("reassigned-by-requester", "nobody may decide"),
        ("reassigned-to-requester", "nobody may decide"),
        ("remote-flow-ends-unseen", "flows of remote workers"),
        ("flow-misfit-fails-the-run", "other code of flows"),
        ("flow-own-error-fails-the-run", "other code of flows"),
        ("flow-tried-code-again", "other code of flows"),
        ("flow-held-end-wakes", "other code of flows"),
        ("flow-key-kept-after-undo", "flows again"),
        ("flow-key-lost", "flows again"),
        ("flow-adopts-undone-call", "flows again"),
        ("flow-adopts-beyond-the-prefix", "flows again"),
        ("flow-place-left-free", "flows again"),
        ("flow-patched-answer-changes", "flows again"),
    ],
)
def test_a_planted_bug_is_caught_in_the_corner_that_was_made_for_it(name: str, corner: str) -> None:
    with planted(next(mutant for mutant in MUTANTS if mutant.name == name)):
        assert any(not run_seed(with_changes(draw(seed), CORNERS[corner])).ok for seed in range(60, 72))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_fits_the_code_and_is_taken_out_again(mutant: Mutant) -> None:
    before = may_retry_lost.__code__, inspect.unwrap(execution.report).__code__
    with planted(mutant):
        pass
    assert before == (may_retry_lost.__code__, execution.report.__code__)


def test_there_are_many_bugs_and_each_has_its_name() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= 30
    assert len(set(names)) == len(names)


def test_a_bug_that_no_longer_fits_says_so() -> None:
    with (
        pytest.raises(Misfit),
        planted(Mutant("x", "nothing", (Edit("kernel.decide.retry:may_retry", "no such text", ""),))),
    ):
        pass


@pytest.mark.parametrize("name", ["fence-stays", "no-fence"])
def test_a_bug_is_planted_in_a_function_that_has_moved_to_another_module(name: str) -> None:
    [edit] = next(mutant for mutant in MUTANTS if mutant.name == name).edits
    function = inspect.unwrap(getattr(execution, edit.where.partition(":")[2]))
    before = function.__code__
    with planted(Mutant("moved", "nothing", (edit._replace(where=edit.where.replace("execution", "of_old")),))):
        assert function.__code__ != before
    assert function.__code__ == before


def test_a_bug_of_a_function_that_is_nowhere_is_refused() -> None:
    bug = Mutant("x", "nothing", (Edit("kernel.decide.retry:nothing_of_this_name", "some text", ""),))
    with pytest.raises(Misfit, match="no other module has it"), planted(bug):
        pass


def test_an_unknown_bug_is_refused() -> None:
    with pytest.raises(ValueError, match="no planted bug nonsense"):
        hunt(["nonsense"])


def bugged() -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == "fence-stays")


@functools.cache
def failing_seed() -> int:
    with planted(bugged()):
        return next(seed for seed in range(MUTANT_SEEDS) if not run_seed(draw(seed)).ok)


@pytest.mark.proof
def test_a_failing_seed_is_made_smaller_and_its_command_plays_it_again() -> None:
    seed = failing_seed()
    with planted(bugged()):
        smallest = shrink(draw(seed), most=30)
    assert not smallest.ok
    assert weight(smallest.scenario) < weight(draw(seed))
    assert replay_command(smallest.scenario).startswith(f"stepkeep lab simulate --seeds 1 --from {seed} --with ")
    with planted(bugged()):
        assert run_seed(smallest.scenario).digest == smallest.digest
    assert run_seed(smallest.scenario).ok


def weight(scenario: Scenario) -> float:
    return sum(bool(getattr(scenario, name)) for name in Scenario.__struct_fields__) + scenario.runs + scenario.workers


@pytest.mark.proof
def test_a_campaign_tells_which_seed_failed_and_how_to_play_it() -> None:
    seed = failing_seed()
    with planted(bugged()):
        campaign = run_campaign(1, first=seed)
    [failure] = campaign.failures
    assert failure.violations
    assert failure.command == f"stepkeep lab simulate --seeds 1 --from {seed}"
    assert failure.shrunk
    assert campaign.as_json()["failures"][0]["seed"] == seed
