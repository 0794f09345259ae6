"""Which steps a new run adopts from an earlier one, and how it goes on from them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from tests.kernel.driver import allowing, gate, plan_of, sequence, when, work

from stepkeep.kernel.composition.adoption import Choice, ContinuationRequest, Why, choose, reference_to
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.decide.create import create_run
from stepkeep.kernel.decide.decision import Decision
from stepkeep.kernel.definition import (
    Approval,
    Case,
    Completion,
    Definition,
    Effect,
    Flow,
    StepDefinition,
    SubWorkflow,
    Switch,
    Then,
)
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.rows import Adopted, Note, Step
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan

S = StepState
RETRY = ContinuationRequest(how=ContinuationKind.RETRY)


def planned(*steps: StepDefinition) -> Plan:
    conditions = {"yes": when(lambda _: True, input=True)}
    return plan_of(
        Definition(name="w", version=1, steps=tuple(replace(s, order=n) for n, s in enumerate(steps))), conditions
    )


def rows(plan: Plan, *states: StepState, **notes: Note) -> dict[int, Step]:
    return {
        no: Step(
            tenant="t",
            run_id="old",
            no=no,
            queue=1,
            state=state,
            fence=int(state in (S.SUCCEEDED, S.FAILED)),
            settled=no + 1,
            note=notes.get(plan.steps[no].name),
        )
        for no, state in enumerate(states)
    }


def whys(found: list[Choice]) -> list[str]:
    return [str(choice.why) for choice in found]


CHAIN = planned(*sequence(work("a", undo=True), work("b", effect=Effect.WRITE), work("c")))


@pytest.mark.parametrize(
    ("states", "asked", "expected"),
    [
        ((S.SUCCEEDED, S.SUCCEEDED, S.FAILED), RETRY, ["succeeded", "succeeded", "not_finished"]),
        ((S.SUCCEEDED, S.FAILED, S.CANCELLED), RETRY, ["succeeded", "not_finished", "follows"]),
        ((S.SUCCEEDED, S.SKIPPED, S.FAILED), RETRY, ["succeeded", "skipped", "not_finished"]),
        ((S.CANCELLED, S.CANCELLED, S.CANCELLED), RETRY, ["not_finished", "follows", "follows"]),
        (
            (S.SUCCEEDED,) * 3,
            ContinuationRequest(how=ContinuationKind.FORK, start="b"),
            ["succeeded", "chosen", "follows"],
        ),
        (
            (S.SUCCEEDED,) * 3,
            ContinuationRequest(how=ContinuationKind.RERUN, start="a"),
            ["chosen", "follows", "follows"],
        ),
    ],
)
def test_a_step_is_adopted_with_all_that_it_depends_on(
    states: tuple[StepState, ...], asked: ContinuationRequest, expected: list[str]
) -> None:
    assert whys(choose(CHAIN, rows(CHAIN, *states), CHAIN, asked)) == expected


def test_what_was_undone_or_may_have_been_runs_again() -> None:
    known = rows(CHAIN, S.SUCCEEDED, S.SUCCEEDED, S.FAILED)
    undo = Step(tenant="t", run_id="old", no=3, queue=1, state=S.FAILED, fence=1)
    found = choose(CHAIN, known | {3: undo}, CHAIN, RETRY)
    assert whys(found) == ["undone", "follows", "follows"]
    assert [one.may_repeat for one in found] == [True, True, False]
    never_tried = replace(undo, state=S.CANCELLED, fence=0)
    assert whys(choose(CHAIN, known | {3: never_tried}, CHAIN, RETRY))[0] == "succeeded"
    assert whys(choose(CHAIN, known, CHAIN, RETRY, {"a"}))[0] == "undone"


def test_people_decide_again_on_another_input_or_where_they_would_ask_themselves() -> None:
    plan = planned(*sequence(gate("sign", approval=Approval()), work("a")))
    known = rows(plan, S.SUCCEEDED, S.FAILED, sign=Note(deciders=("bea",)))

    def why(state: StepState = S.SUCCEEDED, **asked: object) -> str:
        given = {**known, 0: replace(known[0], state=state)}
        return whys(choose(plan, given, plan, ContinuationRequest(how=ContinuationKind.FORK, start="a", **asked)))[0]  # type: ignore[arg-type]

    assert why() == why(actor="ann") == "succeeded"
    assert why(actor="bea") == "own_decision"
    assert why(same_input=False) == "input_differs"
    assert why(S.SKIPPED) == "not_finished"


def test_a_condition_that_reads_the_input_is_evaluated_again_on_another_one() -> None:
    plan = planned(*sequence(work("a", condition="yes"), work("b")))
    known = rows(plan, S.SKIPPED, S.FAILED)
    fork = ContinuationRequest(how=ContinuationKind.FORK, start="b", same_input=False)
    assert whys(choose(plan, known, plan, fork)) == ["input_differs", "chosen"]
    assert whys(choose(plan, known, plan, replace(fork, same_input=True))) == ["skipped", "chosen"]


CALC = work("calc")
ASKING = [
    gate("g", "calc", approval=Approval()),
    work("g", "calc", hold=Approval()),
    work("g", "calc", completion=Completion.MANUAL),
    work("g", "calc", growth=Flow()),
    work("g", "calc", growth=Then()),
    work("g", "calc", child=SubWorkflow(workflow="w", version=1)),
]


@pytest.mark.parametrize("step", ASKING)
@pytest.mark.parametrize("state", [S.SUCCEEDED, S.SKIPPED])
def test_another_input_repeats_what_leads_to_people_also_where_nobody_was_asked(
    step: StepDefinition, state: StepState
) -> None:
    plan = planned(CALC, work("other"), step, work("pay", "g", "other"))
    known = rows(plan, S.SUCCEEDED, S.SUCCEEDED, state, S.SUCCEEDED)
    fork = ContinuationRequest(how=ContinuationKind.FORK, start="pay", same_input=False)
    assert whys(choose(plan, known, plan, fork)) == ["informs", "succeeded", "follows", "chosen"]
    root = planned(replace(step, depends_on=()), work("pay", "g"))
    found = choose(root, rows(root, S.SUCCEEDED, S.SUCCEEDED), root, fork)
    assert whys(found) == ["input_differs", "chosen"]


def test_a_choice_repeats_on_another_input_if_a_case_asks_people() -> None:
    fork = ContinuationRequest(how=ContinuationKind.FORK, start="pay", same_input=False)
    asking = work("g", child=SubWorkflow(workflow="w", version=1))
    for case, expected in ((work("g"), "succeeded"), (asking, "input_differs")):
        cases = (Case(name="big", when="input.n > 1", step=case), Case(name="small", step=work("g")))
        plan = planned(work("g", growth=Switch(max=2, cases=cases)), work("pay", "g"))
        assert whys(choose(plan, rows(plan, S.SUCCEEDED, S.SUCCEEDED), plan, fork)) == [expected, "chosen"]


def born(plan: Plan, notes: Mapping[int, Note], how: ContinuationKind = ContinuationKind.RETRY) -> Decision:
    continuation = Continuation(how=how, run_id="old", notes=notes)
    return create_run(
        plan,
        run_id="new",
        priority=0,
        business_key=None,
        given=b"null",
        caller=Caller("t", "ann"),
        now=1,
        start=True,
        continuation=continuation,
    )


def taken(place: int, **given: object) -> Note:
    return Note(output='"done"', adopted=Adopted(run="old", step=f"s{place}", place=place, **given))  # type: ignore[arg-type]


def test_a_new_run_begins_after_what_it_adopted() -> None:
    decision = born(CHAIN, {0: taken(0, fence=1, digest="d" * 64, owned=True), 1: taken(1, fence=2)})
    assert [step.state for step in decision.added] == [S.SUCCEEDED, S.SUCCEEDED, S.READY]
    assert (decision.run.state, decision.run.open, decision.run.moving) == (RunState.QUEUED, 1, 1)
    assert decision.entry is not None
    entry = open_entry(decision.entry.body)
    assert [hop.trigger for hop in entry.hops] == [
        "created",
        "adopted",
        "adopted",
        "planned",
        "started",
        "dependencies_met",
    ]
    told = (entry.causes[0].detail or {})["continues"]
    assert [(one["step"], one["fence"], one["undo"]) for one in told["adopted"]] == [("a", 1, True), ("b", 2, False)]


def test_adopted_steps_are_recorded_in_the_order_of_their_completion() -> None:
    plan = planned(work("a"), work("b"), work("c", "a", "b"))
    decision = born(plan, {0: taken(1), 1: taken(0)})
    assert decision.entry is not None
    assert [hop.no for hop in open_entry(decision.entry.body).hops if hop.trigger == "adopted"] == [1, 0]
    assert (decision.added[1].settled or 0) < (decision.added[0].settled or 0)


def test_a_run_that_adopted_everything_ends_at_once() -> None:
    decision = born(CHAIN, {no: taken(no) for no in range(3)})
    assert decision.run.state is RunState.SUCCEEDED


def test_a_skipped_step_is_adopted_as_skipped_and_its_followers_hear_of_it() -> None:
    plan = planned(work("a"), work("b", "a"), work("c", allowing("a", S.SKIPPED)))
    decision = born(plan, {0: Note(adopted=Adopted(run="old", step="a", place=0, skipped=True))})
    assert [step.state for step in decision.added] == [S.SKIPPED, S.SKIPPED, S.READY]


def test_a_reference_keeps_the_run_that_executed_the_step() -> None:
    row = rows(CHAIN, S.SUCCEEDED)[0]
    first = reference_to("r1", "a", row, 0, True)
    assert (first.run, first.fence, first.owned) == ("r1", 1, True)
    adopted = replace(row, fence=0, note=Note(adopted=first))
    second = reference_to("r2", "a", adopted, 4, True)
    assert (second.run, second.fence, second.place, second.owned) == ("r1", 1, 4, True)
    assert not reference_to("r2", "a", replace(adopted, note=Note(adopted=replace(first, owned=False))), 0, True).owned
    assert whys([Choice(name="a", why=Why.ADDED)]) == ["added"]
