"""The failure paths of a published workflow: how its runs end when something goes wrong. No handler runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from stepkeep.api.definitions import VersionNumber, WorkflowName
from stepkeep.api.handwritten import Routes
from stepkeep.api.routing import JsonAnswer
from stepkeep.engine.acting import ActingEngine
from stepkeep.kernel.definition import Definition, SubWorkflow
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.aside import aside
from stepkeep.operations.pinned_children import published_below
from stepkeep.operations.publish import find_plan
from stepkeep.simulate.report import simulate

routes = Routes("Workflows")


MOST_PATHS = 200
"""Paths that one request walks; `unwalked` counts the others."""


class Simulation(Answer, kw_only=True):
    """What `stepkeep simulate --json` prints."""

    workflow: str
    version: int
    dialect: str
    steps: list[str]
    paths: int
    unwalked: int
    longest: dict[str, Any]
    findings: list[dict[str, Any]]
    endings: list[dict[str, Any]]
    bounded: Sequence[str] = ()
    children: Sequence[dict[str, Any]] = ()


@routes(
    "GET /workflows/{name:path}/simulation",
    "definitions",
    "simulate_workflow",
    "Walk the failure paths of a workflow",
    answers=Simulation,
)
async def simulate_workflow(
    engine: ActingEngine,
    name: WorkflowName,
    version: Annotated[VersionNumber | None, says("The highest one by default.")] = None,
) -> JsonAnswer:
    """Through the engine's own decisions, on a virtual clock. At most 200 paths of it and of each workflow that it
    starts; `unwalked` counts the others."""
    plan = await find_plan(engine.transactor, name, version, tenant=engine.tenant)
    below = await published_below(engine.transactor, plan.definition, tenant=engine.tenant)

    def find(child: SubWorkflow) -> Definition | None:
        return below.get((child.workflow, child.version))

    walk = lambda: JsonAnswer(simulate(plan.definition, max_paths=MOST_PATHS, find=find).plain())  # noqa: E731
    return await aside(engine.tenant, walk)
