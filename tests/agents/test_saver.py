"""The checkpoint saver of LangGraph: the official conformance suite on both stores, graphs that go on, and tenants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import stepkeep as sk
from stepkeep.agents import langgraph, openai_agents
from stepkeep.client import AsyncClient, Client
from stepkeep.kernel.errors import NotAllowed
from tests.service import make_key, serving


async def test_the_official_conformance_suite_passes(database_url: str) -> None:
    async with sk.AsyncEngine(database_url) as engine:

        @checkpointer_test(name=f"stepkeep at {database_url}")
        async def saver() -> AsyncIterator[langgraph.StepkeepSaver]:
            yield langgraph.StepkeepSaver(engine)

        report = await validate(saver)
        failures = [one.failures for one in report.results.values() if one.failures]
        assert failures == []
        assert {name for name, one in report.results.items() if not one.detected} == set()
        assert report.passed_all()


class State(TypedDict):
    question: str
    answer: str


def ask_editor() -> StateGraph[Any, Any, Any, Any]:
    def draft(state: State) -> dict[str, str]:
        return {"answer": f"About {state['question']}"}

    def decide(state: State) -> dict[str, str]:
        return {"answer": f"{state['answer']}: {interrupt('May it go out?')}"}

    builder = StateGraph(State)
    builder.add_node("draft", draft)
    builder.add_node("decide", decide)
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "decide")
    return builder


def test_a_graph_goes_on_in_another_process_of_the_same_tenant_only(database_url: str) -> None:
    """Without an event loop; the second engine stands for another process."""
    config: Any = {"configurable": {"thread_id": "a b/1"}}
    with sk.Engine(database_url) as engine:
        asked = ask_editor().compile(checkpointer=langgraph.StepkeepSaver(engine)).invoke({"question": "tea"}, config)
        assert [one.value for one in asked["__interrupt__"]] == ["May it go out?"]
        engine.tenants.create("other")
    with sk.Engine(database_url, tenant="other") as engine:
        saver = langgraph.StepkeepSaver(engine)
        assert (saver.get_tuple(config), list(saver.list(None))) == (None, [])
    with sk.Engine(database_url) as engine:
        saver = langgraph.StepkeepSaver(engine)
        graph = ask_editor().compile(checkpointer=saver)
        assert graph.invoke(Command(resume="yes"), config)["answer"] == "About tea: yes"
        assert len(list(saver.list(config))) == len(list(graph.get_state_history(config))) == 4
        [kept] = engine.conversations.list().conversations
        saver.prune(["a b/1"])
        assert engine.conversations.list().conversations[0].count < kept.count
        assert graph.get_state(config).values["answer"] == "About tea: yes"


async def test_an_async_engine_serves_graphs_on_other_loops_and_in_threads(database_url: str) -> None:
    async with sk.AsyncEngine(database_url) as engine:
        graph = ask_editor().compile(checkpointer=langgraph.StepkeepSaver(engine))
        config: Any = {"configurable": {"thread_id": "ada"}}
        await graph.ainvoke({"question": "tea"}, config)

        def elsewhere() -> Any:
            return asyncio.run(graph.ainvoke(Command(resume="yes"), config))

        assert (await asyncio.to_thread(elsewhere))["answer"] == "About tea: yes"
        assert (await asyncio.to_thread(graph.get_state, config)).next == ()


async def test_a_saver_and_a_session_reach_the_engine_through_a_service(database_url: str) -> None:
    """By a key of its tenant, blocking and not; the key bounds what an agent may do."""
    turns: Any = [{"role": "user", "content": f"{place}"} for place in range(3)]
    key = await asyncio.to_thread(make_key, database_url, "ann")
    reading = await asyncio.to_thread(make_key, database_url, "bea", "read")

    def blocking(address: str) -> None:
        with Client(address, key=key) as client, Client(address, key=reading) as reader:
            assert len(list(langgraph.StepkeepSaver(client).list(None))) == 4
            with pytest.raises(NotAllowed, match="complete"):
                langgraph.StepkeepSaver(reader).delete_thread("ada")

    with serving(database_url, sk.Registry()) as address:
        async with AsyncClient(address, key=key) as client:
            graph = ask_editor().compile(checkpointer=langgraph.StepkeepSaver(client))
            config: Any = {"configurable": {"thread_id": "ada"}}
            await graph.ainvoke({"question": "tea"}, config)
            session = openai_agents.StoredSession("ada", client)
            await session.add_items(turns)
            assert await session.pop_item() == turns[2]
            assert (await session.get_items(1), await session.get_items()) == (turns[1:2], turns[:2])
            await session.clear_session()
            assert (await session.get_items(), await session.pop_item()) == ([], None)
            assert (await graph.ainvoke(Command(resume="yes"), config))["answer"] == "About tea: yes"
        await asyncio.to_thread(blocking, address)


def test_a_step_that_is_tried_again_adds_nothing_twice_to_a_session(database_url: str) -> None:
    with sk.Engine(database_url) as engine:
        talk_twice(engine)


def talk_twice(engine: sk.Engine) -> None:
    session = openai_agents.StoredSession("ada", engine)

    @sk.step("talk", retry=sk.Retry(max_attempts=2, initial="1ms"))
    async def talk(ctx: sk.Context) -> list[Any]:
        await session.add_items([{"role": "user", "content": "Hello"}])
        known: Any = await session.get_items()
        await session.add_items([{"role": "user", "content": "Bye"}])
        if ctx.attempt == 1:
            raise ConnectionError("later")
        return [one["content"] for one in known]

    workflow = sk.Workflow("talk")
    workflow.step("talk", talk)
    assert engine.run(workflow).output == ["Hello"]
    kept: Any = asyncio.run(session.get_items())
    assert [one["content"] for one in kept] == ["Hello", "Bye"]
