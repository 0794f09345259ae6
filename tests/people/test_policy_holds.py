"""A policy that holds a step holds it whatever does its work: a worker, elements, cases, or runs of other workflows."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.evidence.verifier import Pack, verify
from tests.people.world import World, opened

GIVEN = {"case": "c", "amount": 1, "items": [1, 2]}
INPUTS = {"case": "${{ input.case }}"}
EACH = {"over": "${{ input.items }}", "max": 5}
HOLDS = [{"name": "large", "steps": ["ship"], "then": "hold", "approval": {"roles": ["finance"], "not": ["requester"]}}]

PLACES: dict[str, Callable[[sk.Workflow], Any]] = {
    "worker": lambda flow: flow.step("ship", "ways.work"),
    "map": lambda flow: flow.step("ship", "ways.work", inputs=INPUTS, map=EACH),
    "switch": lambda flow: flow.switch("ship", flow.case("only", "ways.work", inputs=INPUTS)),
    "child": lambda flow: flow.workflow("ship", "shipping", inputs=INPUTS),
    "detached child": lambda flow: flow.workflow("ship", "shipping", inputs=INPUTS, detached=True),
    "map of children": lambda flow: flow.workflow("ship", "shipping", inputs=INPUTS, map=EACH),
    "case with a child": lambda flow: flow.switch("ship", flow.case("only", workflow="shipping", inputs=INPUTS)),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_rule_that_holds_lets_nothing_begin_before_people_agree(database_url: str, place: str) -> None:
    async def act(world: World) -> None:
        shipping = sk.Workflow("shipping", registry=world.root.registry)
        shipping.step("work", "ways.work")
        held = sk.Workflow("held", registry=world.root.registry, policy=HOLDS)
        PLACES[place](held)
        held.step("pay", "ways.pay")
        for name in ("ann", "bea"):
            await world.person(name, "finance")
        run = (await world.root.start(await world.publish([shipping, held]), GIVEN, by="ann")).run_id
        await world.settle(run)
        assert await world.open_steps(run) == [(run, "ship")]
        assert [step["name"] for step in (await world.root.show(run))["steps"]] == ["ship", "pay"], "nothing began"
        assert (await world.root.runs(workflow="shipping"))["runs"] == []
        with pytest.raises(sk.NotAllowed, match="ann asked for the run"):
            await world.root.approve(run, by="ann")
        await world.root.approve(run, by="bea")
        await world.settle(run)
        assert world.paid["c"] == [1]
        assert (await world.root.certify(run)).ok
        with zipfile.ZipFile(io.BytesIO(await world.root.evidence(run))) as pack:
            assert verify(Pack({name: pack.read(name) for name in pack.namelist()})).findings == []

    async with opened(database_url, "engine") as world:
        await act(world)
