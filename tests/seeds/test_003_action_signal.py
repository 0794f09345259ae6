"""Seed 003 §3.3: the manual completion signal, from its payload to the action's end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.action_stage import Stage, compensated, sequence, stage_on

from stepkeep.dialects.action.signal import read_signal
from stepkeep.kernel.errors import Conflict, InvalidInput, NotAllowed, NotFound


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A run whose first action waits for its manual completion."""
    with stage_on(f"sqlite:///{tmp_path}/stepkeep.db") as opened:
        opened.start(*sequence("a", "b", a={"completionMode": "ManualOnly"}), capabilities=compensated("a"))
        yield opened


@pytest.mark.parametrize("outcome", ["Succeeded", "Failed", "Cancelled"])
def test_2_rule_4_a_valid_signal_ends_the_wait_as_it_says(stage: Stage, outcome: str) -> None:
    stage.finish("a")
    assert not stage.signal(stage.payload("a", outcome)).repeated
    assert stage.states("a") == ["Pending", "Running", "WaitingForManualCompletion", outcome]


def test_a_signal_that_says_failed_fails_the_run_and_is_not_retried(stage: Stage) -> None:
    stage.finish("a")
    stage.signal(stage.payload("a", "Failed", notes="the robot stopped"))
    assert stage.last() == {"a": "Failed", "b": "Cancelled"}
    assert stage.status == "Failed"
    assert "the robot stopped" in stage.view()["actions"][0]["error"]["message"]


@pytest.mark.parametrize("outcome", ["Succeeded", "Failed", "Cancelled"])
def test_a_signal_is_accepted_only_while_the_action_waits_for_it(stage: Stage, outcome: str) -> None:
    with pytest.raises(Conflict):
        stage.signal(stage.payload("a", outcome))
    stage.claim("a")
    with pytest.raises(Conflict):
        stage.signal(stage.payload("a", outcome))
    assert stage.last() == {"a": "Running", "b": "Pending"}


def test_an_action_that_completes_by_itself_takes_no_signal(stage: Stage) -> None:
    stage.finish("a")
    stage.signal(stage.payload("a"))
    stage.claim("b")
    with pytest.raises(Conflict):
        stage.signal(stage.payload("b"))
    assert stage.last()["b"] == "Running"


def test_the_token_must_match_the_one_that_is_open(stage: Stage) -> None:
    stage.finish("a")
    with pytest.raises(Conflict, match="token"):
        stage.signal(stage.payload("a", completionToken="another"))
    assert stage.last()["a"] == "WaitingForManualCompletion"


def test_3_3_policy_is_asked_before_a_signal_is_accepted(database_url: str) -> None:
    """ "SoD/policy checks must run before accepting the signal transition"; the state and the token stay."""
    closed = {"policy": "p", "rules": [{"name": "closed", "then": "deny", "reason": "The books are closed."}]}
    opened = {"policy": "p", "rules": [{"name": "open", "then": "allow"}]}
    with stage_on(database_url) as stage:
        stage.start(*sequence("a", "b", a={"completionMode": "ManualOnly"}), capabilities=compensated("a"))
        stage.finish("a")
        for outcome in ("Succeeded", "Failed", "Cancelled"):
            stage.govern(closed)
            with pytest.raises(NotAllowed, match="denied by the rule closed of policy revision"):
                stage.signal(stage.payload("a", outcome))
        assert stage.last()["a"] == "WaitingForManualCompletion"
        stage.govern(opened)
        stage.signal(stage.payload("a"))
        assert stage.last()["a"] == "Succeeded"


def test_the_same_signal_again_changes_nothing_and_is_no_error(stage: Stage) -> None:
    """Idempotent on (runId, actionId, completionToken)."""
    stage.finish("a")
    stage.signal(stage.payload("a"))
    before = stage.log()
    assert stage.signal(stage.payload("a", completedAtIso="2026-03-02T00:00:00Z"), by="somebody else").repeated
    assert stage.log() == before


def test_another_outcome_with_a_used_token_is_a_conflict_that_names_the_winner(stage: Stage) -> None:
    stage.finish("a")
    stage.signal(stage.payload("a"), by="dora")
    with pytest.raises(Conflict, match="Succeeded by dora"):
        stage.signal(stage.payload("a", "Cancelled"))
    assert stage.last()["a"] == "Succeeded"


def test_the_actor_is_the_authenticated_one_and_what_the_payload_claims_is_kept_as_a_claim(stage: Stage) -> None:
    stage.finish("a")
    stage.signal(stage.payload("a", notes="done on site", evidenceRefs=["photo-1", "photo-2"]), by="dora")
    told = stage.view()["actions"][0]["manualCompletion"]
    assert told["actorUserId"] == "dora"
    assert told["claim"] == {"actorUserId": "claims-to-be-carl", "completedAtIso": "2026-03-01T12:00:00+01:00"}
    assert (told["notes"], told["evidenceRefs"]) == ("done on site", ["photo-1", "photo-2"])
    assert told["completedAtIso"] != "2026-03-01T12:00:00+01:00"


def test_a_manual_success_counts_as_a_completed_side_effect(stage: Stage) -> None:
    """§4: compensation covers successfully completed actions, however they completed."""
    stage.finish("a")
    stage.signal(stage.payload("a"))
    stage.fail("b")
    assert stage.claim() == ["undo:a"]
    stage.finish("undo:a")


def test_nobody_completes_it_in_time(tmp_path: Path) -> None:
    """Design §3: the deadline fails the action; without one it waits forever."""
    manual = {"completionMode": "ManualOnly", "completionDeadlineMs": 60_000}
    with stage_on(f"sqlite:///{tmp_path}/deadline.db") as stage:
        stage.start(*sequence("a", a=manual)).finish("a").later(59)
        assert stage.last() == {"a": "WaitingForManualCompletion"}
        stage.later(2)
        assert stage.last() == {"a": "Failed"}
        with pytest.raises(Conflict):
            stage.signal(stage.payload("a"))


def test_without_a_deadline_it_waits_for_ever(stage: Stage) -> None:
    stage.finish("a").later(3650 * 86_400)
    assert stage.last()["a"] == "WaitingForManualCompletion"


def test_a_signal_for_a_run_or_an_action_that_is_not_there(stage: Stage) -> None:
    stage.finish("a")
    with pytest.raises(NotFound):
        stage.signal(stage.payload("nobody"))
    with pytest.raises(NotFound):
        stage.signal(stage.payload("a", runId="r-0"))


def test_a_cancelled_run_takes_no_signal(stage: Stage) -> None:
    stage.finish("a").cancel()
    with pytest.raises(Conflict):
        stage.signal(stage.payload("a"))
    assert stage.states("a")[-1] == "Cancelled"


GOOD: dict[str, Any] = {
    "schemaVersion": 1,
    "runId": "r-1",
    "actionId": "a",
    "completionToken": "t",
    "outcome": "Succeeded",
    "actorUserId": "u-1",
    "completedAtIso": "2026-03-01T12:00:00Z",
}


def test_the_optional_fields_may_be_left_out() -> None:
    signal = read_signal(GOOD)
    assert (signal.notes, signal.evidence) == ("", ())
    assert (signal.run_id, signal.step, signal.token, signal.outcome) == ("r-1", "a", "t", "Succeeded")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schemaVersion", 2),
        ("schemaVersion", "1"),
        ("schemaVersion", True),
        ("runId", ""),
        ("runId", 7),
        ("actionId", "no such name"),
        ("completionToken", ""),
        ("completionToken", "x" * 256),
        ("outcome", "succeeded"),
        ("outcome", "Done"),
        ("actorUserId", ""),
        ("actorUserId", None),
        ("completedAtIso", "yesterday"),
        ("completedAtIso", "2026-03-01T12:00:00"),
        ("notes", 3),
        ("notes", "x" * 10_001),
        ("evidenceRefs", "photo-1"),
        ("evidenceRefs", [""]),
        ("evidenceRefs", ["x"] * 101),
        ("robot", "r2"),
    ],
)
def test_a_payload_of_the_wrong_shape_is_refused_by_the_name_of_its_field(key: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=key):
        read_signal(GOOD | {key: value})


def test_everything_wrong_with_a_payload_is_said_at_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_signal({"schemaVersion": 9, "outcome": "Maybe"})
    for key in GOOD:
        assert f"`{key}`" in str(refused.value)


@pytest.mark.parametrize("payload", [None, [], "signal", 1])
def test_what_is_no_object_is_no_signal(payload: Any) -> None:
    with pytest.raises(InvalidInput):
        read_signal(payload)
