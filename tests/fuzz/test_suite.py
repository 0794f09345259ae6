"""The suite itself: cases repeat, and what breaks a promise, raises, dies, hangs or spins is a finding."""

from __future__ import annotations

import pytest
from tests.fuzz.numbers import HERE, Numbers, Special

from stepkeep_lab.fuzz.campaign import Score, play_target, replay
from stepkeep_lab.fuzz.child import make
from stepkeep_lab.fuzz.play import play
from stepkeep_lab.fuzz.target import case_random
from stepkeep_lab.fuzz.targets import TARGETS

SEED = 3


def special_numbers(least: int, count: int, name: str = "numbers") -> list[int]:
    """The cases below `count` whose number drawn is at least this."""
    return [at for at in range(count) if Numbers().generate(case_random(SEED, name, at)) >= least]


def played(kind: str, count: int = 60, jobs: int = 1) -> Score:
    return play_target(f"{HERE}:{kind}", seed=SEED, count=count, jobs=jobs)


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_and_a_number_always_give_the_same_case(name: str) -> None:
    one, other = make(TARGETS[name]), make(TARGETS[name])
    for number in range(30):
        case = one.generate(case_random(SEED, name, number))
        assert one.show(case) == other.show(other.generate(case_random(SEED, name, number)))
    shown = {one.show(one.generate(case_random(seed, name, 0))) for seed in range(20)}
    assert len(shown) > 10, "another seed gives other cases"


def test_every_case_is_counted_with_its_outcome() -> None:
    score = played("Numbers", 100)
    assert score.ok
    assert score.cases == 100 == score.outcomes.total()
    assert set(score.outcomes) == {"even", "odd"}


def test_the_same_cases_are_played_by_one_process_and_by_several() -> None:
    one, several = played("Special", 90), played("Special", 90, jobs=3)
    assert one.outcomes == several.outcomes
    assert [finding.number for finding in one.findings] == [finding.number for finding in several.findings]


def test_a_finding_names_the_case_and_shows_it_without_control_characters() -> None:
    score = played("Special")
    numbers = special_numbers(90, 60)
    assert score.broken == {"is below ninety": len(numbers)}
    finding = score.findings[0]
    assert (finding.target, finding.seed, finding.number) == ("numbers", SEED, numbers[0])
    assert "\x1b" not in finding.case + finding.detail
    assert finding.case.endswith("\\x1b[2J")
    assert finding.command == f"stepkeep lab fuzz --only numbers --seed {SEED} --case {numbers[0]}"


def test_a_finding_is_made_as_small_as_still_breaks_the_same_promise() -> None:
    [first, *_] = played("Special").findings
    assert (first.smallest or first.case) == "number 90\\x1b[2J"


def test_findings_of_one_kind_are_all_counted_but_few_are_kept() -> None:
    score = played("Special", 200)
    assert score.broken.total() == len(special_numbers(90, 200)) > 5
    assert len(score.findings) == 5


def test_an_exception_is_a_finding_with_its_place() -> None:
    score = played("Raising")
    assert score.broken == {"raises KeyError": len(special_numbers(90, 60))}
    assert "numbers.py:" in score.findings[0].detail
    assert "/" not in score.findings[0].detail


def test_an_abort_costs_one_case_and_names_it() -> None:
    score = played("Aborting")
    numbers = special_numbers(90, 60)
    assert score.cases == 60
    assert score.children_lost == len(numbers) > 0
    assert score.broken == {"the process survives (ended with SIGABRT)": len(numbers)}
    assert [finding.number for finding in score.findings] == numbers[:5]
    assert "numbers.py" in score.findings[0].detail


def test_an_abort_while_a_case_is_made_smaller_loses_no_finding() -> None:
    score = played("AbortingWhileShrinking")
    assert score.broken == {"is below ninety": len(special_numbers(90, 60))}
    assert score.cases == 60


def test_a_hang_is_ended_and_named() -> None:
    score = played("Hanging", 12 + special_numbers(95, 100)[0])
    assert score.broken["the process survives (hung)"] >= 1
    assert score.findings[0].number == special_numbers(95, 100)[0]
    assert "in check" in score.findings[0].detail


def test_a_loop_without_end_is_ended_by_its_use_of_cpu() -> None:
    score = played("Spinning", special_numbers(95, 100)[0] + 1)
    assert score.broken == {"the process survives (ended with SIGXCPU)": 1}


def test_a_case_that_is_too_slow_is_a_finding() -> None:
    score = played("Slow", special_numbers(95, 100)[0] + 1)
    assert score.broken == {"ends within 0.3 s of CPU": 1}
    assert score.slowest_cpu_seconds >= 0.3


def test_a_case_that_takes_too_much_memory_is_a_finding() -> None:
    score = played("Hungry", special_numbers(95, 100)[0] + 1)
    assert score.broken == {"raises MemoryError": 1}


def test_a_defect_of_the_suite_is_loud_and_no_finding() -> None:
    with pytest.raises(RuntimeError, match="nothing to draw"):
        played("Unable")


def test_time_bounds_a_target() -> None:
    score = play_target(f"{HERE}:Numbers", seed=SEED, count=10_000_000, seconds=1.0)
    assert 0 < score.cases < 10_000_000
    assert score.ok


def test_one_case_is_played_again_by_its_number() -> None:
    shown, score = replay("expressions", 7, 12)
    target = make(TARGETS["expressions"])
    assert shown == target.show(target.generate(case_random(7, "expressions", 12)))
    assert score.cases == 1


def test_a_case_can_be_played_in_this_process() -> None:
    [number, *_] = special_numbers(90, 60)
    result = play(Special(), SEED, number)
    assert result.finding is not None
    assert result.finding.promise == "is below ninety"
