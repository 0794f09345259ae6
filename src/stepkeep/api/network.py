"""What HTTP steps of the tenant may reach on the internal network. Only the operator changes it, without a key."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from stepkeep.api.bodies import Anything
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Network")


class AllowList(BaseModel):
    """Hosts, addresses and networks, beside public addresses."""

    allow: list[str]
    history: list[Anything] | None = None


@routes.get(
    "/network",
    operation_id="list_network",
    summary="What HTTP steps may reach on the internal network",
    response_model=None,
    responses=answers(AllowList),
)
async def list_network(
    engine: Engine, history: Annotated[bool, Query(description="With every change, newest first.")] = False
) -> Answer:
    """An entry is added and removed by the operator, who opens the database without a key (`stepkeep network`)."""
    return Answer(await engine.network.list(history=history))
