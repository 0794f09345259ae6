"""True logs of steps that people complete, or that lose their workers, in the words of every dialect."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.tellings import found_in, log_in
from tests.kernel.driver import World, work

import stepkeep as sk
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.registry import judged, names
from stepkeep.kernel.definition import OnExhausted, Retry
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep_lab.forgeries.material import CANONICAL


def fail_to_call() -> dict[str, bool]:
    raise ConnectionError("no route")


def test_the_rules_of_a_step_that_was_completed_by_hand_are_judged_beyond_its_attempts(tmp_path: Path) -> None:
    flow = sk.Workflow("held")
    once = sk.Retry(max_attempts=1)
    flow.step("call", fail_to_call, inputs={}, retry=once, on_exhausted="hold", rules=["output.ok"], effect="read")
    with sk.Engine(f"sqlite:///{tmp_path / 'held.db'}") as engine:
        run = engine.run(flow).run_id
        engine.decide(run, "call", "complete", output={"ok": True}, reason="called by phone", by="bea")
        assert engine.work_on(run).state == "succeeded"
        assert engine.certify(run).ok
        for dialect in ("ioa", "run", "linear", "action", "workstream"):
            assert replay_lines(engine.log(run, as_=dialect), judged(dialect)).findings == (), dialect


@pytest.mark.parametrize("words", [CANONICAL, *names()])
def test_a_decision_about_one_step_cancels_another_that_holds(words: str) -> None:
    """The step that the decision is about did not hold; the other one did, and a dialect may hide that."""
    once = Retry(max_attempts=1)
    world = World(work("held", retry=once, on_exhausted=OnExhausted.HOLD), work("stuck"))
    world.claim("held")
    world.lose("held")
    world.decide_hold("stuck", HoldChoice.FAIL, reason="no worker comes")
    assert world.trail("held")[-2:] == ["held_exhausted", "cancelled"]
    assert found_in(words, log_in(words, world)) == ()
