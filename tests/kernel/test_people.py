"""People: gates that are approved or rejected, and steps that are completed by hand."""

from __future__ import annotations

import json

import pytest
from tests.kernel.driver import LEASE, TOKEN, World, allowing, gate, sequence, work

from stepkeep.kernel.definition import SECOND, Approval, Completion, OnDeadline, Rule
from stepkeep.kernel.errors import Conflict, InvalidInput, TokenExpired
from stepkeep.kernel.machine.events import GateDecided, ManualOutcome
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, RulesFailed, RulesPassed
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState

S = StepState
DAY = 24 * 3600 * SECOND


def record(world: World, name: str) -> dict[str, object]:
    note = world.row(name).note
    assert note is not None
    assert note.record is not None
    said: dict[str, object] = json.loads(note.record)
    return said


# -- gates ------------------------------------------------------------------------------------------------------------
def test_a_gate_opens_and_blocks_its_run() -> None:
    """000 §1 executing → blocked; 001 PENDING → WAITING_APPROVAL."""
    world = World(*sequence(work("a"), gate("g"), work("b")))
    world.finish("a")
    assert (world.state("g"), world.run.state) == (S.AWAITING_APPROVAL, RunState.BLOCKED)
    assert world.ready() == []


def test_approval_passes_the_gate_and_the_run_goes_on() -> None:
    """001 WAITING_APPROVAL → SUCCEEDED by the approve endpoint; 000 §1 blocked → executing."""
    world = World(*sequence(gate("g"), work("b")))
    world.approve("g", by="bea", comment="fine")
    assert (world.state("g"), world.state("b"), world.run.state) == (S.SUCCEEDED, S.READY, RunState.RUNNING)
    assert record(world, "g") == {"decision": "approved", "by": "bea", "at": world.now, "comment": "fine"}


def test_approval_of_the_last_gate_ends_the_run() -> None:
    """001 WAITING_APPROVAL → SUCCEEDED: "Approval completes last pending gate"."""
    world = World(gate("g"))
    world.approve("g")
    assert world.run.state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("policy", "gate_state", "run"),
    [
        (OnFailure.ABORT, "failed", RunState.FAILED),
        (OnFailure.SKIP, "skipped", RunState.SUCCEEDED),
        (OnFailure.CONTINUE, "failed", RunState.FAILED),
    ],
)
def test_rejection_fails_the_gate_then_its_policy_speaks(policy: OnFailure, gate_state: str, run: RunState) -> None:
    """Design §4 "Rejection: fails the gate, then its on_failure"."""
    world = World(*sequence(gate("g", on_failure=policy), work("b")))
    world.reject("g", by="bea", comment="too dear")
    assert (world.states()["g"], world.run.state) == (gate_state, run)
    assert world.row("g").category is Category.GOVERNANCE
    assert world.row("g").error == "rejected by bea: too dear"
    assert "claimed" not in world.trail("b")


def test_a_rejection_under_compensate_undoes_what_was_done() -> None:
    world = World(*sequence(work("a", undo=True), gate("g", on_failure=OnFailure.COMPENSATE)))
    world.finish("a")
    world.reject("g")
    assert world.run.state is RunState.COMPENSATING


def test_a_rejected_gate_satisfies_no_edge_not_even_one_that_allows_failure() -> None:
    world = World(gate("g", on_failure=OnFailure.CONTINUE), work("b", allowing("g", S.FAILED, S.SKIPPED)))
    world.reject("g")
    assert world.state("b") is S.SKIPPED


def test_approve_without_a_name_means_the_one_open_gate() -> None:
    """001 `POST /runs/{id}/approve`."""
    world = World(gate("g"), work("a"))
    assert world.approve().record["step"] == "g"


def test_approve_without_a_name_is_refused_when_several_gates_are_open() -> None:
    """Design §4: "otherwise 409 naming them"."""
    world = World(gate("g"), gate("h"))
    with pytest.raises(Conflict, match="2 open gates: g, h"):
        world.approve()
    world.approve("g")
    assert world.approve(by="cyd").record["step"] == "h"


def test_approve_is_refused_when_no_gate_is_open() -> None:
    """001 "if no waiting approval step exists, it does not incorrectly advance state"."""
    world = World(work("a"))
    with pytest.raises(Conflict, match="no open gate"):
        world.approve()


def test_a_gate_that_is_not_open_yet_cannot_be_approved() -> None:
    """001 "Approval only from WAITING_APPROVAL"."""
    world = World(*sequence(work("a"), gate("g")))
    with pytest.raises(Conflict, match="not open yet"):
        world.approve("g")
    assert world.state("g") is S.PENDING


def test_what_is_no_gate_cannot_be_approved() -> None:
    world = World(work("a"))
    with pytest.raises(Conflict, match="no approval gate"):
        world.approve("a")


def test_the_same_decision_by_the_same_person_again_is_no_error_and_changes_nothing() -> None:
    """Design §4: "is 200 and changes nothing"; 001 "Approve is idempotent"."""
    world = World(*sequence(gate("g"), work("a")))
    first = world.approve("g", by="bea")
    before = world.run
    again = world.approve("g", by="bea")
    assert again.repeated
    assert dict(again.record) == dict(first.record)
    assert world.run == before
    assert world.approve(by="bea").repeated


def test_the_same_decision_by_another_person_is_a_conflict_that_names_the_winner() -> None:
    """Promise 5: "the loser gets 409 and the winner's record"."""
    world = World(*sequence(gate("g"), work("a")))
    world.approve("g", by="bea")
    with pytest.raises(Conflict, match="approved by bea") as refused:
        world.approve("g", by="cyd")
    assert refused.value.winner is not None
    assert refused.value.winner["by"] == "bea"


def test_the_other_decision_by_the_same_person_is_a_conflict() -> None:
    world = World(*sequence(gate("g"), work("a")))
    world.approve("g", by="bea")
    with pytest.raises(Conflict, match="approved by bea"):
        world.reject("g", by="bea")
    assert world.state("g") is S.SUCCEEDED


def test_of_two_decisions_in_one_transaction_the_first_wins() -> None:
    world = World(*sequence(gate("g"), work("a")))
    who = {"tenant": "t", "run_id": "r", "no": 0}
    yes = GateDecided(actor="bea", approve=True, **who)  # type: ignore[arg-type]
    no = GateDecided(actor="cyd", approve=False, **who)  # type: ignore[arg-type]
    replies = world.send(no, yes)
    assert isinstance(replies[1], Conflict)
    assert world.state("g") is S.FAILED


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_a_double_click_never_passes_the_next_gate(named: bool) -> None:
    """Design §4; seed 001's `approve` by run alone would pass two gates."""
    world = World(*sequence(gate("one"), gate("two"), work("a")))
    world.approve("one" if named else None, by="bea")
    if named:
        assert world.approve("one", by="bea").repeated
    else:
        with pytest.raises(Conflict, match=r"approved one .* now two is open"):
            world.approve(by="bea")
    assert world.state("two") is S.AWAITING_APPROVAL
    world.approve("two", by="bea")
    assert world.ready() == ["a"]


def test_another_person_may_pass_the_next_gate_without_naming_it() -> None:
    world = World(*sequence(gate("one"), gate("two"), work("a")))
    world.approve(by="bea")
    world.approve(by="cyd")
    assert world.ready() == ["a"]


@pytest.mark.parametrize(
    ("on_deadline", "category"), [(OnDeadline.REJECT, Category.GOVERNANCE), (OnDeadline.FAIL, Category.TIMEOUT)]
)
def test_a_gate_that_nobody_decides_in_time_fails(on_deadline: OnDeadline, category: Category) -> None:
    """000 §1 blocked → failed: "Timeout on blocked step"."""
    world = World(*sequence(gate("g", approval=Approval(deadline=DAY, on_deadline=on_deadline)), work("a")))
    assert world.later(DAY - 1, "g").repeated
    world.later(1, "g")
    assert (world.state("g"), world.row("g").category, world.run.state) == (S.FAILED, category, RunState.FAILED)
    with pytest.raises(Conflict, match="expired"):
        world.approve("g")


@pytest.mark.parametrize("on_deadline", [OnDeadline.REJECT, OnDeadline.FAIL, OnDeadline.ESCALATE])
def test_a_gate_that_nobody_passed_lets_nothing_through_however_it_is_tolerated(on_deadline: OnDeadline) -> None:
    approval = Approval(deadline=DAY, on_deadline=on_deadline)
    world = World(*sequence(gate("g", approval=approval, on_failure=OnFailure.SKIP), work("a"), work("b")))
    world.later(DAY, "g")
    assert world.states() == {"g": "skipped", "a": "skipped", "b": "skipped"}


def test_a_decision_after_the_deadline_does_not_count_also_before_the_sweep() -> None:
    """The outcome depends on the time of the decision, not on when a sweep comes."""
    world = World(*sequence(gate("g", deadline=DAY), work("a")))
    world.pass_time(DAY)
    for decide in (world.approve, world.reject):
        with pytest.raises(Conflict, match="before its deadline, which has passed"):
            decide("g")
    world.tick("g")
    assert world.states()["g"] == "failed"


def test_a_decision_in_the_last_microsecond_before_the_deadline_counts() -> None:
    world = World(*sequence(gate("g", deadline=DAY), work("a")))
    world.pass_time(DAY - 1)
    world.approve("g")
    assert world.tick("g").repeated
    assert world.ready() == ["a"]


# -- manual completion ------------------------------------------------------------------------------------------------
def by_hand(**settings: object) -> World:
    """A run of `m`, which is completed by hand, and `z` after it."""
    world = World(*sequence(work("m", completion=Completion.MANUAL, **settings), work("z")))  # type: ignore[arg-type]
    world.claim("m")
    world.report("m", Completed(output=b'"made"', token=TOKEN))
    return world


def test_a_manual_step_waits_for_its_signal_when_its_handler_is_done() -> None:
    """003 §2 Running → WaitingForManualCompletion."""
    world = by_hand()
    assert (world.state("m"), world.run.state, world.row("m").worker) == (S.AWAITING_COMPLETION, RunState.BLOCKED, None)
    assert world.attempts_of("m") == ["succeeded"]


def test_the_signal_completes_it_and_keeps_who_said_what() -> None:
    """003 §3.3; the actor is the authenticated one, the payload's is kept as a claim."""
    world = by_hand()
    world.complete("m", by="bea", notes="seen", evidence=("e1",), claim=b'{"actorUserId":"root"}', output=b"42")
    assert (world.state("m"), world.state("z")) == (S.SUCCEEDED, S.READY)
    assert record(world, "m") == {
        "outcome": "Succeeded",
        "by": "bea",
        "at": world.now,
        "notes": "seen",
        "evidence": ["e1"],
        "claim": {"actorUserId": "root"},
    }
    assert world.output_of(0) == b"42"


def test_without_an_output_of_their_own_the_handlers_counts() -> None:
    world = by_hand()
    world.complete("m")
    assert world.output_of(0) == b'"made"'


def test_a_signal_with_another_token_is_refused() -> None:
    """003 §3.3: "completionToken must match"."""
    world = by_hand()
    with pytest.raises(Conflict, match="does not match"):
        world.complete("m", token="guess")
    assert world.state("m") is S.AWAITING_COMPLETION


def test_a_signal_before_the_step_waits_is_refused() -> None:
    """003 §3.3: "accepted only when the action is in WaitingForManualCompletion"."""
    world = World(work("m", completion=Completion.MANUAL))
    with pytest.raises(Conflict):
        world.complete("m")


def test_the_same_signal_again_changes_nothing() -> None:
    """003 §3.3: "idempotent on (runId, actionId, completionToken)"."""
    world = by_hand()
    first = world.complete("m")
    before = world.run
    again = world.complete("m")
    assert again.repeated
    assert dict(again.record) == dict(first.record)
    assert world.run == before


def test_another_outcome_for_the_same_token_is_a_conflict_that_names_the_winner() -> None:
    world = by_hand()
    world.complete("m", by="bea")
    with pytest.raises(Conflict, match="completed as Succeeded by bea") as refused:
        world.complete("m", ManualOutcome.FAILED, by="cyd")
    assert refused.value.winner is not None
    assert refused.value.winner["by"] == "bea"


@pytest.mark.parametrize(
    ("policy", "state", "run"),
    [(OnFailure.ABORT, S.FAILED, RunState.FAILED), (OnFailure.SKIP, S.SKIPPED, RunState.RUNNING)],
)
def test_completed_as_failed_is_a_failure_for_good_under_the_policy(
    policy: OnFailure, state: StepState, run: RunState
) -> None:
    """003 §2 WaitingForManualCompletion → Failed."""
    world = by_hand(on_failure=policy)
    world.complete("m", ManualOutcome.FAILED, notes="damaged")
    assert (world.state("m"), world.run.state) == (state, run)
    assert world.row("m").error == "completed as Failed by bea: damaged"


def test_completed_as_cancelled_skips_what_depends_on_it() -> None:
    """003 §2 → Cancelled; design §3: skipped when "cancelled by a manual signal"."""
    world = by_hand()
    world.complete("m", ManualOutcome.CANCELLED)
    assert world.states() == {"m": "cancelled", "z": "skipped"}
    assert world.run.state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("policy", "after"), [(OnFailure.ABORT, "cancelled"), (OnFailure.SKIP, "ready")], ids=["abort", "skip"]
)
def test_a_manual_step_that_nobody_completes_in_time_fails_under_the_policy(policy: OnFailure, after: str) -> None:
    """Design §3: "Failed or deadline / the same, tolerated": a tolerated one lets a sequence go on."""
    world = by_hand(completion_deadline=DAY, on_failure=policy)
    world.later(DAY, "m")
    assert world.row("m").category is Category.TIMEOUT
    assert world.states()["z"] == after
    with pytest.raises(Conflict):
        world.complete("m")


def test_after_another_decision_an_unnamed_one_means_no_gate_that_was_decided_before() -> None:
    """The run ended by the rejection: the earlier approval by the same person is no answer to a new one."""
    world = World(*sequence(gate("g"), gate("h")))
    world.approve("g", by="bea")
    world.reject("h", by="bea")
    with pytest.raises(Conflict, match="no open gate"):
        world.approve(by="bea")
    assert world.reject(by="bea").repeated
    assert world.approve("g", by="bea").repeated


def test_a_new_token_takes_the_place_of_a_lost_one_and_nothing_else_changes() -> None:
    """Design-2 §2: token_reissued keeps due_at and never makes the run flap between blocked and running."""
    world = by_hand(completion_deadline=DAY)
    due, seq = world.row("m").due_at, world.run.seq
    world.pass_time(SECOND)
    world.reissue("m", "in its place", by="cyd", reason="the mail was lost")
    assert (world.state("m"), world.row("m").due_at, world.run.state) == (S.AWAITING_COMPLETION, due, RunState.BLOCKED)
    entry = open_entry(world.bodies[-1])
    assert world.run.seq == seq + 1
    assert [(hop.no, hop.trigger) for hop in entry.hops] == [(0, "token_reissued")]
    assert (entry.causes[0].actor, entry.causes[0].detail) == ("cyd", {"step": "m", "reason": "the mail was lost"})
    with pytest.raises(Conflict, match="does not match"):
        world.complete("m", token=TOKEN)
    world.complete("m", token="in its place")
    assert world.state("m") is S.SUCCEEDED


def test_only_a_step_that_waits_to_be_completed_gets_a_new_token() -> None:
    world = World(*sequence(work("m", completion=Completion.MANUAL), work("z")))
    with pytest.raises(Conflict, match="only a step that waits to be completed by hand"):
        world.reissue("m", "early")
    world.claim("m")
    world.report("m", Completed(token=TOKEN))
    world.complete("m")
    with pytest.raises(Conflict, match="is succeeded"):
        world.reissue("m", "late")


def test_a_new_token_after_the_timeout_of_the_run_meets_the_timeout() -> None:
    world = World(work("m", completion=Completion.MANUAL), timeout=DAY)
    world.claim("m")
    world.report("m", Completed(token=TOKEN))
    world.pass_time(DAY)
    with pytest.raises(Conflict):
        world.reissue("m", "late")
    assert world.run.state is RunState.FAILED


def test_a_new_token_after_the_deadline_is_refused_like_a_late_completion() -> None:
    world = by_hand(completion_deadline=DAY)
    world.pass_time(DAY)
    with pytest.raises(TokenExpired, match="before its deadline, which has passed"):
        world.reissue("m", "late")


def test_a_report_without_a_token_is_refused_where_a_person_must_complete() -> None:
    world = World(work("m", completion=Completion.MANUAL))
    world.claim("m")
    with pytest.raises(InvalidInput, match="token"):
        world.report("m", Completed())
    world.report("m", Completed(token=TOKEN))
    assert world.state("m") is S.AWAITING_COMPLETION


RULES = (Rule(expression="true"),)


def test_rules_run_after_a_manual_completion_under_a_claim_of_their_own() -> None:
    """Design §3: awaiting_completion → validating; 004 validating."""
    world = by_hand(rules=RULES)
    world.complete("m", output=b"42")
    assert (world.state("m"), world.ready()) == (S.VALIDATING, ["m"])
    world.claim("m")
    assert world.state("m") is S.VALIDATING
    world.report("m", RulesPassed())
    assert (world.state("m"), world.output_of(0)) == (S.SUCCEEDED, b"42")
    assert world.attempts_of("m") == ["succeeded", "succeeded"]


def test_a_handlers_output_survives_a_manual_completion_with_rules() -> None:
    world = by_hand(rules=RULES)
    world.complete("m")
    assert world.output_of(0) == b'"made"'
    world.finish("m")
    assert world.output_of(0) == b'"made"'


def test_rules_that_fail_after_a_manual_completion_fail_the_step() -> None:
    world = by_hand(rules=RULES)
    world.complete("m")
    world.claim("m")
    world.report("m", RulesFailed(error="not enough"))
    assert (world.state("m"), world.run.state) == (S.FAILED, RunState.FAILED)
    assert world.complete("m").repeated


def test_a_lease_lost_over_the_rules_of_a_manual_completion_asks_nobody_again() -> None:
    world = by_hand(rules=RULES)
    world.complete("m")
    world.claim("m")
    world.later(LEASE + 1, "m")
    assert (world.state("m"), world.ready()) == (S.VALIDATING, ["m"])
    world.finish("m")
    assert world.state("m") is S.SUCCEEDED
