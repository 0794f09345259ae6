"""Agents of three frameworks in steps and flows: nothing that is on record is called again, and people decide."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents
import pytest
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

import stepkeep as sk
from stepkeep.agents import langgraph, openai_agents
from stepkeep.agents.pydantic_ai import StepkeepDurability
from tests.agents import programs
from tests.agents.programs import ANSWER, CALLS, CITIES, FRAMEWORKS, WORKFLOWS
from tests.suites import first_on, in_proof
from tests.worker.bed import PAST_THE_LEASE_US

QUESTION = {"question": "Which cities?"}


@pytest.fixture(autouse=True)
def ledger() -> list[str]:
    programs.ledger.clear()
    return programs.ledger


@pytest.fixture
def engine(database_url: str) -> Iterator[sk.Engine]:
    with sk.Engine(database_url) as engine:
        yield engine


def certified(engine: sk.Engine, result: sk.Result) -> sk.Result:
    certificate = engine.certify(result.id)
    assert certificate.ok, certificate
    return result


# -- what is on record is not called again ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_agent_gives_its_answer_in_a_step_and_in_a_flow(engine: sk.Engine, name: str, ledger: list[str]) -> None:
    result = certified(engine, engine.run(WORKFLOWS[name], QUESTION))
    assert result.output == ANSWER
    assert sorted(ledger) == sorted(CALLS)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_second_attempt_of_a_step_calls_nothing_again(engine: sk.Engine, name: str, ledger: list[str]) -> None:
    attempts: list[int] = []

    @sk.step("late", retry=sk.Retry(max_attempts=2, initial="1ms"))
    async def late(ctx: sk.Context) -> str:
        answer = await FRAMEWORKS[name]("Which cities?")
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise RuntimeError("the step fails after its agent has ended")
        return answer

    workflow = sk.Workflow("late")
    workflow.step("late", late)
    assert certified(engine, engine.run(workflow)).output == ANSWER
    assert attempts == [1, 2]
    assert sorted(ledger) == sorted(CALLS)


LIVES = [("flow-pydantic_ai", (4,)), ("step-openai_agents", (4,)), ("flow-langgraph", (3,))]
"""After which commits of its lives the worker is killed. The long form kills it after each record of a call."""


@pytest.mark.parametrize(
    ("name", "commits"), [*LIVES, *(in_proof(name, (2,) * 30, name=f"{name}, each") for name in WORKFLOWS)]
)
@first_on("sqlite")
def test_a_worker_that_is_killed_after_a_record_repeats_no_call(
    database_url: str, tmp_path: Path, name: str, commits: tuple[int, ...]
) -> None:
    """The clock of each life of the worker is past the lease of the one before. The two cities are asked about at once:
    a worker that is killed after the record of one may have asked about the other, and nothing on record says so."""
    ledger = tmp_path / "ledger"
    with sk.Engine(database_url) as engine:
        run_id = engine.start(WORKFLOWS[name], QUESTION).run_id
        ended: list[int] = []
        for left in (*commits, 0):
            given = [database_url, run_id, str(left), str(ledger), str(len(ended) * PAST_THE_LEASE_US)]
            program = [sys.executable, "-m", "tests.agents.programs", *given]
            ended.append(subprocess.run(program, timeout=120, check=False).returncode)
            if ended[-1] == 0:
                break
        assert ended == [*(-9 for _ in ended[1:]), 0]
        assert len(ended) > 1
        result = engine.result(run_id)
        assert (result.state, result.output) == ("succeeded", ANSWER)
        certified(engine, result)
    made = Counter(ledger.read_text().split())
    assert made.keys() == set(CALLS)
    assert made - Counter(CALLS) in (Counter(), *(Counter([city]) for city in CITIES))


def test_outside_of_a_run_an_agent_runs_as_it_is() -> None:
    assert asyncio.run(programs.by_pydantic_ai("Which cities?")) == ANSWER
    assert asyncio.run(programs.by_openai_agents("Which cities?")) == ANSWER
    assert asyncio.run(programs.by_langgraph("Which cities?")) == ANSWER


def test_tokens_of_a_model_are_costs_of_the_run(engine: sk.Engine) -> None:
    result = engine.run(WORKFLOWS["step-pydantic_ai"], QUESTION)
    assert engine.show(result.id).run.cost["tokens"] > 100
    result = engine.run(WORKFLOWS["flow-pydantic_ai"], QUESTION)
    assert engine.show(result.id).run.cost["tokens"] > 100


# -- people decide ---------------------------------------------------------------------------------------------------
def payer(ledger: list[str]) -> Agent[None, str]:
    """An agent that wants to pay, and tells what it was told."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        known = [one for message in messages for one in message.parts if isinstance(one, ToolReturnPart)]
        if known:
            return ModelResponse(parts=[TextPart(str(known[0].content))])
        return ModelResponse(parts=[ToolCallPart("pay", {"note": '${{ secrets.x }} "5"'}, tool_call_id="p")])

    gates = {"pay": {"approvers": ["ann"]}}
    agent = Agent(FunctionModel(model), name="payer", capabilities=[StepkeepDurability(gates=gates)])

    @agent.tool_plain(requires_approval=True)
    def pay(note: str) -> str:
        ledger.append("pay")
        return "paid"

    return agent


def scripted_payer(ledger: list[str]) -> agents.Agent[Any]:
    def respond(call: Any) -> Any:
        [known] = [one["output"] for one in call.input if one.get("type") == "function_call_output"]
        return [assistant_message(known)]

    @agents.function_tool(needs_approval=True)
    def pay(note: str) -> str:
        ledger.append("pay")
        return "paid"

    asks = [function_call("pay", {"note": '${{ secrets.x }} "5"'}, call_id="p")]
    model = ScriptedModel([asks, agents.testing.ModelStep(responder=respond)])
    return agents.Agent(name="payer", model=model, tools=[pay])


def paying(framework: str, ledger: list[str]) -> sk.Workflow:
    if framework == "pydantic_ai":
        agent = payer(ledger)

        @sk.flow("paying")
        async def paying(ctx: Any) -> str:
            return (await agent.run("Pay.")).output
    else:
        scripted = scripted_payer(ledger)

        @sk.flow("paying")
        async def paying(ctx: Any) -> Any:
            result = await openai_agents.run(scripted, "Pay.", gates={"pay": {"approvers": ["ann"]}})
            return result.final_output

    return paying


@pytest.mark.parametrize("framework", ["pydantic_ai", "openai_agents"])
@pytest.mark.parametrize("is_approved", [True, False])
def test_a_tool_that_needs_approval_opens_a_gate_that_shows_its_arguments(
    engine: sk.Engine, framework: str, is_approved: bool, ledger: list[str]
) -> None:
    """A refusal goes back to the model with its reason. What looks like an expression is shown as it is."""
    blocked = engine.run(paying(framework, ledger), check=False)
    assert blocked.state == "blocked"
    [gate] = engine.approvals().approvals
    assert gate.prompt == "May payer call pay?"
    shown = gate.shown
    assert (shown["tool"], shown["agent"]) == ("pay", "payer")
    assert "${{ secrets.x }}" in shown["arguments"]
    with pytest.raises(sk.NotAllowed):
        engine.approve(blocked.id, by="bob")
    if is_approved:
        engine.approve(blocked.id, by="ann")
    else:
        engine.reject(blocked.id, by="ann", comment="not this week")
    result = certified(engine, engine.work_on(blocked.id))
    assert ledger == (["pay"] if is_approved else [])
    assert "paid" in result.output if is_approved else "not this week" in result.output


@pytest.mark.parametrize("way", ["gate", "message"])
def test_an_interrupt_of_a_graph_waits_for_people_or_for_a_message(
    engine: sk.Engine, way: str, ledger: list[str]
) -> None:
    resume = langgraph.by_gate(approvers=["ann"]) if way == "gate" else langgraph.by_message("decision")
    graph = programs.interrupted()

    @sk.flow("touring")
    async def touring(ctx: Any) -> Any:
        return (await langgraph.run(graph, QUESTION, resume=resume))["decision"]

    blocked = engine.run(touring, check=False)
    assert blocked.state == "blocked"
    if way == "gate":
        engine.approve(blocked.id, by="ann")
    else:
        engine.send(blocked.id, "decision", {"go": True})
    result = certified(engine, engine.work_on(blocked.id))
    assert result.output == ({"approved": True, "why": None} if way == "gate" else {"go": True})
    assert sorted(ledger) == sorted(CALLS)


# -- the rest of the OpenAI SDK --------------------------------------------------------------------------------------
def test_handoffs_and_streams_are_recorded_and_a_session_lives_as_long_as_the_run(
    engine: sk.Engine, ledger: list[str]
) -> None:
    seen: list[int] = []

    def respond(call: Any) -> Any:
        ledger.append("specialist")
        return [assistant_message("from the specialist")]

    model = ScriptedModel([agents.testing.ModelStep(responder=respond)])
    specialist = agents.Agent(name="specialist", model=model)
    first = agents.Agent(
        name="first",
        model=ScriptedModel([[function_call("transfer_to_specialist", {}, call_id="h")]]),
        handoffs=[specialist],
    )

    @sk.step("handing", retry=sk.Retry(max_attempts=2, initial="1ms"))
    async def handing(ctx: sk.Context) -> Any:
        session = openai_agents.RunSession("talk")
        result = await openai_agents.run(first, "Help.", session=session)
        seen.append(len(session.items))
        if ctx.attempt == 1:
            raise RuntimeError("the step fails after its agent has ended")
        return [result.last_agent.name, result.final_output]

    workflow = sk.Workflow("handing")
    workflow.step("handing", handing)
    result = certified(engine, engine.run(workflow))
    assert result.output == ["specialist", "from the specialist"]
    assert ledger == ["specialist"]
    assert seen[0] == seen[1] > 2


# -- current and durable ---------------------------------------------------------------------------------------------
def test_code_far_below_a_step_finds_its_context_and_records_calls(engine: sk.Engine, ledger: list[str]) -> None:

    async def fetch(city: str) -> dict[str, str]:
        ledger.append(f"{sk.current().step} {city}" if sk.current().attempt == 1 else "again")
        return {"city": city}

    async def library() -> list[dict[str, str]]:
        return [await sk.durable(fetch, city) for city in CITIES]

    @sk.step("far", retry=sk.Retry(max_attempts=2, initial="1ms"))
    async def far(ctx: sk.Context) -> Any:
        found = await library()
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        return found

    workflow = sk.Workflow("far")
    workflow.step("far", far)
    assert engine.run(workflow).output == [{"city": "Bern"}, {"city": "Rome"}]
    assert ledger == ["far Bern", "far Rome"]
    with pytest.raises(sk.InvalidInput, match="no step runs here"):
        sk.current()
