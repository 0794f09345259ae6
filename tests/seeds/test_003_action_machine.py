"""Seed 003's machines as data: every arrow of the text, the refinement, and invariants that can fail."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.exploration import refined
from tests.seeds.action_stage import Stage, action, sequence, stage_on

from stepkeep.dialects.action.machine import JUDGED, RUN, STEP
from stepkeep.dialects.projection import Seen

Lines = list[dict[str, Any]]
WAITING = "WaitingForManualCompletion"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(f"sqlite:///{tmp_path}/stepkeep.db") as opened:
        yield opened


# -- the tables ------------------------------------------------------------------------------------------------------
def test_2_the_arrows_of_an_action_are_those_of_the_text() -> None:
    ends = {"Succeeded", "Failed", "Cancelled"}
    assert {(arrow.source, arrow.target) for arrow in STEP.arrows} == {
        (None, "Pending"),
        ("Pending", "Running"),
        *(("Running", end) for end in ends),
        ("Running", WAITING),
        *((WAITING, end) for end in ends),
    }
    assert STEP.terminal == ends


def test_the_arrows_of_a_run_are_those_of_run_v1() -> None:
    table = {
        None: {"Pending"},
        "Pending": {"Running", "Cancelled"},
        "Running": {"Succeeded", "Failed", "Cancelled", "WaitingForApproval", "Paused"},
        "WaitingForApproval": {"Running", "Cancelled"},
        "Paused": {"Running", "Cancelled"},
    }
    assert {(arrow.source, arrow.target) for arrow in RUN.arrows} == {
        (source, target) for source, targets in table.items() for target in targets
    }
    assert RUN.terminal == {"Succeeded", "Failed", "Cancelled"}


@pytest.mark.parametrize("view", [STEP, RUN], ids=["action", "run"])
def test_every_arrow_cites_its_section_and_every_extension_says_why(view: Any) -> None:
    assert all(arrow.cites for arrow in view.arrows)
    assert all(ruled.cites for ruled in view.forbidden)
    assert all(len(extension.reason) > 20 for extension in view.extensions)


def test_whatever_the_engine_does_is_a_legal_arrow_a_stutter_or_a_listed_extension() -> None:
    refinement = refined(JUDGED)
    assert [str(breach) for breach in refinement.breaches] == []
    assert ("Running", "WaitingForApproval") in refinement.shown["run"]
    assert ("Pending", "Cancelled") in refinement.shown["step"]


def test_an_unlisted_and_an_unproduced_extension_would_be_found() -> None:
    """The proof can fail: without a listed extension, and with one too many."""
    from msgspec.structs import replace

    from stepkeep.dialects.machine import Extension

    for extensions, kind in (
        (STEP.extensions[:1], "unlisted"),
        ((*STEP.extensions, Extension("Pending", WAITING, "made up")), "unproduced"),
    ):
        refinement = refined(replace(JUDGED, step=replace(STEP, extensions=extensions)))
        assert kind in {breach.kind for breach in refinement.breaches}


def test_every_status_of_run_v1_is_shown() -> None:
    shown = {target for _, target in refined(JUDGED).shown["run"]}
    assert set(RUN.states) == shown


def test_a_run_that_is_blocked_without_an_approval_stays_running() -> None:
    run = JUDGED.projection()
    for trigger, target in (("created", "idle"), ("started", "queued"), ("progressed", "running")):
        run.feed(Seen("run", "r", None, trigger, target))
    assert run.feed(Seen("run", "r", "running", "waiting", "blocked")) == []
    run.feed(Seen("run", "r", "blocked", "resumed", "running"))
    run.feed(Seen("step", "a", "pending", "held", "awaiting_approval"))
    [shown] = run.feed(Seen("run", "r", "running", "waiting", "blocked"))
    assert (shown.source, shown.target, shown.extension) == ("Running", "WaitingForApproval", False)


def test_the_machine_is_plain_data_that_brings_no_front_end_along() -> None:
    code = "import stepkeep.dialects.action.machine, sys; print([m for m in sys.modules if m in ('pydantic', 'apsw')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_question_of_the_design_on_which_this_dialect_has_a_say_is_answered() -> None:
    questions = {default.question for default in JUDGED.defaults}
    assert len(questions) == len(JUDGED.defaults)
    assert questions >= {
        "What does the limit count?",
        "Backoff",
        "Policy denial",
        "Full rollback ends as",
        "When does rollback start?",
        "What is a side effect?",
        "May a sequence go on after a failure?",
        "Is a skipped dependency satisfied?",
        "Manual completion is terminal?",
    }
    assert all(default.answer and default.cites for default in JUDGED.defaults)


# -- invariants ------------------------------------------------------------------------------------------------------
def judge(lines: Lines, name: str) -> list[str]:
    """What one invariant has to say about a log."""
    [invariant] = [each for each in JUDGED.invariants if each.name == name]
    said: list[str] = []
    feed = invariant.check(said.append)
    for line in lines:
        feed(line)
    return said


def real_log(stage: Stage) -> Lines:
    """A diamond with a manual action, a failure at the join and one action that never ran."""
    manual = action("b", 2, "a", completionMode="ManualOnly")
    stage.start(action("a", 1), manual, action("c", 3, "a"), action("d", 4, "b", "c"), action("e", 5, "d"))
    stage.finish("a")
    stage.claim("b", "c")
    stage.finish("b", "c")
    stage.signal(stage.payload("b"))
    stage.fail("d")
    return stage.log()


def at(lines: Lines, step: str | None, target: str) -> int:
    """Where the log tells of this transition."""
    kind = "run_state_transition" if step is None else "action_state_transition"
    return next(
        place
        for place, line in enumerate(lines)
        if line["event_type"] == kind and line["to_state"] == target and line["metadata"].get("step") == step
    )


def _start_before_a_predecessor(lines: Lines) -> None:
    lines.insert(at(lines, "c", "Running"), lines.pop(at(lines, "d", "Running")))


def _start_after_a_cancelled_predecessor(lines: Lines) -> None:
    lines[at(lines, "c", "Succeeded")]["to_state"] = "Cancelled"


def _later_order_first(lines: Lines) -> None:
    first, second = at(lines, "b", "Running"), at(lines, "c", "Running")
    assert lines[first]["metadata"]["seq"] == lines[second]["metadata"]["seq"]
    lines[first], lines[second] = lines[second], lines[first]


def _start_after_a_failure(lines: Lines) -> None:
    lines[at(lines, "e", "Cancelled")]["to_state"] = "Running"


def _wait_of_an_automatic_action(lines: Lines) -> None:
    lines[at(lines, "c", "Succeeded")]["to_state"] = WAITING


def _manual_success_without_its_wait(lines: Lines) -> None:
    del lines[at(lines, "b", WAITING)]
    lines[at(lines, "b", "Succeeded")]["from_state"] = "Running"


def _success_without_a_signal(lines: Lines) -> None:
    lines[at(lines, "b", "Succeeded")]["metadata"]["event"] = "step_reported"


def _success_by_a_deadline(lines: Lines) -> None:
    lines[at(lines, "b", "Succeeded")]["metadata"] |= {"event": "time_came", "because": "deadline_passed"}


def _too_many_attempts(lines: Lines) -> None:
    lines[at(lines, "d", "Failed")]["metadata"]["attempt"] = 4


def _too_generous_a_limit(lines: Lines) -> None:
    lines[at(lines, "d", "Pending")]["metadata"]["max_attempts"] = 11


def _an_open_action_at_the_end(lines: Lines) -> None:
    del lines[at(lines, "e", "Cancelled")]


def _success_in_spite_of_a_failure(lines: Lines) -> None:
    lines[at(lines, None, "Failed")]["to_state"] = "Succeeded"


def _no_correlation(lines: Lines) -> None:
    del lines[3]["metadata"]["correlation_id"]


def _no_error_class(lines: Lines) -> None:
    del lines[at(lines, "d", "Failed")]["metadata"]["category"]


def _no_attempt(lines: Lines) -> None:
    del lines[at(lines, "d", "Failed")]["metadata"]["attempt"]


def _start_before_the_run(lines: Lines) -> None:
    lines.insert(at(lines, None, "Running"), lines.pop(at(lines, "a", "Running")))


def _a_late_signal(lines: Lines) -> None:
    lines[at(lines, "b", WAITING)]["metadata"]["due_at"] = lines[at(lines, "b", "Succeeded")]["metadata"]["at"]


def _an_early_deadline(lines: Lines) -> None:
    said = lines[at(lines, "b", "Succeeded")]["metadata"]
    lines[at(lines, "b", WAITING)]["metadata"]["due_at"] = said["at"] + 1
    said |= {"event": "time_came", "because": "deadline_passed"}


LIES: list[tuple[str, Callable[[Lines], None]]] = [
    ("predecessors first", _start_before_a_predecessor),
    ("predecessors first", _start_after_a_cancelled_predecessor),
    ("deterministic dispatch", _later_order_first),
    ("fail-fast", _start_after_a_failure),
    ("a run starts first", _start_before_the_run),
    ("signals in time", _a_late_signal),
    ("waits until their end", _an_early_deadline),
    ("manual completion", _wait_of_an_automatic_action),
    ("manual completion", _manual_success_without_its_wait),
    ("manual signal", _success_without_a_signal),
    ("manual signal", _success_by_a_deadline),
    ("bounded attempts", _too_many_attempts),
    ("bounded attempts", _too_generous_a_limit),
    ("endings agree", _an_open_action_at_the_end),
    ("endings agree", _success_in_spite_of_a_failure),
    ("evidence", _no_correlation),
    ("evidence", _no_error_class),
    ("evidence", _no_attempt),
]


def test_every_invariant_cites_its_section_and_has_a_lie_that_it_finds() -> None:
    assert {name for name, _ in LIES} == {invariant.name for invariant in JUDGED.invariants}
    assert all(invariant.cites.startswith("003 §") for invariant in JUDGED.invariants)


@pytest.mark.parametrize(("name", "lie"), LIES, ids=[lie.__name__.strip("_") for _, lie in LIES])
def test_an_invariant_holds_of_a_real_log_and_finds_a_planted_violation(
    stage: Stage, name: str, lie: Callable[[Lines], None]
) -> None:
    lines = real_log(stage)
    assert judge(lines, name) == []
    told = copy.deepcopy(lines)
    lie(told)
    assert judge(told, name)


def test_in_a_sequence_a_cancelled_predecessor_is_no_violation(stage: Stage) -> None:
    """§1.1: any terminal state lets the next action go on."""
    stage.start(*sequence("a", "b", a={"completionMode": "ManualOnly"})).finish("a")
    stage.signal(stage.payload("a", "Cancelled"))
    stage.finish("b")
    assert judge(stage.log(), "predecessors first") == []


def test_a_deadline_and_a_cancel_may_end_a_manual_wait_without_a_signal(stage: Stage) -> None:
    stage.start(*sequence("a", a={"completionMode": "ManualOnly", "completionDeadlineMs": 1000}))
    stage.finish("a").later(2)
    assert judge(stage.log(), "manual signal") == []
    stage.start(*sequence("a", a={"completionMode": "ManualOnly"}), version=2).finish("a").cancel()
    assert judge(stage.log(), "manual signal") == []
