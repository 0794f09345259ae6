"""Each kind of step has a row in the tables that are asked about kinds."""

import pytest

from stepkeep.kernel.composition.elements import OWNERS
from stepkeep.kernel.decide.progress import OPENINGS
from stepkeep.kernel.definition import Handler, StepDefinition, SubWorkflow, Then
from stepkeep.kernel.kinds import (
    ChildStep,
    ChildUndoStep,
    ChoiceStep,
    FlowStep,
    LoopStep,
    MapStep,
    StepKind,
    UnreadStep,
    WorkStep,
)

KINDS = StepKind.__subclasses__()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not ChildUndoStep])
def test_each_kind_of_main_step_can_open(kind: type[StepKind]) -> None:
    assert kind in OPENINGS


def test_a_rollback_of_a_child_does_not_open_like_a_main_step() -> None:
    assert ChildUndoStep in KINDS
    assert ChildUndoStep not in OPENINGS


def test_each_kind_that_owns_elements_goes_on_with_them_but_for_flows() -> None:
    """A flow is resumed by its worker."""
    owners = {kind for kind in KINDS if kind.growth is not StepKind.growth}
    assert owners == {WorkStep, MapStep, LoopStep, ChoiceStep, FlowStep}
    assert set(OWNERS) == owners - {FlowStep}


def test_a_worker_claims_what_it_runs_and_nothing_that_waits() -> None:
    assert {kind for kind in KINDS if kind.is_claimed} == {WorkStep, FlowStep}
    assert not any(kind.is_claimed and kind.only_waits for kind in KINDS)


def test_a_kind_is_called_by_its_executor_and_else_by_its_own_word() -> None:
    handler = Handler(name="pay")
    assert WorkStep(executor=handler).title == "python"
    assert WorkStep(executor=handler, adds=Then()).title == "then"
    child = ChildStep(child=SubWorkflow(workflow="ship"))
    assert (child.title, child.log_title, child.policy_title) == ("workflow", "none", "wait")
    assert UnreadStep().title == "none"


def test_only_a_map_and_a_step_that_adds_bear_the_failure_of_an_element() -> None:
    element = StepDefinition(name="one", order=0)
    assert not UnreadStep().tolerates(0, 10, element)
    assert not WorkStep(executor=Handler(name="pay"), adds=Then()).tolerates(0, 10, element)
