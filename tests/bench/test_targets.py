"""Targets are judged by what was measured, and by nothing else."""

from __future__ import annotations

from stepkeep_lab.bench.measurement import FIGURES, Measurement
from stepkeep_lab.bench.targets import TARGETS, Verdict, judge
from stepkeep_lab.bench.works import WORKS


def measured(subject: str, work: str, store: str, **figures: float) -> Measurement:
    return Measurement(subject=subject, work=work, store=store, rounds=(figures,))


def verdict(what: str, *measurements: Measurement) -> Verdict:
    [found] = [each for each in judge(measurements) if each.what == what]
    return found


ONE_WORKER = "3-step runs, PostgreSQL, one worker"
BESIDE_DBOS = "without waiting, 3-step runs, PostgreSQL, beside DBOS"
BESIDE_PGQUEUER = "1-step runs, PostgreSQL, beside PgQueuer's jobs"
FAN = "cost of a step in a fan of 10,000, beside a 3-step run"


def test_a_target_is_met_at_its_limit_and_missed_below_it() -> None:
    assert verdict(ONE_WORKER, measured("stepkeep", "3-step runs", "postgres", steps_per_second=10_000)).met is True
    assert verdict(ONE_WORKER, measured("stepkeep", "3-step runs", "postgres", steps_per_second=9_999)).met is False


def test_what_nobody_measured_is_neither_met_nor_missed() -> None:
    assert {each.word for each in judge(())} == {"not measured"}


def test_a_peer_that_is_absent_is_not_beaten() -> None:
    ours = measured("stepkeep", "3-step runs", "postgres", steps_per_second=1_000_000)
    absent = Measurement(subject="DBOS", work="3-step runs", store="postgres", why="absent: it cannot be installed")
    assert verdict(BESIDE_DBOS, ours, absent).met is None


def test_a_ratio_is_taken_of_the_same_work_on_the_same_database() -> None:
    ours = measured("stepkeep", "3-step runs", "postgres", steps_per_second=9_000)
    theirs = measured("DBOS", "3-step runs", "postgres", steps_per_second=300)
    elsewhere = measured("DBOS", "3-step runs", "sqlite", steps_per_second=1)
    found = verdict(BESIDE_DBOS, ours, theirs, elsewhere)
    assert (found.found, found.met) == (30.0, True)


def test_jobs_of_a_queue_are_held_against_runs_of_one_step() -> None:
    ours = measured("stepkeep", "1-step runs", "postgres", runs_per_second=900, steps_per_second=900)
    theirs = measured("PgQueuer", "1-step runs", "postgres", runs_per_second=1_000, steps_per_second=1_000)
    assert verdict(BESIDE_PGQUEUER, ours, theirs).met is False


def test_a_fan_may_cost_twice_as_much_per_step_and_no_more() -> None:
    runs = measured("stepkeep", "3-step runs", "postgres", steps_per_second=10_000)
    wide = measured("stepkeep", "fan of 10,000", "postgres", steps_per_second=5_000)
    wider = measured("stepkeep", "fan of 10,000", "postgres", steps_per_second=4_999)
    assert verdict(FAN, runs, wide).met is True
    assert verdict(FAN, runs, wider).met is False


def test_every_target_names_works_and_figures_that_exist() -> None:
    there = {(work.name, store) for work in WORKS for store in work.stores}
    for target in TARGETS:
        for figure in filter(None, (target.figure, target.over)):
            assert figure.figure in FIGURES, target.what
            if figure.subject in ("stepkeep", "bound"):
                assert (figure.work, figure.store) in there, target.what
