"""A person decides about one step that is stuck without holding: retry, skip, fail or complete it, on record."""

from __future__ import annotations

from random import Random

import pytest
from tests.kernel.driver import World, gate, must_decide, sequence, wait, work
from tests.kernel.walks import live, world_of

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.decide.stuck import CHOICES, choices_about
from stepkeep.kernel.definition import SECOND, Completion, OnExhausted, Retry, Rule, StepDefinition
from stepkeep.kernel.errors import Conflict, InvalidInput, NotAllowed
from stepkeep.kernel.machine.events import HoldChoice, HoldDecided
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, RulesFailed, RulesPassed, Waiting
from stepkeep.kernel.machine.states import RUN_TERMINAL, Category, OnFailure, RunState, StepState

S = StepState
RETRY, SKIP, FAIL, COMPLETE = HoldChoice
PAUSED = Retry(max_attempts=3, initial=60 * SECOND)


def retrying(**settings: object) -> World:
    """Two steps; the first waits for its second attempt."""
    world = World(*sequence(work("a", retry=PAUSED, **settings), work("b")))  # type: ignore[arg-type]
    world.fail("a", Category.TRANSIENT, "no route")
    assert world.state("a") is S.RETRYING
    return world


def test_a_retry_ends_the_pause_and_leaves_the_attempts_as_they_are() -> None:
    world = retrying()
    said = world.decide_hold("a", RETRY, by="ann", reason="the network is back")
    assert (said.record["decision"], world.state("a"), world.row("a").attempts) == ("retried", S.READY, 1)
    cause = open_entry(world.bodies[-1]).causes[0]
    assert cause.event == "step_decided"
    assert cause.detail == {"step": "a", "decision": "retried", "reason": "the network is back"}


def test_a_step_that_waits_for_its_next_attempt_is_skipped_failed_or_completed() -> None:
    skipped = retrying()
    skipped.decide_hold("a", SKIP, reason="not needed")
    assert (skipped.state("a"), skipped.state("b")) == (S.SKIPPED, S.READY)
    failed = retrying()
    failed.decide_hold("a", FAIL, by="ann", reason="hopeless")
    assert (failed.state("a"), failed.run.state) == (S.FAILED, RunState.FAILED)
    assert failed.row("a").error == "no route (failed by ann: hopeless)"
    completed = retrying()
    completed.decide_hold("a", COMPLETE, reason="done by phone", output=b'{"ok":true}')
    assert (completed.state("a"), completed.state("b")) == (S.SUCCEEDED, S.READY)
    note = completed.row("a").note
    assert note is not None
    assert note.output == '{"ok":true}'


def test_rules_are_checked_after_a_completion_by_a_person() -> None:
    world = retrying(rules=(Rule(expression="output.ok"),))
    world.decide_hold("a", COMPLETE, reason="done by phone", output=b'{"ok":false}')
    assert world.state("a") is S.VALIDATING
    world.claim("a")
    world.report("a", RulesFailed(error="not ok"))
    assert (world.state("a"), world.run.state) == (S.FAILED, RunState.FAILED)
    held = retrying(rules=(Rule(expression="output.ok"),))
    held.decide_hold("a", COMPLETE, reason="done by phone", output=b'{"ok":true}')
    held.claim("a")
    held.report("a", RulesPassed())
    assert held.state("a") is S.SUCCEEDED


def test_a_step_that_no_worker_takes_is_skipped_or_failed_and_not_completed() -> None:
    world = World(*sequence(work("a"), work("b")))
    with pytest.raises(Conflict, match="is ready; a person can only skip or fail it now"):
        world.decide_hold("a", COMPLETE, reason="done")
    world.decide_hold("a", FAIL, by="ann", reason="nobody has the code")
    assert world.row("a").error == "failed by ann: nobody has the code"
    assert world.run.state is RunState.FAILED


def test_a_wait_is_ended_by_a_person_and_the_run_goes_on() -> None:
    world = World(*sequence(wait("a", "paid"), work("b")))
    assert world.run.state is RunState.BLOCKED
    world.decide_hold("a", COMPLETE, reason="the money is there", output=b"7")
    assert (world.state("a"), world.state("b"), world.run.state) == (S.SUCCEEDED, S.READY, RunState.RUNNING)


@pytest.mark.parametrize("choice", [HoldChoice.SKIP, HoldChoice.FAIL, HoldChoice.COMPLETE])
def test_a_decision_about_a_wait_after_its_deadline_does_not_count(choice: HoldChoice) -> None:
    world = World(wait("w", "paid", deadline=SECOND))
    world.pass_time(SECOND)
    with pytest.raises(Conflict, match="its deadline, which has passed"):
        world.decide_hold("w", choice, reason="no answer")
    assert world.state("w") is S.AWAITING_EVENT


def test_a_handler_that_waits_is_ended_by_a_person() -> None:
    world = World(*sequence(work("a"), work("b")))
    world.claim("a")
    world.report("a", Waiting(event="paid", timeout=None))
    world.decide_hold("a", SKIP, reason="nobody pays")
    assert (world.state("a"), world.state("b")) == (S.SKIPPED, S.READY)


def test_a_manual_step_is_only_completed_by_its_token() -> None:
    """Seed 003, section 2, rule 4: only a signal ends it."""
    world = World(*sequence(work("a", completion=Completion.MANUAL, retry=PAUSED), work("b")))
    world.fail("a", Category.TRANSIENT, "no route")
    with pytest.raises(Conflict, match="complete it with its token"):
        world.decide_hold("a", COMPLETE, reason="done")
    world.decide_hold("a", RETRY, by="ann", reason="the network is back")
    world.claim("a")
    world.report("a", Completed(token="0" * 64))
    for choice in HoldChoice:
        with pytest.raises(Conflict, match="only its token completes it"):
            world.decide_hold("a", choice, reason="done")


@pytest.mark.parametrize("dialect", ["linear", "run", "workstream"])
def test_a_format_that_needs_every_step_has_none_skipped(dialect: str) -> None:
    world = World(*sequence(work("a", retry=PAUSED), work("b")), dialect=dialect)
    world.fail("a", Category.TRANSIENT, "no route")
    with pytest.raises(Conflict, match="the run needs it"):
        world.decide_hold("a", SKIP, reason="not needed")


def test_a_step_that_a_pause_holds_back_is_decided_about_after_it() -> None:
    world = World(*sequence(work("a"), work("b")))
    world.pause()
    with pytest.raises(Conflict, match="Resume the run first"):
        world.decide_hold("a", SKIP, reason="not needed")


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((work("a"),), "a worker holds it"),
        ((gate("a"),), "approve or reject it"),
    ],
)
def test_what_has_a_way_of_its_own_is_refused(steps: tuple[StepDefinition, ...], why: str) -> None:
    world = World(*steps)
    if world.state("a") is S.READY:
        world.claim("a")
    before = len(world.bodies)
    for choice in HoldChoice:
        with pytest.raises(Conflict, match=why):
            world.decide_hold("a", choice, reason="stuck")
    assert len(world.bodies) == before


def test_a_step_that_has_not_opened_and_one_that_has_ended_are_refused() -> None:
    world = World(*sequence(work("a"), work("b")))
    with pytest.raises(Conflict, match="it has not opened"):
        world.decide_hold("b", SKIP, reason="not needed")
    world.finish("a")
    with pytest.raises(Conflict, match="it has ended"):
        world.decide_hold("a", SKIP, reason="not needed")


def test_a_decision_about_a_step_that_does_not_hold_needs_a_reason() -> None:
    world = retrying()
    with pytest.raises(InvalidInput, match="give the reason"):
        world.decide_hold("a", SKIP)
    assert world.state("a") is S.RETRYING


def test_a_step_that_its_run_needs_is_never_skipped() -> None:
    world = retrying(on_exhausted=OnExhausted.HOLD_REQUIRED)
    with pytest.raises(Conflict, match="the run needs it"):
        world.decide_hold("a", SKIP, reason="not needed")


def test_an_undo_step_is_only_retried() -> None:
    world = World(*sequence(work("a", undo=True), work("b")), on_failure=OnFailure.COMPENSATE)
    world.finish("a")
    world.cancel(compensate=True)
    world.fail("undo:a", Category.TRANSIENT, "no route")
    assert world.state("undo:a") is S.RETRYING
    for choice in (SKIP, FAIL, COMPLETE):
        with pytest.raises(Conflict, match="it can only be retried"):
            world.decide_hold("undo:a", choice, reason="stuck")
    world.decide_hold("undo:a", RETRY, reason="the network is back")
    assert world.state("undo:a") is S.READY


def test_the_same_decision_again_changes_nothing_and_another_is_a_conflict() -> None:
    world = retrying()
    world.decide_hold("a", SKIP, by="ann", reason="not needed")
    assert world.decide_hold("a", SKIP, by="ann", reason="not needed").repeated
    with pytest.raises(Conflict, match="was skipped by ann first"):
        world.decide_hold("a", FAIL, by="bea", reason="no")


def offers(world: World) -> set[tuple[StepState, HoldChoice]]:
    """What may be decided about the steps of a run; exactly that is accepted."""
    found = set()
    for no, row in world.rows.items():
        offered = choices_about(world.plan, world.run.state, row)
        for choice in HoldChoice:
            asked = HoldDecided(tenant="t", run_id="r", no=no, choice=choice, actor="olga", reason="stuck")
            reply = must_decide(world.snapshot([asked]), [asked], world.now, None).replies[0]
            if not isinstance(reply, NotAllowed):
                is_accepted = isinstance(reply, Accepted) and not reply.repeated
                assert is_accepted == (choice in offered), f"{row.state} {choice}: {reply}"
        found |= {(row.state, choice) for choice in offered}
    return found


def test_what_is_offered_about_a_stuck_step_is_what_a_decision_is_accepted_for() -> None:
    """Pages offer `choices_about`: in any life it has the choices that the kernel accepts, and no other."""
    found: set[tuple[StepState, HoldChoice]] = set()
    for seed in range(25):
        random = Random(seed)
        world = world_of(random)
        for _ in range(12):
            live(world, random, 4)
            if not world.is_past_deadline and world.run.state not in RUN_TERMINAL:
                found |= offers(world)
    assert found == {(state, choice) for state, choices in CHOICES.items() for choice in choices}


@pytest.mark.parametrize(
    ("on_exhausted", "choices"),
    [(OnExhausted.HOLD, set(HoldChoice)), (OnExhausted.HOLD_REQUIRED, {RETRY, FAIL, COMPLETE})],
)
def test_what_is_offered_about_a_hold_is_what_a_decision_is_accepted_for(
    on_exhausted: OnExhausted, choices: set[HoldChoice]
) -> None:
    world = World(*sequence(work("a", retry=Retry(max_attempts=1), on_exhausted=on_exhausted), work("b")))
    world.fail("a", Category.TRANSIENT, "no route")
    assert offers(world) == {(S.AWAITING_APPROVAL, choice) for choice in choices}
