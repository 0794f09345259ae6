"""Maps and loops: elements that are added to a running plan, bounded, told to their owner, and undone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kernel.driver import LEASE, World, work

from stepkeep.kernel.composition.segments import lay_out, read_element_name, segment_at
from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Decision, Snapshot
from stepkeep.kernel.definition import SECOND, Approval, Loop, Map, Rule
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, Failed, RulesFailed
from stepkeep.kernel.machine.states import Category, OnFailure, Rollback, RunState, StepState

S = StepState


def mapped(count: int, *, settings: dict[str, Any] | None = None, undo: bool = False, **growth: Any) -> World:
    """A run of one map over the input, which has this many items, and a step after it."""
    over = Map(over="${{ input }}", **{"max": 50, "in_flight": 2, **growth})
    given = json.dumps(list(range(count))).encode()
    return World(work("each", growth=over, undo=undo, **(settings or {})), work("after", "each"), given=given)


def looped(*, settings: dict[str, Any] | None = None, **growth: Any) -> World:
    loop = Loop(**{"max": 3, "until": "last == 'done'", **growth})
    return World(work("poll", growth=loop, **(settings or {})), given=b"{}")


def output(world: World, name: str) -> Any:
    note = world.row(name).note
    return None if note is None or note.output is None else json.loads(note.output)


class TestMap:
    def test_only_so_many_elements_exist_unsettled_as_may_be_in_flight(self) -> None:
        world = mapped(5)
        assert world.ready() == ["each[0]", "each[1]"]
        world.finish("each[1]", output=b"1")
        assert world.ready() == ["each[0]", "each[2]"]
        assert world.row("each").unmet == 4

    def test_the_results_are_joined_in_the_order_of_the_list(self) -> None:
        world = mapped(3, in_flight=3)
        for index in (2, 0, 1):
            world.finish(f"each[{index}]", output=str(index * 10).encode())
        assert output(world, "each") == [0, 10, 20]
        assert world.trail("each") == ["planned", "children_started", "children_succeeded", "rules_passed"]
        assert world.ready() == ["after"]

    def test_a_map_over_nothing_succeeds_at_once(self) -> None:
        world = mapped(0)
        assert (world.state("each"), output(world, "each"), world.ready()) == (S.SUCCEEDED, [], ["after"])

    @pytest.mark.parametrize("given", [b"3", b'{"a": 1}'])
    def test_what_is_no_list_fails_the_owner(self, given: bytes) -> None:
        world = World(work("each", growth=Map(over="${{ input }}")), given=given)
        assert world.run.state is RunState.FAILED
        assert "not to a list" in (world.row("each").error or "")

    def test_a_list_that_is_null_is_told_as_null_because_an_empty_list_is_no_mistake(self) -> None:
        world = World(work("each", growth=Map(over="${{ input }}")), given=b"null")
        assert world.row("each").error == "its elements cannot be determined: `over` comes to null, not to a list."

    def test_a_list_that_is_longer_than_its_bound_fails_the_owner_and_adds_nothing(self) -> None:
        world = mapped(4, max=3)
        assert world.states() == {"each": "failed", "after": "cancelled"}
        assert world.row("each").error == "its list has 4 items, and it takes at most 3"

    def test_a_failure_stops_the_rest_and_fails_the_run_through_its_owner(self) -> None:
        world = mapped(5, in_flight=3)
        world.fail("each[1]")
        assert world.states() == {
            "each": "failed", "after": "cancelled", "each[0]": "cancelled", "each[1]": "failed", "each[2]": "cancelled",
        }  # fmt: skip
        assert world.run.error == "each[1] failed: no good"

    def test_the_owner_waits_for_elements_that_workers_hold(self) -> None:
        world = mapped(5, in_flight=3)
        world.claim("each[0]", "each[1]")
        world.fail("each[1]")
        assert (world.state("each"), world.state("each[2]"), world.run.state) == (
            S.AWAITING_CHILDREN, S.CANCELLED, RunState.RUNNING,
        )  # fmt: skip
        world.report("each[0]", Completed(output=b"0"))
        assert (world.state("each"), world.run.state) == (S.FAILED, RunState.FAILED)

    def test_after_the_grace_period_it_fences_them_off(self) -> None:
        world = mapped(5, in_flight=2)
        world.claim("each[0]", "each[1]", lease=3_600 * SECOND)
        world.fail("each[1]")
        world.later(world.plan.definition.grace, "each")
        assert (world.state("each[0]"), world.state("each")) == (S.CANCELLED, S.FAILED)

    def test_tolerated_failures_are_skipped_and_have_no_result(self) -> None:
        world = mapped(4, tolerate=1)
        world.finish("each[0]", output=b"0")
        world.fail("each[1]")
        world.finish("each[2]", "each[3]", output=b"9")
        assert (world.state("each[1]"), output(world, "each")) == (S.SKIPPED, [0, None, 9, 9])

    def test_a_share_is_of_the_whole_list(self) -> None:
        world = mapped(10, tolerate_share=0.2, in_flight=10)
        world.fail("each[3]")
        world.fail("each[4]")
        assert world.state("each") is S.AWAITING_CHILDREN
        world.fail("each[5]")
        assert world.state("each") is S.FAILED

    def test_without_early_stop_every_element_runs(self) -> None:
        world = mapped(3, in_flight=1, early_stop=False)
        world.fail("each[0]")
        world.finish("each[1]", "each[2]")
        assert world.state("each") is S.FAILED
        assert world.row("each").error == "each[0] failed: no good"

    def test_an_owner_that_may_fail_leaves_no_failed_element_in_a_run_that_succeeds(self) -> None:
        world = mapped(3, settings={"on_failure": OnFailure.SKIP})
        world.fail("each[0]")
        assert (world.state("each"), world.state("each[0]")) == (S.SKIPPED, S.SKIPPED)

    def test_a_lost_worker_costs_an_attempt_of_one_element(self) -> None:
        world = mapped(2)
        world.lose("each[0]")
        world.finish("each[0]", "each[1]")
        assert (world.state("each"), world.row("each[0]").attempts) == (S.SUCCEEDED, 1)

    def test_the_deadline_cancels_every_element(self) -> None:
        world = mapped(4, deadline=5 * SECOND)
        world.claim("each[0]")
        world.later(5 * SECOND, "each")
        assert [world.state(f"each[{index}]") for index in range(2)] == [S.CANCELLED, S.CANCELLED]
        assert (world.row("each").category, world.run.state) == (Category.TIMEOUT, RunState.FAILED)

    def test_rules_of_the_step_hold_for_each_element(self) -> None:
        world = mapped(1, settings={"rules": (Rule(expression="true"),)})
        world.claim("each[0]")
        world.report("each[0]", Completed(output=b"1"))
        world.report("each[0]", RulesFailed(error="too small"))
        assert (world.state("each[0]"), world.state("each")) == (S.FAILED, S.FAILED)

    def test_a_rollback_undoes_elements_last_first(self) -> None:
        world = mapped(3, undo=True, settings={"on_failure": OnFailure.COMPENSATE})
        world.finish("each[0]", "each[1]")
        world.fail("each[2]")
        assert (world.run.state, world.ready()) == (RunState.COMPENSATING, ["undo:each[1]"])
        world.finish("undo:each[1]", "undo:each[0]")
        assert (world.run.state, world.run.rollback) == (RunState.ROLLED_BACK, Rollback.COMPLETE)

    def test_a_cancel_cancels_owner_and_elements(self) -> None:
        world = mapped(5)
        world.claim("each[0]")
        world.cancel()
        assert set(world.states().values()) == {"cancelled"}

    def test_an_approved_hold_begins_with_the_elements(self) -> None:
        world = mapped(2, settings={"hold": Approval()})
        assert world.ready() == []
        world.approve("each")
        assert world.ready() == ["each[0]", "each[1]"]
        assert world.trail("each")[-2:] == ["hold_approved", "children_started"]

    def test_the_journal_says_by_how_much_the_plan_has_grown(self) -> None:
        world = mapped(3)
        entries = [open_entry(body) for body in world.bodies]
        grown = [cause.detail["plan_grown"] for entry in entries for cause in entry.causes if _grew(cause)]
        assert [record["each"]["count"] for record in grown] == [3]

    def test_the_end_of_one_element_writes_it_its_owner_and_the_next(self) -> None:
        """A decision about one of 10,000 elements must not write, nor read, 10,000 rows."""
        world = mapped(50, in_flight=10)
        world.finish("each[0]", output=b"0")
        assert (world.touched, len(world.ready())) == (3, 10)

    def test_it_reads_no_other_row(self) -> None:
        world = mapped(50, in_flight=10)
        world.claim("each[0]")
        event = world.reporting("each[0]", Completed(output=b"0"))
        rows = {no: world.rows[no] for no in (world.no("each"), world.no("each[0]"))}
        decision = decide(Snapshot(plan=world.plan, run=world.run, steps=rows), [event], world.now)
        assert isinstance(decision, Decision)
        assert [world.plan.at(row.no).name for row in decision.added] == ["each[10]"]


def _grew(cause: Any) -> bool:
    return cause.detail is not None and "plan_grown" in cause.detail


class TestLoop:
    def test_one_element_follows_the_other_until_the_condition_holds(self) -> None:
        world = looped()
        world.finish("poll[0]", output=b'"not yet"')
        assert world.ready() == ["poll[1]"]
        world.finish("poll[1]", output=b'"done"')
        assert (world.run.state, output(world, "poll")) == (RunState.SUCCEEDED, "done")

    def test_its_bound_fails_it(self) -> None:
        world = looped(max=2)
        world.finish("poll[0]", "poll[1]", output=b'"no"')
        assert world.row("poll").error == "it did not end within 2 elements"

    def test_a_while_is_asked_before_the_first_element(self) -> None:
        world = looped(until=None, as_long_as="index > 3")
        assert (world.state("poll"), world.states()) == (S.SUCCEEDED, {"poll": "succeeded"})

    def test_a_pause_lies_between_two_elements(self) -> None:
        world = looped(pause=10 * SECOND)
        world.finish("poll[0]", output=b'"no"')
        assert (world.run.state, world.ready()) == (RunState.BLOCKED, [])
        world.later(9 * SECOND, "poll")
        assert world.ready() == []
        world.later(SECOND, "poll")
        assert (world.run.state, world.ready()) == (RunState.RUNNING, ["poll[1]"])

    def test_its_deadline_ends_a_pause(self) -> None:
        world = looped(pause=10 * SECOND, deadline=3 * SECOND)
        world.finish("poll[0]", output=b'"no"')
        world.later(3 * SECOND, "poll")
        assert world.row("poll").category is Category.TIMEOUT

    def test_a_failed_element_fails_it(self) -> None:
        world = looped()
        world.fail("poll[0]")
        assert (world.state("poll"), world.run.error) == (S.FAILED, "poll[0] failed: no good")

    def test_an_element_that_is_tried_again_is_the_same_element(self) -> None:
        world = looped()
        world.claim("poll[0]")
        world.report("poll[0]", Failed(category=Category.TRANSIENT, error="busy"))
        world.later(LEASE, "poll[0]")
        world.finish("poll[0]", output=b'"done"')
        assert world.run.state is RunState.SUCCEEDED

    def test_a_condition_that_cannot_be_evaluated_fails_it(self) -> None:
        world = looped(until="last.missing == 1")
        world.finish("poll[0]", output=b'{"other": 1}')
        assert world.row("poll").category is Category.VALIDATION


class TestNumbers:
    def test_segments_lie_behind_the_plan_one_after_the_other(self) -> None:
        first, second = segments = lay_out(7, [(0, 10, False), (2, 5, False)])
        assert (first.element(9), first.undo(0), second.first, second.end) == (16, 17, 27, 37)
        assert [segment_at(segments, no) for no in (6, 7, 26, 27, 36, 37)] == [None, first, first, second, second, None]

    @pytest.mark.parametrize("name", ["each", "each[]", "each[01]", "each[-1]", "each[1", "[1]"])
    def test_other_names_are_no_elements(self, name: str) -> None:
        assert read_element_name(name) is None

    def test_names_and_numbers_of_elements_belong_together(self) -> None:
        plan = mapped(1, undo=True).plan
        for name in ("each[0]", "each[49]", "undo:each[7]"):
            number = plan.number(name)
            assert number is not None
            assert plan.at(number).name == plan.name_of(number) == name
        assert plan.number("each[50]") is None
        assert plan.number("other[0]") is None
