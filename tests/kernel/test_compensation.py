"""Rollback: what is undone, in which order, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kernel.driver import World, sequence, work

from stepkeep.kernel.definition import (
    SECOND,
    UNDO_RETRY,
    CompensateWhen,
    Completion,
    Effect,
    Handler,
    HookFailure,
    Rule,
    Undo,
)
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.outcomes import Completed, Failed, Released, RulesFailed, Waiting
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState

S = StepState
RULE = (Rule(expression="true"),)


def four(**settings: object) -> World:
    """000 §4.1: A → B → C → D (fails)."""
    steps = [work(name, undo=True, on_failure=OnFailure.COMPENSATE) for name in "abcd"]
    return World(*sequence(*steps), **settings)  # type: ignore[arg-type]


def test_compensation_runs_in_reverse_order_of_completion() -> None:
    """000 §4.1 "Undo C → Undo B → Undo A"; 003 §4."""
    world = four()
    world.finish("a", "b", "c")
    world.fail("d")
    for name in "cba":
        assert world.run.state is RunState.COMPENSATING
        assert world.ready() == [f"undo:{name}"]
        world.finish(f"undo:{name}")
    assert world.run.state is RunState.ROLLED_BACK
    assert world.trail()[-3:] == ["step_failed", "undo_started", "undone"]


def test_the_order_is_that_of_completion_not_of_dispatch() -> None:
    """003 §4: "reverse completion order"; design §3: by journal sequence and hop, never by timestamps."""
    world = World(*(work(name, undo=True) for name in "abc"), work("x", "a", "b", "c", on_failure=OnFailure.COMPENSATE))
    world.claim("a", "b", "c")
    world.send(world.reporting("b", Completed()), world.reporting("a", Completed()))
    world.report("c", Completed())
    world.fail("x")
    undone = []
    while not world.over:
        undone += world.ready()
        world.finish(world.ready()[0])
    assert undone == ["undo:c", "undo:a", "undo:b"]


def test_only_succeeded_steps_with_a_hook_are_undone() -> None:
    """000 §4.2 rules 1 and 5."""
    world = World(
        work("done", undo=True),
        work("read", "done"),
        work("tolerated", "done", undo=True, on_failure=OnFailure.SKIP),
        work("bad", "read", undo=True, on_failure=OnFailure.COMPENSATE),
        work("never", "bad", undo=True),
    )
    world.finish("done", "read")
    world.fail("tolerated")
    world.fail("bad")
    assert world.ready() == ["undo:done"]
    assert {name for name in world.states() if name.startswith("undo:")} == {"undo:done"}


def test_an_effect_that_may_have_happened_is_undone_where_the_step_says_so() -> None:
    """Design §4 "compensate_when: attempted"; 000 §3.3 "for this and all previous completed steps"."""
    maybe = {"undo": True, "on_failure": OnFailure.COMPENSATE, "compensate_when": CompensateWhen.ATTEMPTED}
    world = World(*sequence(work("a", undo=True), work("b", **maybe), work("c", **maybe)))  # type: ignore[arg-type]
    world.finish("a")
    world.fail("b")
    assert world.ready() == ["undo:b"]
    world.finish("undo:b", "undo:a")
    assert world.run.state is RunState.ROLLED_BACK
    assert "undo:c" not in world.states()


def test_a_step_whose_rules_kept_its_handler_from_running_is_not_undone_unless_it_was_claimed_before() -> None:
    """Rules before a handler fail the step without a trace of its effect; an earlier claim may have left one."""
    maybe: dict[str, Any] = {
        "undo": True,
        "on_failure": OnFailure.COMPENSATE,
        "compensate_when": CompensateWhen.ATTEMPTED,
        "pre": (Rule(expression="true"),),
    }
    unrun = Failed(category=Category.TRANSIENT, error="not clean", unrun=True)
    for released in (False, True):
        world = World(*sequence(work("a", undo=True), work("b", **maybe)))
        world.finish("a")
        world.claim("b")
        if released:
            world.report("b", Released())
            world.claim("b")
        world.report("b", unrun)
        row = world.row("b")
        assert (row.state, row.category, row.error) == (S.FAILED, Category.VALIDATION, "NOT_RUN: not clean")
        assert world.ready() == (["undo:b"] if released else ["undo:a"])


def test_only_rules_say_that_a_handler_did_not_run() -> None:
    world = World(work("a"))
    world.claim("a")
    (reply,) = world.send(world.reporting("a", Failed(category=Category.AUTH, error="no", unrun=True)))
    assert isinstance(reply, Conflict)
    world.report("a", Failed(category=Category.AUTH, error="NOT_RUN: I say so"))
    assert world.row("a").error == "failed: NOT_RUN: I say so"


def test_a_hook_is_retried_twice_by_default() -> None:
    """003 §4: maxAttempts 2, initialBackoffMs 1000."""
    world = four()
    world.finish("a")
    world.fail("b")
    world.fail("undo:a", Category.TRANSIENT)
    assert world.row("undo:a").due_at == world.now + SECOND
    world.later(SECOND, "undo:a")
    world.finish("undo:a")
    assert world.run.state is RunState.ROLLED_BACK


def test_a_hook_that_fails_does_not_keep_the_others_from_running() -> None:
    """003 §4: "failure in one compensation does not skip remaining hooks"."""
    world = four()
    world.finish("a", "b")
    world.fail("c")
    world.fail("undo:b")
    assert world.ready() == ["undo:a"]
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "partial")
    assert world.trail()[-1] == "undo_failed"


def test_a_failed_hook_stops_the_rollback_where_the_definition_says_so() -> None:
    """000 §4.2 rule 4: "the workflow enters terminal failed state with partial rollback"."""
    world = four(hook_failure=HookFailure.STOP)
    world.finish("a", "b")
    world.fail("c")
    world.fail("undo:b")
    assert world.states()["undo:a"] == "cancelled"
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "partial")


@pytest.mark.parametrize("answers", [0, 1])
def test_a_lost_worker_is_no_attempt_of_an_undo(answers: int) -> None:
    """003 §4 gives a hook two attempts: those that its handler answered."""
    world = World(work("a", undo=Undo(executor=Handler(name="undo"), retry=UNDO_RETRY)), work("b", "a"))
    world.finish("a")
    world.cancel(compensate=True)
    for _ in range(answers):
        world.fail("undo:a", Category.TRANSIENT)
        world.later(SECOND, "undo:a")
    for _ in range(UNDO_RETRY.max_losses - 1):
        world.lose("undo:a")
    row = world.row("undo:a")
    assert (row.state, row.attempts, row.losses) == (S.READY, answers, UNDO_RETRY.max_losses - 1)
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.ROLLED_BACK, "complete")


def test_an_undo_that_kills_every_worker_is_given_up_in_the_end() -> None:
    world = World(work("a", undo=Undo(executor=Handler(name="undo"), retry=UNDO_RETRY)), work("b", "a"))
    world.finish("a")
    world.cancel(compensate=True)
    for _ in range(UNDO_RETRY.max_losses):
        world.lose("undo:a")
    row = world.row("undo:a")
    assert (row.state, row.attempts, row.category) == (S.FAILED, 0, Category.POISON)
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "partial")


def test_hooks_of_earlier_definitions_lose_leases_and_are_released_like_steps() -> None:
    world = four()
    world.finish("a")
    world.fail("b")
    world.claim("undo:a")
    world.report("undo:a", Released())
    world.lose("undo:a")
    assert world.ready() == ["undo:a"]
    world.lose("undo:a")
    assert (world.state("undo:a"), world.run.state) == (S.FAILED, RunState.FAILED)


def test_a_hook_neither_waits_nor_asks_for_people() -> None:
    """Design §3: "no gates, waits or manual completion in them"."""
    world = World(work("a", undo=True, completion=Completion.MANUAL), work("b", "a", on_failure=OnFailure.COMPENSATE))
    world.finish("a")
    world.complete("a")
    world.fail("b")
    world.claim("undo:a")
    world.report("undo:a", Completed())
    assert world.run.state is RunState.ROLLED_BACK

    world = four()
    world.finish("a")
    world.fail("b")
    world.claim("undo:a")
    world.report("undo:a", Waiting(event="paid"))
    assert (world.state("undo:a"), world.run.state) == (S.FAILED, RunState.FAILED)


def test_hooks_of_steps_with_rules_have_none() -> None:
    world = World(
        work("a", undo=True, rules=(Rule(expression="true"),)), work("b", "a", on_failure=OnFailure.COMPENSATE)
    )
    world.finish("a")
    world.fail("b")
    world.claim("undo:a")
    world.report("undo:a", Completed())
    assert world.run.state is RunState.ROLLED_BACK


@pytest.mark.parametrize("effect", [Effect.WRITE, Effect.IRREVERSIBLE])
def test_an_effect_without_a_hook_makes_the_rollback_partial(effect: Effect) -> None:
    """Design §4: "recorded as not compensable, rollback is partial"; 000 §4.3: you cannot unsend an email."""
    world = World(
        *sequence(work("a", undo=True), work("mail", effect=effect), work("c", on_failure=OnFailure.COMPENSATE))
    )
    world.finish("a", "mail")
    world.fail("c")
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "partial")


def test_an_attempted_effect_without_a_hook_makes_the_rollback_partial() -> None:
    world = World(
        *sequence(
            work("a", undo=True),
            work(
                "mail",
                effect=Effect.WRITE,
                compensate_when=CompensateWhen.ATTEMPTED,
                on_failure=OnFailure.COMPENSATE,
            ),
        )
    )
    world.finish("a")
    world.fail("mail")
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "partial")


@pytest.mark.parametrize("compensate_when", CompensateWhen)
@pytest.mark.parametrize(("effect", "undo"), [(Effect.WRITE, False), (Effect.READ, True), (Effect.UNKNOWN, False)])
def test_a_rollback_beside_a_step_that_failed_by_its_rules_is_partial_unless_attempts_are_undone(
    effect: Effect, undo: bool, compensate_when: CompensateWhen
) -> None:
    """Its handler had completed before its rules ran."""
    ruled = work(
        "b", undo=undo, effect=effect, rules=RULE, on_failure=OnFailure.COMPENSATE, compensate_when=compensate_when
    )
    world = World(*sequence(work("a", undo=True), ruled))
    world.finish("a")
    world.claim("b")
    world.report("b", Completed())
    world.report("b", RulesFailed(error="not so"))
    is_undone = undo and compensate_when is CompensateWhen.ATTEMPTED
    world.finish(*(["undo:b"] if is_undone else []), "undo:a")
    expected = (RunState.ROLLED_BACK, "complete") if is_undone else (RunState.FAILED, "partial")
    assert (world.run.state, world.run.rollback) == expected


def test_a_read_that_failed_by_its_rules_leaves_the_rollback_complete() -> None:
    world = World(*sequence(work("a", undo=True), work("b", rules=RULE, on_failure=OnFailure.COMPENSATE)))
    world.finish("a")
    world.claim("b")
    world.report("b", Completed())
    world.report("b", RulesFailed(error="not so"))
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.ROLLED_BACK, "complete")


def test_a_tolerated_failure_of_rules_makes_a_later_rollback_partial() -> None:
    tolerated = work("b", undo=True, rules=RULE, on_failure=OnFailure.SKIP)
    world = World(*sequence(work("a", undo=True), tolerated, work("c", on_failure=OnFailure.COMPENSATE)))
    world.finish("a")
    world.claim("b")
    world.report("b", Completed())
    world.report("b", RulesFailed(error="not so"))
    world.fail("c")
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "partial")


@pytest.mark.parametrize("held", [True, False], ids=["a worker holds it", "its worker handed it back"])
def test_a_rollback_beside_a_step_whose_rules_did_not_run_is_partial(held: bool) -> None:
    """The run stops after the handler completed and before its rules passed."""
    failing = work("c", "a", on_failure=OnFailure.COMPENSATE)
    world = World(work("a", undo=True), work("b", "a", undo=True, rules=RULE), failing, grace=SECOND)
    world.finish("a")
    world.claim("b", "c")
    world.report("b", Completed())
    if not held:
        world.report("b", Released())
    world.fail("c")
    if held:
        world.later(2 * SECOND)
    assert world.state("b") is S.CANCELLED
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "partial")


def test_with_nothing_to_undo_a_compensated_run_just_fails() -> None:
    """Design §3: stopping → failed, "nothing in flight, nothing to undo"."""
    world = World(work("a", on_failure=OnFailure.COMPENSATE))
    world.fail("a")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, "none")


def test_an_action_run_is_compensated_whenever_a_side_effect_succeeded() -> None:
    """003 §4: "triggered when a run fails after at least one side-effecting action succeeded"."""
    world = World(*sequence(work("a", undo=True), work("b")), compensate_always=True)
    world.finish("a")
    world.fail("b")
    assert world.run.state is RunState.COMPENSATING


def test_an_undo_runs_under_attempts_of_its_own() -> None:
    """003 §4: hooks have their own retry policy; the journal tells their attempts apart."""
    world = four()
    world.claim("a")
    world.report("a", Completed())
    world.fail("b", Category.AUTH)
    world.finish("undo:a")
    assert world.attempts_of("a") == world.attempts_of("undo:a") == ["succeeded"]
    assert world.row("undo:a").fence == 1
