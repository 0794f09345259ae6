"""Open gates: what is asked, what is shown, who has decided, and whether the caller may decide."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from stepkeep.api.bodies import Anything, Cursor, Limit, Page
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Approvals")


class Approvals(Page):
    """A page of open gates, oldest run first."""

    approvals: list[Anything]
    is_complete: bool = Field(description="False where there are more.")
    unreadable: list[Anything] | None = None


@routes.get(
    "/approvals",
    operation_id="list_approvals",
    summary="List open gates",
    response_model=None,
    responses=answers(Approvals),
)
async def list_approvals(
    engine: Engine,
    mine: Annotated[bool, Query(description="Only those that the caller may decide.")] = False,
    late: Annotated[bool, Query(description="Only those that were not decided in time.")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Answer:
    """`may_decide` says whether the owner of the key may approve, `refusal` why not. Nothing is decided by looking."""
    return Answer(await engine.approvals(mine=mine, late=late, after=cursor, limit=limit))
