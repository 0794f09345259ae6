"""Live policies of the tenant: numbered revisions of rules that allow, hold or deny a step."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, Field

from stepkeep.api.bodies import Anything, By, Cursor, Limit, Moment, Page, page
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Policies")


class NewPolicy(By):
    """A policy to publish as the next revision."""

    policy: dict[str, Any] = Field(
        description="A policy document with rules, and cases that must hold.",
        examples=[{"policy": "night", "rules": [{"name": "no-deploy", "when": "false", "then": "deny"}]}],
    )


class PolicySummary(BaseModel):
    """A revision."""

    revision: int
    policy: str
    digest: str
    published_at: Moment
    published_by: str


class Policies(Page):
    """Revisions, newest first."""

    policies: list[PolicySummary]


class PolicyView(PolicySummary):
    """A revision with its rules."""

    document: Anything


@routes.post(
    "/policies",
    operation_id="publish_policy",
    summary="Publish a policy",
    status_code=201,
    response_model=None,
    responses=answers(PolicySummary, status=201, says="Published"),
)
async def publish_policy(engine: Engine, body: NewPolicy) -> Answer:
    """It counts for every step that opens from then on. Its cases must hold."""
    return Answer(await engine.publish_policy(body.policy, by=body.by), 201)


@routes.post(
    "/policies/off",
    operation_id="turn_policy_off",
    summary="Publish a revision without rules",
    status_code=201,
    response_model=None,
    responses=answers(PolicySummary, status=201, says="Published"),
)
async def turn_policy_off(engine: Engine, body: By | None = None) -> Answer:
    return Answer(await engine.policy_off(by=body.by if body else None), 201)


@routes.get(
    "/policies",
    operation_id="list_policies",
    summary="List the revisions of the policy",
    response_model=None,
    responses=answers(Policies),
)
async def list_policies(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    found = (await engine.list_policies())["policies"]
    shown, following = page(found, lambda one: str(one["revision"]), cursor, limit)
    return Answer({"policies": shown, "next": following})


@routes.get(
    "/policies/{revision}",
    operation_id="get_policy",
    summary="Show a revision of the policy",
    response_model=None,
    responses=answers(PolicyView),
)
async def get_policy(engine: Engine, revision: Annotated[int, Path(ge=1, le=2**31 - 1)]) -> Answer:
    return Answer(await engine.show_policy(revision))
