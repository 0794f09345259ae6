"""How a run moves forward: sequences, graphs, joins, conditions, skips, and claims."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kernel.driver import (
    LEASE,
    When,
    World,
    allowing,
    bytes_of,
    claimer,
    gate,
    must_decide,
    sequence,
    wait,
    when,
    work,
)

from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.errors import Conflict, ExpressionError, NotFound
from stepkeep.kernel.machine.events import CancelRequested, GateDecided, StepClaimed, StepReported, TimeCame
from stepkeep.kernel.machine.outcomes import Completed, Failed, Released
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState

S = StepState


# -- starting ---------------------------------------------------------------------------------------------------------
def test_a_run_is_created_idle_with_its_whole_plan() -> None:
    """000 §1 idle: "Initial state after creation"; 002 start flow: all steps are inserted."""
    world = World(*sequence(work("a"), work("b")), start=False)
    assert world.run.state is RunState.IDLE
    assert world.states() == {"a": "pending", "b": "pending"}
    assert world.run.started_at is None


def test_starting_queues_a_run_and_makes_its_first_step_ready() -> None:
    """000 §1 idle → queued; 002 start flow: seq 0 READY, the others PENDING."""
    world = World(*sequence(work("a"), work("b")), start=False)
    world.start()
    assert world.run.state is RunState.QUEUED
    assert world.states() == {"a": "ready", "b": "pending"}
    assert world.run.started_at == world.now


def test_start_now_is_two_hops_of_one_entry() -> None:
    world = World(work("a"))
    assert world.trail() == ["created", "started"]
    assert world.run.seq == 1


def test_starting_twice_changes_nothing() -> None:
    world = World(work("a"))
    before = world.run
    assert world.start().repeated
    assert world.run == before


def test_a_run_that_has_ended_cannot_be_started_again() -> None:
    """000 §1 "failed → executing (must restart as new workflow)"."""
    world = World(work("a"))
    world.finish("a")
    with pytest.raises(Conflict, match="Rerun"):
        world.start()


def test_the_first_claim_sets_a_queued_run_running() -> None:
    """001 PENDING → RUNNING: "Worker claims first runnable step"."""
    world = World(work("a"))
    world.claim("a")
    assert world.run.state is RunState.RUNNING
    assert world.trail() == ["created", "started", "progressed"]


# -- sequences and graphs ---------------------------------------------------------------------------------------------
def test_a_sequence_runs_in_order_and_ends_succeeded() -> None:
    """001 ordering constraints; 002 A) Completed; 003 §1.1."""
    world = World(*sequence(work("a"), work("b"), work("c")))
    for name in "abc":
        assert world.ready() == [name]
        world.finish(name)
    assert world.run.state is RunState.SUCCEEDED
    assert world.trail() == ["created", "started", "progressed", "steps_settled", "rules_passed"]
    assert world.trail("b") == ["planned", "dependencies_met", "claimed", "completed", "rules_passed"]


def test_while_all_goes_well_no_column_changes_but_the_hot_ones() -> None:
    """The store writes fewer columns then; `audit` holds every such promise against the rows."""
    world = World(*sequence(work("a"), work("b"), work("c")))
    promised = []
    for name in "abc":
        world.claim(name)
        promised.append(world.last.only_hot)
        world.report(name, Completed())
        promised.append(world.last.only_hot)
    assert promised == [True] * 6


def test_a_failure_changes_more_than_the_hot_columns() -> None:
    world = World(work("a"))
    world.fail("a", Category.TRANSIENT)
    assert not world.last.only_hot


def test_steps_of_one_dependency_run_in_parallel_and_a_join_waits_for_both() -> None:
    """000 §5.1, with its own example; 003 §1.2: join behaviour is all-of."""
    world = World(work("a"), work("b", "a"), work("c", "a"), work("d", "b", "c"))
    assert world.ready() == ["a"]
    world.finish("a")
    assert world.ready() == ["b", "c"]
    world.finish("c")
    assert world.ready() == ["b"]
    assert world.state("d") is S.PENDING
    world.finish("b")
    assert world.ready() == ["d"]
    world.finish("d")
    assert world.run.state is RunState.SUCCEEDED


def test_two_branches_that_end_in_one_transaction_open_their_join_once() -> None:
    world = World(work("a"), work("b"), work("join", "a", "b"))
    world.claim("a", "b")
    world.send(world.reporting("a", Completed()), world.reporting("b", Completed()))
    assert world.trail("join") == ["planned", "dependencies_met"]


def test_a_step_that_is_not_ready_cannot_be_claimed() -> None:
    """002 "a worker must never execute step side effects without first claiming"; 003 §2 eligibility."""
    world = World(*sequence(work("a"), work("b")))
    with pytest.raises(Conflict, match="nothing to claim"):
        world.claim("b")


def test_a_claimed_step_cannot_be_claimed_by_another_worker() -> None:
    world = World(work("a"))
    world.claim("a", worker=1)
    with pytest.raises(Conflict, match="nothing to claim"):
        world.claim("a", worker=2)
    assert world.row("a").worker == 1


@pytest.mark.parametrize("step", [gate("g"), wait("g", "paid")], ids=["gate", "wait"])
def test_a_worker_never_claims_a_gate_or_a_wait(step: object) -> None:
    """001 "Worker never executes APPROVAL"."""
    world = World(step)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="nothing to claim"):
        world.claim("g")


def test_an_event_about_a_step_that_the_run_does_not_have_is_refused_alone() -> None:
    world = World(work("a"))
    far = {"tenant": "t", "run_id": "r", "actor": "x", "no": 99}
    replies = world.send(
        StepClaimed(worker=1, lease=LEASE, **far),  # type: ignore[arg-type]
        StepReported(worker=1, fence=1, outcome=Completed(), **far),  # type: ignore[arg-type]
        TimeCame(**far),  # type: ignore[arg-type]
        GateDecided(approve=True, **far),  # type: ignore[arg-type]
        world.claiming("a"),
    )
    assert [type(reply) for reply in replies[:4]] == [NotFound] * 4
    assert world.state("a") is S.RUNNING


# -- conditions -------------------------------------------------------------------------------------------------------
def _broken(_: ConditionView) -> bool:
    raise ExpressionError("no such field")


def test_a_step_whose_condition_holds_becomes_ready() -> None:
    world = World(
        work("a"),
        work("b", "a", condition="c"),
        conditions={"c": when(lambda view: view.outputs["a"] == b'{"n":1}' and view.states["a"] is S.SUCCEEDED, "a")},
    )
    world.finish("a", output=b'{"n":1}')
    assert world.ready() == ["b"]


def test_a_step_whose_condition_is_false_is_skipped_and_the_run_may_succeed() -> None:
    """Design §3: pending → skipped, "condition false"."""
    world = World(*sequence(work("a"), work("b", condition="no")), conditions={"no": when(lambda _: False)})
    world.finish("a")
    assert world.trail("b") == ["planned", "condition_false"]
    assert world.run.state is RunState.SUCCEEDED


def test_a_condition_may_read_the_runs_input() -> None:
    condition = when(lambda view: view.input == b'{"go":true}', input=True)
    assert World(work("a", condition="c"), conditions={"c": condition}, given=b'{"go":true}').ready() == ["a"]
    world = World(work("a", condition="c"), conditions={"c": condition}, given=b"{}", start=False)
    world.start()
    assert world.run.state is RunState.SUCCEEDED


def test_the_conditions_of_a_fan_out_ask_for_all_that_they_read_at_once() -> None:
    """Each question begins the decision anew, inside the transaction, with every condition evaluated so far."""
    evaluated: list[str] = []

    def reading(name: str) -> When:
        def read(view: ConditionView) -> bool:
            evaluated.append(name)
            return view.outputs[name] == b"1" and view.input == b"7"

        return when(read, name, input=True)

    early = [f"e{n}" for n in range(30)]
    late = [work(f"l{n}", "hub", condition=f"c{n}") for n in range(30)]
    world = World(
        *(work(name) for name in early),
        work("hub", *early),
        *late,
        conditions={f"c{n}": reading(f"e{n}") for n in range(30)},
        given=b"7",
        watched=False,
    )
    for name in early:
        world.finish(name, output=b"1")
    evaluated.clear()
    world.finish("hub")
    assert sorted(world.ready()) == sorted(f"l{n}" for n in range(30))
    assert world.rounds <= 4
    assert len(evaluated) == 30, "once each"


def test_a_condition_reads_what_a_gate_a_wait_and_a_person_said() -> None:
    said: dict[str, bytes | None] = {}

    def read(view: ConditionView) -> bool:
        said.update(view.outputs)
        return True

    world = World(
        gate("g"), wait("w", "paid"), work("z", "g", "w", condition="c"), conditions={"c": when(read, "g", "w")}
    )
    world.approve("g", comment="fine")
    world.tell("paid", payload=b'{"sum":3}')
    assert b'"decision":"approved"' in (said["g"] or b"")
    assert said["w"] == b'{"sum":3}'


def test_a_condition_that_cannot_be_evaluated_fails_its_step_under_the_steps_policy() -> None:
    """000 §3.1 validation: abort the step, log the error."""
    world = World(*sequence(work("a"), work("b", condition="x"), work("c")), conditions={"x": when(_broken)})
    world.finish("a")
    assert world.states() == {"a": "succeeded", "b": "failed", "c": "cancelled"}
    assert (world.run.state, world.run.category) == (RunState.FAILED, Category.VALIDATION)
    assert "no such field" in (world.row("b").error or "")


def test_a_broken_condition_is_tolerated_where_failures_are() -> None:
    steps = sequence(work("a", condition="x", on_failure=OnFailure.SKIP), work("b"))
    world = World(*steps, conditions={"x": when(_broken)})
    assert world.states() == {"a": "skipped", "b": "ready"}
    assert world.row("a").category is Category.VALIDATION


def test_a_run_can_start_when_a_skipped_root_is_read_by_the_next_condition() -> None:
    seen: list[tuple[bytes | None, StepState]] = []

    def look(view: ConditionView) -> bool:
        seen.append((view.outputs["a"], view.states["a"]))
        return True

    world = World(
        *sequence(work("a", condition="no"), work("b", condition="look")),
        conditions={"no": when(lambda _: False), "look": when(look, "a")},
    )
    assert world.ready() == ["b"]
    assert set(seen) == {(None, S.SKIPPED)}


def test_a_run_whose_every_step_is_skipped_at_the_start_succeeds_at_once() -> None:
    world = World(work("a", condition="no"), conditions={"no": when(lambda _: False)})
    assert world.run.state is RunState.SUCCEEDED
    assert world.run.seq == 1


# -- skips ------------------------------------------------------------------------------------------------------------
NO = {"no": when(lambda _: False)}


def test_a_skip_cascades_along_explicit_dependencies() -> None:
    """Design §4: "explicit depends_on: no, skip cascades"; 000 §2 "skipped due to upstream"."""
    world = World(work("a", condition="no"), work("b", "a"), work("c", "b"), work("d"), conditions=NO)
    assert world.states() == {"a": "skipped", "b": "skipped", "c": "skipped", "d": "ready"}
    assert world.trail("c") == ["planned", "dependency_unmet"]


def test_an_edge_that_allows_skipped_goes_on() -> None:
    """Design §4: "written {step, allow: [skipped]}: yes"; 000's fan-in needs it."""
    world = World(work("a", condition="no"), work("b", allowing("a", S.SKIPPED)), conditions=NO)
    assert world.states() == {"a": "skipped", "b": "ready"}


def test_a_plain_sequence_goes_on_after_a_skip() -> None:
    """000 §3.3 skip: "Skip this step, continue with next"."""
    world = World(*sequence(work("a", condition="no"), work("b")), conditions=NO)
    assert world.states() == {"a": "skipped", "b": "ready"}


def test_a_join_is_skipped_as_soon_as_one_of_its_dependencies_is() -> None:
    """003 §1.2: downstream starts only after all required predecessors are Succeeded."""
    world = World(work("a"), work("b", condition="no"), work("join", "a", "b"), conditions=NO)
    assert world.state("join") is S.SKIPPED
    world.finish("a")
    assert world.trail("join") == ["planned", "dependency_unmet"]
    assert world.run.state is RunState.SUCCEEDED


def test_a_rejected_gate_poisons_everything_downstream_even_where_skips_are_allowed() -> None:
    """Design §4 Rejection: "a rejected gate never satisfies a dependency, not even in a sequence"."""
    steps = sequence(gate("g", on_failure=OnFailure.SKIP), work("a"), work("b"))
    world = World(*steps, work("free"))
    world.reject("g")
    assert world.states() == {"g": "skipped", "a": "skipped", "b": "skipped", "free": "ready"}
    world.finish("free")
    assert world.run.state is RunState.SUCCEEDED


# -- chained claims ---------------------------------------------------------------------------------------------------
def test_a_worker_with_room_gets_what_its_report_made_ready() -> None:
    """Design §6: chained claim."""
    world = World(*sequence(work("a"), work("b")))
    world.claim("a")
    world.report("a", Completed(), claimer=claimer())
    assert [step.no for step in world.last.claimed] == [1]
    assert (world.state("b"), world.row("b").due_at) == (S.RUNNING, world.now + LEASE)


def test_chained_claims_take_no_more_than_there_is_room_for_in_dispatch_order() -> None:
    """003 §1.2: deterministic dispatch, order ascending."""
    world = World(work("a"), *(work(f"b{place}", "a") for place in range(4)))
    world.claim("a")
    world.report("a", Completed(), claimer=claimer(slots=2))
    assert [step.no for step in world.last.claimed] == [1, 2]
    assert world.ready() == ["b2", "b3"]


def test_a_chained_claim_never_overtakes_a_ready_step_with_a_lower_number() -> None:
    """003 §1.2: p, q and r are ready; what follows p waits until q and r were claimed."""
    world = World(work("p"), work("q"), work("r"), work("s", "p"), work("t", "q"), work("u", "r"))
    world.claim("p")
    world.report("p", Completed(), claimer=claimer(slots=3))
    assert world.last.claimed == ()
    assert world.ready() == ["q", "r", "s"]


def test_a_claim_is_refused_while_a_loaded_step_of_the_workers_queues_comes_first() -> None:
    """003 §1.2. A step of a queue that the worker does not serve holds up nothing."""
    world = World(work("a"), work("b"))
    queues = frozenset({world.row("a").queue, world.row("b").queue})
    snapshot = world.snapshot()
    claim = replace(world.claiming("b"), queues=queues)
    refused = must_decide(snapshot, [claim], world.now, None).replies[0]
    assert isinstance(refused, Conflict)
    assert "step 0 of run r is ready; it comes before step 1" in str(refused)
    both = must_decide(snapshot, [replace(world.claiming("a"), queues=queues), claim], world.now, None)
    assert [step.no for step in both.claimed] == [0, 1]
    only_b = replace(claim, queues=frozenset({world.row("b").queue, 99}))
    accepted = world.row("a").queue == world.row("b").queue
    assert isinstance(must_decide(snapshot, [only_b], world.now, None).replies[0], Conflict) == accepted


def test_chained_claims_take_only_from_the_workers_queues() -> None:
    """004 queued → running: "Worker with required capabilities available"."""
    world = World(work("a"), work("b", "a"), work("c", "a"))
    world.claim("a")
    world.report("a", Completed(), claimer=claimer(slots=5, queues={world.row("c").queue}))
    assert (world.state("b"), world.state("c")) == (S.READY, S.RUNNING)


def test_chained_claims_from_blocking_queues_have_a_limit_of_their_own_and_leave_the_rest_to_others() -> None:
    world = World(work("a"), *(work(name, "a") for name in ("b", "c", "d", "e")))
    world.claim("a")
    blocking = frozenset(world.row(name).queue for name in ("b", "c", "d"))
    world.report("a", Completed(), claimer=replace(claimer(slots=3), blocking=blocking, blocking_slots=2))
    assert world.ready() == ["d"]
    assert [step.no for step in world.last.claimed] == [1, 2, 4]


def test_all_slots_still_limit_what_is_chained_from_blocking_queues() -> None:
    world = World(work("a"), work("b", "a"), work("c", "a"))
    world.claim("a")
    world.report(
        "a", Completed(), claimer=replace(claimer(slots=1), blocking=frozenset(range(1, 100)), blocking_slots=9)
    )
    assert world.ready() == ["c"]


def test_a_worker_that_has_chained_steps_has_less_room_of_each_kind() -> None:
    world = World(work("a"), work("b", "a"), work("c", "a"))
    world.claim("a")
    worker = replace(claimer(slots=5), blocking=frozenset({world.row("b").queue}), blocking_slots=3)
    world.report("a", Completed(), claimer=worker)
    left = worker.having(world.last.claimed)
    assert (left.slots, left.blocking_slots) == (3, 2)
    assert left.queues == worker.queues


def test_a_chained_claim_without_a_lease_of_its_own_uses_the_definitions() -> None:
    world = World(*sequence(work("a"), work("b")), lease=77)
    world.claim("a")
    chained = claimer()
    world.report("a", Completed(), claimer=type(chained)(chained.actor, 1, None, 1, chained.queues))
    assert world.row("b").due_at == world.now + 77


def test_the_worker_that_releases_a_step_is_not_given_it_again() -> None:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Released(), claimer=claimer())
    assert world.last.claimed == ()
    assert world.ready() == ["a"]


def test_a_refused_report_chains_nothing() -> None:
    world = World(work("a"), work("b", "a"), work("c"))
    world.claim("a")
    (reply,) = world.send(world.reporting("a", Completed(), fence=9), claimer=claimer(slots=9))
    assert isinstance(reply, Exception)
    assert world.last.claimed == ()


def test_what_is_claimed_and_cancelled_in_one_transaction_is_not_handed_out() -> None:
    world = World(work("a"))
    world.send(world.claiming("a"), CancelRequested(tenant="t", run_id="r", actor="cyd"))
    assert world.last.claimed == ()
    assert world.run.state is RunState.CANCELLED
    assert world.attempts_of("a") == ["cancelled"]


# -- determinism ------------------------------------------------------------------------------------------------------
def test_the_same_question_has_the_same_answer_to_the_byte() -> None:
    """003 §5: "Scheduler decisions must be deterministic for equivalent input state"."""
    world = World(work("a"), work("b", "a"), work("c", "a"), work("d", "b", "c"))
    world.claim("a")
    event = world.reporting("a", Completed(output=b"1"))
    decisions = {bytes_of(must_decide(world.snapshot(), [event], world.now, claimer(slots=3))) for _ in range(20)}
    assert len(decisions) == 1


def test_one_bad_event_is_refused_alone() -> None:
    """Design §6: "One bad event is refused alone, never with its batch"."""
    world = World(work("a"), work("b"))
    world.claim("a", "b")
    replies = world.send(
        world.reporting("a", Failed(category=Category.UNKNOWN, error="x"), fence=7), world.reporting("b", Completed())
    )
    assert isinstance(replies[0], Exception)
    assert (world.state("a"), world.state("b")) == (S.RUNNING, S.SUCCEEDED)


def test_a_decision_is_no_decision_when_every_event_was_refused() -> None:
    world = World(work("a"))
    before = world.run
    world.send(world.reporting("a", Completed(), fence=3))
    assert world.last.entry is None
    assert world.run == before
