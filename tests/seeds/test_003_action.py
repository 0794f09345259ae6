"""Seed 003 on the real engine: graph semantics, lifecycle, retries, timeouts, manual completion, compensation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.seeds.action_stage import (
    Stage,
    action,
    built,
    compensated,
    document,
    sequence,
    side_effect,
    stage_on,
)
from tests.workbench import SECOND, task

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import Conflict, NotAllowed
from stepkeep.kernel.plan import laid_out
from stepkeep.worker.context import Context


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(f"sqlite:///{tmp_path}/stepkeep.db") as opened:
        yield opened


DIAMOND = (
    action("a", 1),
    action("b", 2, "a"),
    action("c", 3, "a"),
    action("d", 4, "b", "c"),
)


# -- §1.1 sequential baseline ----------------------------------------------------------------------------------------
def test_1_1_without_branch_metadata_actions_run_one_after_the_other_by_order(stage: Stage) -> None:
    stage.start(*sequence("c", "a", "b"))
    for name in ("c", "a", "b"):
        assert stage.claim() == [name]
        stage.finish(name)
    assert stage.status == "Succeeded"


@pytest.mark.parametrize("outcome", ["Succeeded", "Cancelled"])
def test_1_1_the_next_action_is_eligible_after_any_terminal_state(stage: Stage, outcome: str) -> None:
    stage.start(*sequence("a", "b", a={"completionMode": "ManualOnly"}))
    stage.finish("a")
    assert stage.claim() == []
    stage.signal(stage.payload("a", outcome))
    assert stage.claim() == ["b"]
    stage.finish("b")
    assert stage.last() == {"a": outcome, "b": "Succeeded"}
    assert stage.status == "Succeeded"


def test_1_1_a_failed_action_makes_no_next_one_eligible_because_fail_fast_comes_first(stage: Stage) -> None:
    stage.start(*sequence("a", "b")).fail("a")
    assert stage.claim() == []
    assert stage.last() == {"a": "Failed", "b": "Cancelled"}


# -- §1.2 parallel branches ------------------------------------------------------------------------------------------
def test_1_2_branches_run_side_by_side_and_the_join_waits_for_all_of_them(stage: Stage) -> None:
    stage.start(*DIAMOND)
    stage.finish("a")
    assert stage.claim() == ["b", "c"]
    stage.finish("c")
    assert stage.claim() == []
    stage.finish("b")
    assert stage.claim() == ["d"]
    stage.finish("d")
    assert stage.status == "Succeeded"


def test_1_2_edges_say_the_same_as_depends_on() -> None:
    bare = [action(each["actionId"], each["order"]) for each in DIAMOND]
    edges = [{"from": "a", "to": "b"}, {"from": "a", "to": "c"}, {"from": "b", "to": "d"}, {"from": "c", "to": "d"}]
    assert built(document(*bare, edges=edges)).steps == built(document(*DIAMOND)).steps


def test_1_2_runnable_actions_are_dispatched_by_order(stage: Stage) -> None:
    names = ["z", "m", "a", "q", "b"]
    stage.start(action("root", 1, dependsOn=[]), *(action(name, 2 + n, "root") for n, name in enumerate(names)))
    stage.finish("root")
    assert stage.claim() == names


def test_1_2_the_action_id_breaks_ties() -> None:
    """WorkflowV1 numbers are unique, so only the canonical definition can hold a tie."""
    tied = Definition(name="w", version=1, steps=(task("b", 1), task("a", 1), task("c", 0)))
    assert [step.name for step in laid_out(tied)] == ["c", "a", "b"]


def test_1_2_a_join_never_starts_after_a_predecessor_that_did_not_succeed(stage: Stage) -> None:
    manual = action("b", 2, "a", completionMode="ManualOnly")
    stage.start(DIAMOND[0], manual, DIAMOND[2], DIAMOND[3])
    stage.finish("a", "b", "c")
    stage.signal(stage.payload("b", "Cancelled"))
    assert stage.claim() == []
    assert stage.last() == {"a": "Succeeded", "b": "Cancelled", "c": "Succeeded", "d": "Cancelled"}
    assert stage.status == "Succeeded"
    assert stage.extensions() == {("Pending", "Cancelled")}


# -- §1.3 failure across branches ------------------------------------------------------------------------------------
def test_1_3_a_failure_schedules_nothing_new_and_lets_what_runs_finish(stage: Stage) -> None:
    stage.start(*DIAMOND)
    stage.finish("a")
    stage.claim("b", "c")
    stage.fail("b")
    assert stage.last() == {"a": "Succeeded", "b": "Failed", "c": "Running", "d": "Cancelled"}
    assert stage.status == "Running"
    stage.finish("c")
    assert stage.last()["c"] == "Succeeded"
    assert stage.status == "Failed"


def test_1_3_what_runs_too_long_after_a_failure_is_cancelled(stage: Stage) -> None:
    stage.start(*DIAMOND)
    stage.finish("a")
    stage.claim("b", "c")
    stage.fail("b").later(31)
    assert stage.last()["c"] == "Cancelled"
    assert stage.status == "Failed"


def test_1_3_a_retryable_failure_does_not_stop_the_others(stage: Stage) -> None:
    stage.start(*DIAMOND)
    stage.finish("a")
    stage.claim("b", "c")
    stage.fail("b", "transient").finish("c")
    assert stage.status == "Running"
    stage.later(1).finish("b", "d")
    assert stage.status == "Succeeded"


# -- §2 lifecycle ----------------------------------------------------------------------------------------------------
def test_2_an_action_goes_from_pending_by_running_to_its_end(stage: Stage) -> None:
    stage.start(*sequence("a"))
    assert stage.states("a") == ["Pending"]
    stage.claim("a")
    assert stage.states("a") == ["Pending", "Running"]
    stage.finish("a")
    assert stage.states("a") == ["Pending", "Running", "Succeeded"]
    assert stage.run() == ["Pending", "Running", "Succeeded"]


def test_2_a_retry_is_no_way_back_to_pending(stage: Stage) -> None:
    stage.start(*sequence("a"))
    stage.fail("a", "transient")
    assert stage.last() == {"a": "Running"}
    stage.later(1).fail("a", "transient").later(2).finish("a")
    assert stage.states("a") == ["Pending", "Running", "Succeeded"]


def test_2_a_lost_lease_is_no_way_back_either(stage: Stage) -> None:
    stage.start(*sequence("a"))
    stage.claim("a", lease=SECOND)
    stage.later(2)
    assert stage.claim() == ["a"]
    stage.finish("a")
    assert stage.states("a") == ["Pending", "Running", "Succeeded"]
    assert [each["outcome"] for each in stage.view()["actions"][0]["attempts"]] == ["lost", "Succeeded"]


def test_2_cancelling_the_run_cancels_what_runs_and_what_has_not_begun(stage: Stage) -> None:
    stage.start(*sequence("a", "b"))
    stage.claim("a")
    stage.cancel()
    assert (stage.states("a"), stage.states("b")) == (["Pending", "Running", "Cancelled"], ["Pending", "Cancelled"])
    assert stage.run() == ["Pending", "Running", "Cancelled"]


def test_2_only_a_manual_action_waits_for_manual_completion(stage: Stage) -> None:
    stage.start(*sequence("a", "b", a={"completionMode": "ManualOnly"}))
    stage.finish("a")
    assert stage.last() == {"a": "WaitingForManualCompletion", "b": "Pending"}
    stage.signal(stage.payload("a"))
    stage.finish("b")
    assert stage.states("a") == ["Pending", "Running", "WaitingForManualCompletion", "Succeeded"]
    assert stage.states("b") == ["Pending", "Running", "Succeeded"]


# -- §3.1 retry ------------------------------------------------------------------------------------------------------
def test_3_1_three_attempts_with_doubling_delays_are_the_default(stage: Stage) -> None:
    stage.start(*sequence("a"))
    stage.fail("a", "transient").later(0.9)
    assert stage.claim() == []
    stage.later(0.1).fail("a", "transient").later(1.9)
    assert stage.claim() == []
    stage.later(0.1).fail("a", "transient")
    assert stage.last() == {"a": "Failed"}
    assert [each["attempt"] for each in stage.view()["actions"][0]["attempts"]] == [1, 2, 3]


def test_3_1_one_attempt_means_no_retry(stage: Stage) -> None:
    stage.start(*sequence("a", a={"retryPolicy": {"maxAttempts": 1}})).fail("a", "transient")
    assert stage.last() == {"a": "Failed"}


def test_3_1_the_delay_is_multiplied_and_capped(stage: Stage) -> None:
    policy = {"maxAttempts": 5, "initialBackoffMs": 100, "backoffMultiplier": 10, "maxBackoffMs": 3000}
    stage.start(*sequence("a", a={"retryPolicy": policy}))
    for delay in (0.1, 1.0, 3.0, 3.0):
        stage.fail("a", "transient").later(delay - 0.08)
        assert stage.claim() == []
        stage.later(0.08)
    stage.finish("a")
    assert stage.status == "Succeeded"


@pytest.mark.parametrize("category", ["transient", "external", "timeout", "unknown"])
def test_3_1_timeouts_rate_limits_5xx_transport_and_unknown_errors_are_retried(stage: Stage, category: str) -> None:
    stage.start(*sequence("a")).fail("a", category)
    assert stage.last() == {"a": "Running"}
    stage.later(1).finish("a")
    assert stage.status == "Succeeded"


@pytest.mark.parametrize("category", ["validation", "governance", "auth", "conflict"])
def test_3_1_validation_policy_auth_and_business_conflicts_are_never_retried(stage: Stage, category: str) -> None:
    stage.start(*sequence("a", a={"retryPolicy": {"maxAttempts": 10}})).fail("a", category)
    assert stage.last() == {"a": "Failed"}
    assert len(stage.view()["actions"][0]["attempts"]) == 1


def test_3_1_only_listed_error_classes_are_retried_and_unknown_ones_always(stage: Stage) -> None:
    policy = {"retryPolicy": {"retryableErrors": ["timeout"]}}
    stage.start(action("a", 1, dependsOn=[], **policy), action("b", 2, **policy), action("c", 3, **policy))
    stage.claim("a", "b", "c")
    stage.time_out("a").fail("b", "unknown")
    assert stage.last() == {"a": "Running", "b": "Running", "c": "Running"}
    stage.fail("c", "transient")
    assert stage.last()["c"] == "Failed"


CLASSES = ("rate_limit", "5xx", "transport")


@pytest.mark.parametrize("listed", [*((one,) for one in CLASSES), ("rate_limit", "transport"), CLASSES])
@pytest.mark.parametrize("happened", CLASSES)
def test_3_1_rate_limit_5xx_and_transport_are_told_apart(stage: Stage, listed: tuple[str, ...], happened: str) -> None:
    stage.start(*sequence("a", a={"retryPolicy": {"retryableErrors": list(listed)}}))
    stage.fail("a", "transient", error_class=happened)
    assert stage.last() == {"a": "Running" if happened in listed else "Failed"}
    if happened in listed:
        stage.later(1).finish("a")
        assert stage.status == "Succeeded"


def test_3_1_a_transient_failure_of_no_known_class_is_retried_where_any_is_listed(stage: Stage) -> None:
    stage.start(*sequence("a", a={"retryPolicy": {"retryableErrors": ["5xx"]}})).fail("a", "transient")
    assert stage.last() == {"a": "Running"}


# -- §3.2 timeout ----------------------------------------------------------------------------------------------------
def test_3_2_a_timeout_is_retried_and_fails_the_action_when_attempts_are_exhausted(stage: Stage) -> None:
    stage.start(*sequence("a", a={"retryPolicy": {"maxAttempts": 2}}))
    stage.time_out("a")
    assert stage.last() == {"a": "Running"}
    stage.later(1).time_out("a")
    assert stage.last() == {"a": "Failed"}
    told = stage.view()["actions"][0]
    assert [each["outcome"] for each in told["attempts"]] == ["timeout", "timeout"]
    assert told["error"]["class"] == "timeout"


def test_3_2_an_attempt_may_take_five_minutes_unless_it_says_otherwise(stage: Stage) -> None:
    stage.start(*sequence("a", "b", b={"timeoutMs": 1500}))
    assert stage.held("a").planned.timeout == 300 * SECOND
    stage.finish("a")
    assert stage.held("b").planned.timeout == 1_500_000
    stage.finish("b")


# -- tiers -----------------------------------------------------------------------------------------------------------
def test_a_human_approve_action_is_held_until_somebody_approves_it(stage: Stage) -> None:
    """ExecutionTier HumanApprove; RunV1 Running → WaitingForApproval → Running."""
    stage.start(*sequence("a", "b", b={"executionTierOverride": "HumanApprove"}))
    stage.finish("a")
    assert stage.claim() == []
    assert stage.run() == ["Pending", "Running", "WaitingForApproval"]
    assert stage.view()["controlState"] == "waiting"
    stage.decide("b")
    assert stage.status == "Running"
    stage.finish("b")
    assert stage.states("b") == ["Pending", "Running", "Succeeded"]
    assert stage.status == "Succeeded"


def test_a_rejected_action_fails_without_an_attempt_and_is_never_retried(stage: Stage) -> None:
    """RunV1 has no WaitingForApproval → Failed; the decision resumes the run first."""
    stage.start(*sequence("a", "b", a={"executionTierOverride": "HumanApprove"}))
    stage.decide("a", approve=False, comment="not this quarter")
    assert stage.last() == {"a": "Failed", "b": "Cancelled"}
    assert stage.run() == ["Pending", "Running", "WaitingForApproval", "Running", "Failed"]
    told = stage.view()["actions"][0]
    assert told["attempts"] == []
    assert told["error"]["class"] == "policy_deny"
    assert told["approval"]["decidedByUserId"] == "bea"
    assert told["approval"]["rationale"] == "not this quarter"


def test_nobody_decides_in_time(stage: Stage) -> None:
    keys = {"executionTierOverride": "HumanApprove", "approvalDeadlineMs": 60_000}
    stage.start(*sequence("a", a=keys)).later(61)
    assert (stage.last(), stage.status) == ({"a": "Failed"}, "Failed")


CHAIN = [{"user": "bea", "afterHours": 2}, {"user": "cyd", "afterHours": 6}]
ESCALATES = {"executionTierOverride": "HumanApprove", "approvalAssignee": "ann", "approvalEscalation": CHAIN}


def test_an_approval_goes_up_its_escalation_chain_and_the_next_user_may_decide(stage: Stage) -> None:
    """ApprovalV1, escalation chain."""
    stage.start(*sequence("a", a=ESCALATES))
    with pytest.raises(NotAllowed):
        stage.decide("a")
    stage.later(2 * 3600 + 1)
    stage.decide("a")
    stage.finish("a")
    assert stage.status == "Succeeded"


def test_an_approval_expires_four_hours_after_the_last_step_of_its_chain(stage: Stage) -> None:
    stage.start(*sequence("a", a=ESCALATES))
    for hours in (2, 4, 3.9):
        stage.later(hours * 3600 + 1)
        assert stage.status == "WaitingForApproval"
    stage.later(0.2 * 3600)
    assert (stage.last(), stage.status) == ({"a": "Failed"}, "Failed")


def test_a_run_that_waits_for_approval_can_be_cancelled(stage: Stage) -> None:
    stage.start(*sequence("a", a={"executionTierOverride": "HumanApprove"})).cancel()
    assert stage.run() == ["Pending", "Running", "WaitingForApproval", "Cancelled"]


def test_a_run_shows_running_while_another_branch_moves_although_an_approval_is_open(stage: Stage) -> None:
    held = action("b", 2, "a", executionTierOverride="HumanApprove")
    stage.start(DIAMOND[0], held, DIAMOND[2], DIAMOND[3])
    stage.finish("a")
    assert stage.status == "Running"
    stage.finish("c")
    assert stage.status == "WaitingForApproval"
    stage.decide("b")
    stage.finish("b", "d")
    assert stage.status == "Succeeded"


def test_a_manual_only_action_is_completed_by_hand_and_its_run_stays_running(stage: Stage) -> None:
    """RunV1 has no status for a manual completion."""
    stage.start(*sequence("a"), executionTier="ManualOnly")
    stage.finish("a")
    assert stage.run() == ["Pending", "Running"]
    assert stage.view()["controlState"] == "waiting"
    stage.signal(stage.payload("a"))
    assert stage.run() == ["Pending", "Running", "Succeeded"]
    assert "controlState" not in stage.view()


# -- §4 compensation -------------------------------------------------------------------------------------------------
def test_4_a_failed_run_compensates_in_reverse_order_of_completion(stage: Stage) -> None:
    branches = (action("a", 1, dependsOn=[]), action("b", 2), action("c", 3, "a", "b"), action("d", 4, "c"))
    stage.start(*branches, capabilities=compensated("a", "b", "c"))
    stage.claim("a", "b")
    stage.finish("b", "a", "c").fail("d")
    order = []
    while names := stage.claim():
        assert len(names) == 1, "hooks run one after the other"
        order += names
        stage.finish(*names)
    assert order == ["undo:c", "undo:a", "undo:b"]
    assert stage.run() == ["Pending", "Running", "Failed"]
    told = stage.view()["compensation"]
    assert told["status"] == "complete"
    assert [each["actionId"] for each in told["actions"]] == ["c", "a", "b"]


def test_4_nothing_is_compensated_when_nothing_had_a_side_effect(stage: Stage) -> None:
    stage.start(*sequence("a", "b"), capabilities=compensated("b"))
    stage.finish("a").fail("b")
    assert stage.claim() == []
    assert stage.status == "Failed"
    assert "compensation" not in stage.view()


def test_4_a_run_that_succeeds_compensates_nothing(stage: Stage) -> None:
    stage.start(*sequence("a"), capabilities=compensated("a")).finish("a")
    assert stage.claim() == []
    assert stage.status == "Succeeded"


def test_4_late_successes_are_compensated_too(stage: Stage) -> None:
    stage.start(action("a", 1, dependsOn=[]), action("b", 2), capabilities=compensated("a"))
    stage.claim("a", "b")
    stage.fail("b").finish("a")
    assert stage.claim() == ["undo:a"]
    stage.finish("undo:a")
    assert stage.status == "Failed"


def test_4_a_hook_is_tried_twice_a_second_apart_and_its_failure_skips_no_other(stage: Stage) -> None:
    stage.start(*sequence("a", "b", "c"), capabilities=compensated("a", "b"))
    stage.finish("a", "b").fail("c")
    stage.fail("undo:b", "transient").later(0.9)
    assert stage.claim() == []
    stage.later(0.1).fail("undo:b", "transient", "the ledger is closed")
    stage.finish("undo:a")
    assert stage.status == "Failed"
    told = stage.view()["compensation"]
    assert told["status"] == "partial"
    assert [(each["actionId"], each["outcome"], each["attempts"]) for each in told["actions"]] == [
        ("b", "Failed", 2),
        ("a", "Succeeded", 1),
    ]
    assert told["actions"][0]["error"] == {"class": "transient", "retryable": True, "message": "the ledger is closed"}


def test_4_a_side_effect_without_a_hook_is_recorded_and_the_rest_is_compensated(stage: Stage) -> None:
    capabilities = compensated("a", **{"b:do": side_effect()})
    stage.start(*sequence("a", "b", "c"), capabilities=capabilities)
    stage.finish("a", "b").fail("c").finish("undo:a")
    told = stage.view()
    assert told["status"] == "Failed"
    assert told["compensation"]["notCompensable"] == ["b"]
    assert told["compensation"]["status"] == "partial"
    assert "notCompensable" in {entry["payload"]["kind"] for entry in told["evidence"]}


def test_4_an_effect_that_may_have_happened_and_is_not_compensated_makes_the_summary_partial(stage: Stage) -> None:
    """`b` loses its lease while the run stops: no worker says whether its side effect happened."""
    actions = (action("a", 1, dependsOn=[]), action("b", 2, dependsOn=["a"]), action("c", 3, dependsOn=["a"]))
    stage.start(*actions, capabilities=compensated("a", "b"))
    stage.finish("a")
    stage.claim("b", lease=2 * SECOND)
    stage.fail("c").later(3).finish("undo:a")
    told = stage.view()["compensation"]
    assert [(each["actionId"], each["outcome"]) for each in told["actions"]] == [("a", "Succeeded")]
    assert told["status"] == "partial"


def test_4_a_lone_side_effect_without_a_hook_is_recorded_too(stage: Stage) -> None:
    stage.start(*sequence("a", "b"), capabilities={"a:do": side_effect()})
    stage.finish("a").fail("b")
    assert stage.claim() == []
    assert stage.view()["compensation"] == {"status": "partial", "actions": [], "notCompensable": ["a"]}


def test_4_a_cancelled_run_compensates_only_when_asked_to(stage: Stage) -> None:
    stage.start(*sequence("a", "b"), capabilities=compensated("a"))
    stage.finish("a").cancel()
    assert stage.claim() == []
    assert stage.status == "Cancelled"
    assert "compensation" not in stage.view()


def test_4_a_cancel_with_compensation_ends_failed(stage: Stage) -> None:
    """Design §4: a full rollback shows as failed in this dialect."""
    stage.start(*sequence("a", "b"), capabilities=compensated("a"))
    stage.finish("a").cancel(compensate=True)
    assert stage.status == "Running"
    stage.finish("undo:a")
    assert stage.status == "Failed"
    assert stage.view()["compensation"]["status"] == "complete"


def test_4_the_hooks_idempotency_key_is_the_run_the_action_and_compensate(stage: Stage) -> None:
    stage.start(*sequence("a", "b"), capabilities=compensated("a")).finish("a").fail("b").finish("undo:a")
    key = f"{stage.run_id}:a:compensate"
    assert stage.view()["compensation"]["actions"][0]["idempotencyKey"] == key
    handed = Context(run_id=stage.run_id, workflow="flow", version=1, step="a", undoing=True, attempt=2)
    assert handed.idempotency_key == key


def test_4_while_hooks_run_the_summary_says_so(stage: Stage) -> None:
    stage.start(*sequence("a", "b", "c"), capabilities=compensated("a", "b"))
    stage.finish("a", "b").fail("c")
    stage.claim("undo:b")
    told = stage.view()
    assert told["status"] == "Running"
    assert told["compensation"]["status"] == "running"
    assert [each["outcome"] for each in told["compensation"]["actions"]] == ["Running", "Pending"]
    stage.finish("undo:b", "undo:a")


# -- §5 determinism --------------------------------------------------------------------------------------------------
def test_5_the_idempotency_key_is_the_same_for_every_attempt(stage: Stage) -> None:
    stage.start(*sequence("a"))
    stage.fail("a", "transient").later(1).finish("a")
    entries = [entry["payload"] for entry in stage.view()["evidence"] if entry["payload"]["kind"] == "attempt"]
    assert [entry["attempt"] for entry in entries] == [1, 2]
    assert {entry["idempotencyKey"] for entry in entries} == {f"{stage.run_id}:a"}
    keys = {Context(run_id="r", workflow="w", version=1, step="a", attempt=n).idempotency_key for n in (1, 2, 3)}
    assert keys == {"r:a"}


def test_5_equal_documents_make_equal_definitions_and_equal_histories(stage: Stage) -> None:
    definition = built(document(*DIAMOND))
    assert definition == built(document(*DIAMOND))
    told = []
    for _ in range(2):
        stage.start_with(definition)
        stage.finish("a")
        stage.claim("b", "c")
        stage.finish("b", "c", "d")
        told.append([(line["event_type"], line["from_state"], line["to_state"]) for line in stage.log()])
    assert told[0] == told[1]


# -- both stores -----------------------------------------------------------------------------------------------------
def test_a_whole_life_on_both_databases(database_url: str) -> None:
    """Approval, retry, manual completion, failure and compensation in one run."""
    held = action("b", 2, "a", executionTierOverride="HumanApprove")
    manual = action("c", 3, "a", completionMode="ManualOnly")
    with stage_on(database_url) as stage:
        stage.start(DIAMOND[0], held, manual, DIAMOND[3], capabilities=compensated("a", "b", "c"))
        stage.fail("a", "transient").later(1).finish("a", "c")
        assert stage.status == "WaitingForApproval"
        stage.decide("b")
        stage.finish("b")
        stage.signal(stage.payload("c"))
        with pytest.raises(Conflict):
            stage.signal(stage.payload("c", "Failed"))
        stage.fail("d").finish("undo:c", "undo:b", "undo:a")
        assert stage.run() == ["Pending", "Running", "WaitingForApproval", "Running", "Failed"]
        assert stage.last() == {"a": "Succeeded", "b": "Succeeded", "c": "Succeeded", "d": "Failed"}
        assert stage.view()["compensation"]["status"] == "complete"


def test_dispatch_order_on_both_databases(database_url: str) -> None:
    """§1.2: runnable at the same time, dispatched by order."""
    names = [f"s{number:02}" for number in range(20, 0, -1)]
    with stage_on(database_url) as stage:
        stage.start(action("root", 1, dependsOn=[]), *(action(name, 2 + n, "root") for n, name in enumerate(names)))
        stage.finish("root")
        assert stage.claim() == names
        stage.finish(*names)
