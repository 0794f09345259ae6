"""Every failure path of a definition is walked, and ends as the engine would end it (seed 000, section 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepkeep.definition.native.reader import load_text
from stepkeep.dialects.registry import load_file
from stepkeep.kernel.definition import SECOND, Definition, Dependency, Effect, Handler, StepDefinition, Undo
from stepkeep.kernel.machine.states import OnFailure, Rollback, RunState, StepState
from stepkeep.simulate.endings import Ending
from stepkeep.simulate.findings import Kind
from stepkeep.simulate.report import MAX_PATHS, Report, simulate
from tests.suites import in_proof

EXAMPLES = Path(__file__).parents[2] / "examples"
S = StepState

TWO = """
workflow: two
timeout: 1h
on_failure: compensate
steps:
  - {name: make, uses: a.make, timeout: 10s, undo: {uses: a.unmake, timeout: 5s}, retry: {max_attempts: 2, initial: 3s}}
  - {name: ship, uses: a.ship, timeout: 20s, retry: {max_attempts: 1}, effect: read}
"""


def walked(text: str, **options: object) -> Report:
    return simulate(load_text(text, "w.yaml"), **options)  # type: ignore[arg-type]


def ends(report: Report) -> dict[str, Ending]:
    return {ending.path: ending for ending in report.endings}


def test_the_path_on_which_all_goes_well_comes_first() -> None:
    first = walked(TWO).endings[0]
    assert (first.path, first.state, first.states) == ("all goes well", RunState.SUCCEEDED, (S.SUCCEEDED, S.SUCCEEDED))


@pytest.mark.parametrize(
    ("path", "state", "states", "seconds"),
    [
        ("make fails for good", RunState.FAILED, (S.FAILED, S.CANCELLED), 0),
        ("make fails at every attempt", RunState.FAILED, (S.FAILED, S.CANCELLED), 3),
        ("make times out", RunState.FAILED, (S.FAILED, S.CANCELLED), 10 + 3 + 10),
        ("ship fails for good", RunState.ROLLED_BACK, (S.SUCCEEDED, S.FAILED), 0),
        ("ship times out", RunState.ROLLED_BACK, (S.SUCCEEDED, S.FAILED), 20),
        ("cancelled while ship runs", RunState.CANCELLED, (S.SUCCEEDED, S.CANCELLED), 0),
        ("cancelled with undo while ship runs", RunState.ROLLED_BACK, (S.SUCCEEDED, S.SUCCEEDED), 0),
        ("the run times out while ship runs", RunState.ROLLED_BACK, (S.SUCCEEDED, S.SUCCEEDED), 3600),
        ("cancelled while the run is idle", RunState.CANCELLED, (S.CANCELLED, S.CANCELLED), 0),
        ("the run times out while the run is queued", RunState.FAILED, (S.CANCELLED, S.CANCELLED), 3600),
    ],
)
def test_one_deviation_at_every_point(path: str, state: RunState, states: tuple[S, ...], seconds: int) -> None:
    ending = ends(walked(TWO))[path]
    assert (ending.state, ending.states, ending.elapsed) == (state, states, seconds * SECOND)


def test_a_lease_that_is_lost_ends_at_the_cap() -> None:
    ending = ends(walked(TWO))["make loses its workers"]
    assert ending.state is RunState.FAILED
    assert ending.elapsed > 2 * 30 * SECOND


def test_a_hook_that_fails_leaves_the_rollback_partial() -> None:
    ending = ends(walked(TWO))["ship fails for good, then undo:make times out"]
    assert (ending.state, ending.rollback, ending.left) == (RunState.FAILED, Rollback.PARTIAL, ("make",))
    assert ending.hooks_failed == ("make",)
    assert ending.elapsed == (5 + 1 + 5) * SECOND


def test_a_cancel_during_a_rollback_changes_nothing() -> None:
    ending = ends(walked(TWO))["ship fails for good, then cancelled while the run is compensating"]
    assert (ending.state, ending.undone) == (RunState.ROLLED_BACK, ("make",))


def test_what_is_in_flight_when_the_run_stops_finishes_or_stops_or_is_fenced_off() -> None:
    found = ends(walked(TWO))
    head = "the run times out while make runs"
    assert found[head].states[0] is S.SUCCEEDED
    assert found[head].undone == ("make",)
    assert found[f"{head}, then what is in flight stops when told"].in_doubt == ("make",)
    fenced = found[f"{head}, then what is in flight is fenced off"]
    assert (fenced.states[0], fenced.elapsed) == (S.CANCELLED, 3630 * SECOND)


def test_a_step_fails_while_its_neighbours_are_in_flight() -> None:
    text = """
workflow: side-by-side
timeout: 1h
on_failure: compensate
steps:
  - {name: left, uses: a.x, undo: a.y, depends_on: []}
  - {name: right, uses: a.x, undo: a.y, depends_on: []}
"""
    found = ends(walked(text))
    assert found["right fails for good"].undone == ("left",), "a late success is undone, too"
    assert found["left fails for good"].undone == ("right",)
    assert found["left fails for good, then what is in flight stops when told"].in_doubt == ("right",)


def test_people_messages_and_hands_take_every_way() -> None:
    text = """
workflow: waits
timeout: 30d
steps:
  - {name: gate, approval: {deadline: 1h}}
  - {name: news, wait: {event: paid, deadline: 2h}}
  - {name: hand, uses: a.x, completion: {mode: manual, deadline: 3h}}
"""
    found = ends(walked(text))
    hour = 3600 * SECOND
    assert (found["gate is rejected"].state, found["gate is rejected"].elapsed) == (RunState.FAILED, 0)
    assert (found["gate is not decided"].state, found["gate is not decided"].elapsed) == (RunState.FAILED, hour)
    assert found["nothing arrives for news"].elapsed == 2 * hour
    assert found["hand is not completed"].elapsed == 3 * hour
    assert found["hand is completed as Failed"].state is RunState.FAILED
    assert found["hand is completed as Cancelled"].states == (S.SUCCEEDED, S.SUCCEEDED, S.CANCELLED)


def test_a_condition_that_reads_outputs_or_input_goes_both_ways() -> None:
    text = """
workflow: branch
timeout: 1h
steps:
  - {name: look, uses: a.x}
  - {name: act, uses: a.x, if: "${{ steps.look.output.wanted }}"}
  - {name: tell, uses: a.x, if: "${{ input.loud }}"}
"""
    found = ends(walked(text))
    assert found["all goes well"].states == (S.SUCCEEDED, S.SUCCEEDED, S.SUCCEEDED)
    assert found["the condition of act is false"].states == (S.SUCCEEDED, S.SKIPPED, S.SUCCEEDED)
    assert found["the condition of act cannot be evaluated"].state is RunState.FAILED
    assert found["the condition of tell is false"].states[2] is S.SKIPPED
    given = ends(walked(text, given=b'{"loud": false}'))
    assert given["all goes well"].states[2] is S.SKIPPED, "an input that is known decides"
    assert "the condition of tell is false" not in given


def test_a_condition_on_states_alone_is_evaluated() -> None:
    text = """
workflow: states
timeout: 1h
steps:
  - {name: look, uses: a.x, on_failure: skip}
  - name: mend
    uses: a.x
    if: ${{ steps.look.state == "skipped" }}
    depends_on: [{step: look, allow: [skipped]}]
"""
    found = ends(walked(text))
    assert found["all goes well"].states == (S.SUCCEEDED, S.SKIPPED)
    assert found["look fails for good"].states == (S.SKIPPED, S.SUCCEEDED)
    assert not [path for path in found if "condition" in path]


def test_rules_of_steps_and_of_the_run_fail() -> None:
    text = """
workflow: ruled
timeout: 1h
steps: [{name: a, uses: a.x, rules: ["${{ output.ok }}"]}]
rules: ["${{ steps.a.output.fine }}"]
"""
    found = ends(walked(text))
    assert found["a breaks its rules"].states == (S.FAILED,)
    assert (found["the run breaks its rules"].state, found["the run breaks its rules"].states) == (
        RunState.FAILED,
        (S.SUCCEEDED,),
    )
    assert found["the run loses the workers that judge its rules"].state is RunState.FAILED


def test_everything_may_take_as_long_as_it_may() -> None:
    report = walked(TWO)
    slow = ends(report)["everything takes as long as it may"]
    assert (slow.state, slow.elapsed) == (RunState.SUCCEEDED, (10 + 3 + 10 + 20) * SECOND)
    assert report.longest.elapsed >= (3600 + 5 + 1 + 5) * SECOND, "the run's timeout, then the slowest rollback"


def test_pairs_are_walked_on_request() -> None:
    text = """
workflow: tolerant
timeout: 1h
steps:
  - {name: a, uses: a.x, on_failure: skip}
  - {name: b, uses: a.x, on_failure: skip}
"""
    both = "a fails for good, then b fails for good"
    assert both not in ends(walked(text))
    assert ends(walked(text, pairs=True))[both].states == (S.SKIPPED, S.SKIPPED)


def test_equal_states_are_walked_once_and_end_alike() -> None:
    found = ends(walked(TWO))
    one, other = found["ship fails for good"], found["ship times out"]
    assert (one.state, one.states, one.undone) == (other.state, other.states, other.undone)
    assert other.elapsed - one.elapsed == 20 * SECOND


def test_the_same_definition_gives_the_same_report() -> None:
    assert walked(TWO).plain() == walked(TWO).plain()


def chain(length: int) -> Definition:
    steps = [
        StepDefinition(
            name=f"s{no:04}",
            order=no,
            executor=Handler(name="x"),
            depends_on=(Dependency(step=f"s{no - 1:04}"),) if no else (),
            undo=Undo(executor=Handler(name="y")),
            effect=Effect.WRITE,
            on_failure=OnFailure.COMPENSATE,
        )
        for no in range(length)
    ]
    return Definition(name="long", version=1, steps=tuple(steps), timeout=3600 * SECOND)


def test_more_paths_than_are_wanted_become_a_sample_that_says_so() -> None:
    whole, sample = simulate(chain(6)), simulate(chain(6), max_paths=20)
    assert whole.unwalked == 0
    assert len(sample.endings) <= 22
    assert sample.unwalked > 0
    touched = {what.step for ending in sample.endings for what in ending.deviations if what.step}
    assert len(touched) >= 4, "an even sample, not a beginning"


@pytest.mark.parametrize(("steps", "paths"), [(50, 120), in_proof(1_000, MAX_PATHS)])
def test_many_steps_are_walked_in_bounded_time(steps: int, paths: int) -> None:
    told: list[tuple[int, int]] = []
    report = simulate(chain(steps), max_paths=paths, progress=lambda done, total: told.append((done, total)))
    assert len(report.endings) > 100
    assert report.unwalked > 0
    assert told


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    report = walked(TWO, progress=lambda done, total: told.append((done, total)))
    assert len(told) == len(report.endings) - 2
    assert all(done <= total for done, total in told)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_path_of_every_example_ends_or_waits(file: Path) -> None:
    report = simulate(load_file(file))
    assert report.endings[0].state is RunState.SUCCEEDED
    for ending in report.endings:
        assert ending.ended or ending.waits, ending.path


def test_a_map_and_a_loop_are_walked_with_two_elements_and_named() -> None:
    text = """
workflow: many
timeout: 1h
on_failure: compensate
steps:
  - {name: each, uses: a.make, timeout: 10s, undo: a.unmake, map: "${{ input.list }}", retry: {max_attempts: 1}}
  - {name: again, uses: a.look, timeout: 10s, effect: read, repeat: {until: "${{ last.done }}", max: 9, pause: 1s}}
"""
    report = walked(text)
    found = ends(report)
    assert report.bounded == ("each", "again")
    assert found["all goes well"].state is RunState.SUCCEEDED
    failed = found["each[1] fails for good"]
    assert (failed.state, failed.undone) == (RunState.ROLLED_BACK, ("each",))
    assert found["again[1] fails for good"].state is RunState.ROLLED_BACK


def test_every_case_of_a_choice_is_walked_and_its_failures_too() -> None:
    text = """
workflow: pay
timeout: 1h
on_failure: compensate
steps:
  - name: pay
    switch:
      - {name: one, if: "${{ input.n == 1 }}", uses: a.one, timeout: 10s, undo: a.back, retry: {max_attempts: 1}}
      - {name: two, if: "${{ input.n == 2 }}", uses: a.two, timeout: 10s, undo: a.back, retry: {max_attempts: 1}}
      - {name: three, if: "${{ input.n == 3 }}", uses: a.three, timeout: 10s, effect: read, retry: {max_attempts: 1}}
  - {name: after, uses: a.after, timeout: 10s, effect: read, retry: {max_attempts: 1}}
"""
    report = walked(text)
    found = ends(report)
    assert report.bounded == ()
    for path in ("all goes well", "pay takes two", "pay takes three"):
        assert found[path].state is RunState.SUCCEEDED
    assert found["no condition of pay holds"].state is RunState.FAILED
    assert found["a condition of pay cannot be evaluated"].state is RunState.FAILED
    assert found["after fails for good"].undone == ("pay",)
    failures = [path for path in found if "takes three" in path and "pay[2] fails for good" in path]
    assert failures


def test_a_flow_is_walked_as_one_step_and_the_report_says_so() -> None:
    report = walked("workflow: w\nsteps:\n  - {name: a, uses: order, flow: {max_calls: 5}}\n")
    said = [found.message for found in report.findings if found.kind is Kind.NOT_WALKED]
    assert said == ["a is a flow: its calls are known only while it runs, and are not walked here."]
    assert {ending.state for ending in report.endings} >= {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}
