"""Another tenant's things look exactly like things that do not exist, wherever one asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotFound
from tests.workbench import NOBODYS

ORDER = sk.Workflow("order", version=1)
ORDER.approval("sign")
ORDER.step("ship", "tenants.ship", after="sign")


def handlers() -> Registry:
    registry = Registry()
    registry.register(HandlerSpec(name="tenants.ship", function=lambda: "shipped"))
    return registry


@asynccontextmanager
async def as_two_tenants(url: str) -> AsyncIterator[tuple[AsyncEngine, AsyncEngine]]:
    async with (
        AsyncEngine(url, tenant="north", actor="ann", registry=handlers()) as north,
        AsyncEngine(url, tenant="south", actor="bob", registry=handlers()) as south,
    ):
        yield north, south


WAYS: dict[str, Callable[[AsyncEngine, str], Awaitable[Any]]] = {
    "show": lambda engine, run_id: engine.show(run_id),
    "show as": lambda engine, run_id: engine.show(run_id, as_="run"),
    "result": lambda engine, run_id: engine.result(run_id),
    "log": lambda engine, run_id: engine.log(run_id),
    "log as": lambda engine, run_id: engine.log(run_id, as_="run"),
    "work on": lambda engine, run_id: engine.work_on(run_id),
    "start": lambda engine, run_id: engine.start_idle(run_id),
    "approve": lambda engine, run_id: engine.approve(run_id),
    "approve by name": lambda engine, run_id: engine.approve(run_id, "sign"),
    "reject": lambda engine, run_id: engine.reject(run_id, "sign"),
    "request changes": lambda engine, run_id: engine.interventions.request_changes(run_id, "sign", comment="more"),
    "escalate": lambda engine, run_id: engine.interventions.escalate(run_id, "sign", reason="away"),
    "annotate": lambda engine, run_id: engine.interventions.annotate(run_id, "seen"),
    "freeze": lambda engine, run_id: engine.interventions.freeze(run_id, reason="an audit"),
    "complete": lambda engine, run_id: engine.complete(run_id, "ship", token="t"),
    "send": lambda engine, run_id: engine.send(run_id, "paid"),
    "cancel": lambda engine, run_id: engine.cancel(run_id),
    "rerun": lambda engine, run_id: engine.rerun(run_id),
}


@pytest.mark.parametrize("way", WAYS)
async def test_another_tenants_run_is_not_found_in_the_words_of_one_that_does_not_exist(
    database_url: str, way: str
) -> None:
    async with as_two_tenants(database_url) as (north, south):
        theirs = (await north.start(ORDER)).run_id
        with pytest.raises(NotFound) as refused:
            await WAYS[way](south, theirs)
        with pytest.raises(NotFound) as unknown:
            await WAYS[way](south, NOBODYS)
        assert str(refused.value) == str(unknown.value).replace(NOBODYS, theirs)
        assert (await north.show(theirs))["run"]["state"] == "blocked", "and nothing happened to it"


async def test_listings_show_a_tenant_its_own_runs_alone(database_url: str) -> None:
    async with as_two_tenants(database_url) as (north, south):
        theirs = (await north.start(ORDER, business_key="b", correlation_id="c")).run_id
        ours = (await south.start(ORDER, business_key="b", correlation_id="c")).run_id
        for asked in ({}, {"business_key": "b"}, {"correlation_id": "c"}, {"workflow": "order"}):
            assert [run["id"] for run in (await north.runs(**asked))["runs"]] == [theirs]
            assert [run["id"] for run in (await south.runs(**asked))["runs"]] == [ours]
        assert (await south.runs(before=theirs))["runs"] == []


async def test_keys_and_versions_belong_to_a_tenant(database_url: str) -> None:
    async with as_two_tenants(database_url) as (north, south):
        first = await north.start(ORDER, {"n": 1}, idempotency_key="k", business_key="b")
        second = await south.start(ORDER, {"n": 2}, idempotency_key="k", business_key="b")
        assert first.created
        assert second.created
        other = sk.Workflow("order", version=1)
        other.step("ship", "tenants.ship")
        await (third := AsyncEngine(south.store.url, tenant="west", registry=handlers())).__aenter__()
        try:
            assert (await third.start(other)).created, "the same name and version with other content"
        finally:
            await third.__aexit__(None, None, None)


async def test_a_workflow_published_by_one_tenant_is_unknown_to_another(database_url: str) -> None:
    async with as_two_tenants(database_url) as (north, south):
        await north.publish(ORDER)
        with pytest.raises(NotFound, match="no published workflow order"):
            await south.start("order")


async def test_a_worker_runs_the_steps_of_its_own_tenant_alone(database_url: str) -> None:
    async with as_two_tenants(database_url) as (north, south):
        theirs = (await north.start(ORDER)).run_id
        ours = (await south.start(ORDER)).run_id
        await north.approve(theirs)
        await south.approve(ours)
        assert (await south.work_on(ours)).output == "shipped"
        [_, step] = (await north.show(theirs))["steps"]
        assert step["state"] == "ready"
        assert step["history"] == []
