"""The system: its state in numbers, its workers, and why a queue or a worker does not move."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from stepkeep.api.bodies import Anything, Cursor, Limit, Page, page
from stepkeep.api.records import Explanation
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("System")


class Status(BaseModel):
    """Runs by state, queues, failures by category, workers, late timers, and `problems` in sentences."""

    status: Anything


class Statistics(BaseModel):
    """How the newest runs went: counts, `throughput` over time, `durations`, `failures`, `backlog`, `slowest_steps`,
    `newest_ends`."""

    statistics: Anything


class Workers(Page):
    """What each worker serves and how much it holds."""

    workers: list[Anything]


@routes.get(
    "/status",
    operation_id="get_status",
    summary="The whole system in numbers",
    response_model=None,
    responses=answers(Status),
)
async def get_status(
    engine: Engine,
    window: Annotated[str, Query(max_length=100, description="How far back recent runs are counted.")] = "1h",
) -> Answer:
    """Of the tenant of the key. Counts say whether they are exact (`is_complete`, `is_estimate`)."""
    return Answer(await engine.status(window=window))


@routes.get(
    "/statistics",
    operation_id="get_statistics",
    summary="How the newest runs went",
    response_model=None,
    responses=answers(Statistics),
)
async def get_statistics(
    engine: Engine,
    window: Annotated[str, Query(max_length=100, description="How far back runs are looked at.")] = "24h",
) -> Answer:
    """Of the tenant of the key. Of more than 5,000 runs, a sample is looked at and scaled (`is_estimate`)."""
    return Answer(await engine.statistics(window=window))


@routes.get(
    "/workers", operation_id="list_workers", summary="List workers", response_model=None, responses=answers(Workers)
)
async def list_workers(
    engine: Engine,
    live: Annotated[bool, Query(description="Only those that are not shut down.")] = True,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Answer:
    found = (await engine.workers(live_only=live))["workers"]
    shown, following = page(found, lambda one: str(one["id"]), cursor, limit)
    return Answer({"workers": shown, "next": following})


@routes.get(
    "/explain",
    operation_id="explain",
    summary="Why does a queue, a worker or a run not move?",
    response_model=None,
    responses={**answers(Explanation)},
)
async def explain(
    engine: Engine, what: Annotated[str, Query(max_length=4000, description="A run, a queue or a worker.")]
) -> Answer:
    return Answer(await engine.explain(what))
