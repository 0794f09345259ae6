"""The example runs: real handlers on a real worker, each of the things its comments promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stepkeep import AsyncEngine
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.registry import HandlerSpec, Registry, default_registry
from stepkeep.dialects.action.machine import JUDGED
from stepkeep.dialects.registry import load_file
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.runs.projected import describe_run_as, dialect_log
from stepkeep.worker.context import Context

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
View = dict[str, Any]


class Office:
    """The example's workflow, and the one handler that hands a token to a person."""

    def __init__(self, engine: AsyncEngine, tokens: list[str]) -> None:
        self.engine, self.tokens = engine, tokens
        self.run_id = ""

    async def begin(self, **given: Any) -> RunState:
        """Start a run and work until it ends or waits for people."""
        definition = load_file(EXAMPLES / "action.yaml", self.engine.registry)
        result = await self.engine.run(definition, {"invoice": "i-17", "difference": 250} | given)
        self.run_id = result.id
        return result.state

    async def go_on(self) -> RunState:
        return (await self.engine.work_on(self.run_id)).state

    async def view(self) -> View:
        transactor, tenant = self.engine.transactor, self.engine.tenant
        lines = await dialect_log(transactor, self.run_id, "action", tenant=tenant)
        assert replay_lines(map(encode_line, lines), JUDGED).findings == ()
        return await describe_run_as(transactor, self.run_id, "action", tenant=tenant)


def handlers(tokens: list[str]) -> Registry:
    load_app(str(EXAMPLES / "action_handlers.py"))
    chosen = Registry()
    for spec in default_registry:
        if ":" in spec.name and spec.name != "posting:confirm":
            chosen.register(spec)

    def confirm(ctx: Context) -> None:
        assert ctx.completion_token is not None
        tokens.append(ctx.completion_token)

    chosen.register(HandlerSpec(name="posting:confirm", function=confirm))
    return chosen


@asynccontextmanager
async def play(url: str) -> AsyncIterator[Office]:
    tokens: list[str] = []
    async with AsyncEngine(url, actor="ada", registry=handlers(tokens)) as engine:
        yield Office(engine, tokens)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stepkeep.db"


def statuses(view: View) -> dict[str, str]:
    return {each["actionId"]: each["status"] for each in view["actions"]}


async def test_a_correction_is_approved_confirmed_by_hand_and_done(database_url: str) -> None:
    async with play(database_url) as office:
        assert await office.begin(flaky_at="invoice:write") is RunState.BLOCKED
        view = await office.view()
        assert view["status"] == "WaitingForApproval"
        assert [attempt["outcome"] for attempt in view["actions"][1]["attempts"]] == ["Failed", "Succeeded"]
        await office.engine.approve(office.run_id, "charge")
        assert await office.go_on() is RunState.BLOCKED
        assert statuses(await office.view())["confirm"] == "WaitingForManualCompletion"
        await office.engine.complete(office.run_id, "confirm", token=office.tokens[-1], notes="posted")
        view = await office.view()
        assert view["status"] == "Succeeded"
        assert set(statuses(view).values()) == {"Succeeded"}
        assert view["actions"][1]["output"] == {"invoice": "i-17-corrected", "amount": 1250}


async def test_a_failed_charge_takes_the_correction_back(url: str) -> None:
    async with play(url) as office:
        await office.begin(fail_at="payment:capture")
        await office.engine.approve(office.run_id, "charge")
        await office.go_on()
        view = await office.view()
        assert view["status"] == "Failed"
        assert statuses(view) == {
            "read": "Succeeded",
            "correct": "Succeeded",
            "notify": "Succeeded",
            "charge": "Failed",
            "confirm": "Cancelled",
        }
        told = view["compensation"]
        assert [(each["actionId"], each["outcome"]) for each in told["actions"]] == [("correct", "Succeeded")]
        assert (told["status"], told["notCompensable"]) == ("partial", ["notify"])
        hook = next(step for step in (await office.engine.show(office.run_id))["steps"] if step["phase"] == "undo")
        assert hook["output"]["because"] == "the correction of i-17 was not completed"
        assert hook["output"]["key"] == f"{office.run_id}:correct:compensate"


@pytest.mark.parametrize(
    ("given", "error"),
    [({"stuck_at": "invoice:reverse"}, "business_conflict"), ({"difference": 0}, "validation")],
    ids=["the hook fails", "its input does not fit its schema"],
)
async def test_a_compensation_that_fails_is_told_and_leaves_the_run_failed(url: str, given: View, error: str) -> None:
    async with play(url) as office:
        await office.begin(fail_at="payment:capture", **given)
        await office.engine.approve(office.run_id, "charge")
        await office.go_on()
        view = await office.view()
        assert view["status"] == "Failed"
        [hook] = view["compensation"]["actions"]
        assert (hook["outcome"], hook["error"]["class"]) == ("Failed", error)


async def test_a_message_that_takes_too_long_times_out_twice_and_fails(url: str) -> None:
    async with play(url) as office:
        await office.begin(slow_at="message:send")
        view = await office.view()
        notify = view["actions"][2]
        assert [attempt["outcome"] for attempt in notify["attempts"]] == ["timeout", "timeout"]
        assert (notify["status"], view["status"]) == ("Failed", "Failed")
        assert statuses(view)["charge"] == "Cancelled"


@pytest.mark.parametrize("how", ["reject", "cancel"])
async def test_a_run_that_waits_for_approval_is_rejected_or_cancelled(url: str, how: str) -> None:
    async with play(url) as office:
        await office.begin()
        if how == "cancel":
            await office.engine.cancel(office.run_id)
        else:
            await office.engine.reject(office.run_id, "charge", comment="wrong customer")
            await office.go_on()
        view = await office.view()
        assert view["status"] == ("Cancelled" if how == "cancel" else "Failed")
        assert ("compensation" in view) == (how == "reject")
