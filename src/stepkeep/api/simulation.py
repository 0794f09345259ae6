"""The failure paths of a published workflow: how its runs end when something goes wrong. No handler runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from stepkeep.api.bodies import Anything
from stepkeep.api.definitions import WorkflowName
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.definition.bounds import MAX_VERSION
from stepkeep.kernel.definition import Definition, SubWorkflow
from stepkeep.operations.aside import aside
from stepkeep.operations.pinned_children import published_below
from stepkeep.operations.publish import find_plan
from stepkeep.simulate.report import simulate

routes = router("Workflows")

MOST_PATHS = 200
"""Paths that one request walks; `unwalked` counts the others."""


class Simulation(BaseModel):
    """What `stepkeep simulate --json` prints."""

    workflow: str
    version: int
    dialect: str
    steps: list[str]
    paths: int
    unwalked: int
    longest: Anything
    findings: list[Anything]
    endings: list[Anything]
    bounded: list[str] = []
    children: list[Anything] = []


@routes.get(
    "/workflows/{name:path}/simulation",
    operation_id="simulate_workflow",
    summary="Walk the failure paths of a workflow",
    response_model=None,
    responses=answers(Simulation),
)
async def simulate_workflow(
    engine: Engine,
    name: WorkflowName,
    version: Annotated[int | None, Query(ge=1, le=MAX_VERSION, description="The highest one by default.")] = None,
) -> Answer:
    """Through the engine's own decisions, on a virtual clock. At most 200 paths of it and of each workflow that it
    starts; `unwalked` counts the others."""
    plan = await find_plan(engine.transactor, name, version, tenant=engine.tenant)
    below = await published_below(engine.transactor, plan.definition, tenant=engine.tenant)

    def find(child: SubWorkflow) -> Definition | None:
        return below.get((child.workflow, child.version))

    walk = lambda: Answer(simulate(plan.definition, max_paths=MOST_PATHS, find=find).plain())  # noqa: E731
    return await aside(engine.tenant, walk)
