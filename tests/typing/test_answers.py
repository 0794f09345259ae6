"""Answers have types all the way down: mypy checks each expression here, and the tests its value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, assert_type

from msgspec import UnsetType

import stepkeep as sk
from stepkeep.kernel.machine.states import AttemptState, Phase, RunState, StepState, WorkerState
from stepkeep.operations.people.approvals import OpenGate
from stepkeep.operations.runs.diagnosis import CauseView
from stepkeep.operations.runs.run_answers import PastView, RunView, StepOfBoth, StepView, Waiting

HANDLERS = sk.Registry()


@sk.step(registry=HANDLERS)
def pay() -> dict[str, str]:
    return {"receipt": "r-7"}


def make_order() -> sk.Workflow:
    order = sk.Workflow("order", registry=HANDLERS)
    order.step("pay", pay)
    order.approval("sign-off", prompt="Ship it?", facts={"receipt": "${{ steps.pay.output.receipt }}"}, after="pay")
    return order


def test_an_engine_answers_with_values_whose_types_are_known(tmp_path: Path) -> None:
    with sk.open(tmp_path / "typed.db", actor="ann", registry=HANDLERS) as engine:
        result = engine.run(make_order())
        run = result.run_id
        assert_type(result.waiting_for, list[Waiting])
        assert assert_type(result.waiting_for[0].step, str) == "sign-off"
        view = assert_type(engine.show(run), RunView)
        assert assert_type(view.run.state, RunState) is RunState.BLOCKED
        assert assert_type(view.run.waiting_for[0].prompt, str | UnsetType) == "Ship it?"
        assert assert_type(view.steps[0].attempts[-1].error, str | None) is None
        assert assert_type(view.steps[0].attempts[-1].state, AttemptState) is AttemptState.SUCCEEDED
        assert assert_type(view.steps[0].attempt_count, int) == 1
        assert assert_type(view.steps[0].state, StepState) is StepState.SUCCEEDED
        assert assert_type(view.steps[0].phase, Phase) is Phase.MAIN
        assert assert_type(view.steps[0].cost, dict[str, float]) == {}
        shown = assert_type(engine.show(run, step="pay"), StepView)
        assert_type(shown.step.attempts[0].evidence, dict[str, Any] | None | UnsetType)
        assert assert_type(engine.show(run, at=1), PastView).run.state is RunState.QUEUED
        assert assert_type(engine.show(run, as_="ioa"), Mapping[str, Any])
        assert assert_type(engine.runs().runs[0].state, RunState) is RunState.BLOCKED
        assert assert_type(engine.runs().next, str | None) is None
        assert assert_type(engine.explain(run).causes, list[CauseView])[0].code == "approval"
        assert "sign-off" in assert_type(engine.explain(run).why, str)
        gate = assert_type(engine.approvals().approvals[0], OpenGate)
        assert assert_type(gate.shown, dict[str, Any]) == {"receipt": "r-7"}
        assert assert_type(gate.needs.approved, int) == 1
        assert assert_type(gate.not_, list[str]) == []
        status = engine.status()
        assert [assert_type(one.depth, int) for one in status.queues] == []
        assert assert_type(status.workers[0].state, WorkerState) in WorkerState
        assert assert_type(status.status.runs.live.by_state, dict[str, int]) == {"blocked": 1}
        slowest = engine.statistics().statistics.slowest_steps
        assert all(assert_type(one.mean_seconds, float) >= 0 for one in slowest)
        assert {*assert_type(engine.workers(live_only=False).workers[0].handlers, list[str])} <= {"pay"}
        assert assert_type(engine.compare_runs(run, run).steps, list[StepOfBoth]) == []
        other = engine.run(make_order(), idempotency_key="other").run_id
        differences = engine.compare_runs(run, other)
        assert [assert_type(one.only_in, Literal["first", "second"] | None) for one in differences.steps] == []


async def test_an_engine_on_a_loop_has_the_same_types(tmp_path: Path) -> None:
    async with sk.AsyncEngine(tmp_path / "typed.db", actor="ann", registry=HANDLERS) as engine:
        run = (await engine.run(make_order())).run_id
        assert assert_type((await engine.show(run)).steps[0].attempts[0].worker, str | None)
        assert assert_type((await engine.runs(limit=1)).runs[0].id, str) == run
        assert assert_type(await engine.runs(as_="ioa"), Mapping[str, Any])["next"] is None
