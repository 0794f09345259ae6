"""The audit log of the tenant, searched by what its entries say."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from stepkeep.api.bodies import Anything, Cursor, Limit, Page, Time
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Audit log")


class AuditPage(Page):
    """Entries, newest first."""

    audit: list[Anything]


@routes.get(
    "/audit",
    operation_id="list_audit",
    summary="Search the audit log",
    response_model=None,
    responses=answers(AuditPage),
)
async def list_audit(
    engine: Engine,
    actor: Annotated[
        str | None, Query(max_length=255, description="Only what this person or program asked for.")
    ] = None,
    target: Annotated[
        str | None, Query(max_length=255, description="Only about this run, user or other thing.")
    ] = None,
    operation: Annotated[str | None, Query(max_length=255, description="Only this operation: `approve`.")] = None,
    outcome: Annotated[
        str | None, Query(pattern="^(done|refused|failed)$", description="Done, not allowed, or not possible.")
    ] = None,
    key: Annotated[str | None, Query(max_length=255, description="Only with the key that has this id.")] = None,
    since: Annotated[Time | None, Query(description="At or after this time.")] = None,
    until: Annotated[Time | None, Query(description="Before this time.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Answer:
    """What was asked for with keys and through the service, every refusal, and every change of people."""
    asked = {"actor": actor, "target": target, "operation": operation, "outcome": outcome, "key": key}
    return Answer(await engine.audit.list(**asked, since=since, until=until, cursor=cursor, limit=limit))
