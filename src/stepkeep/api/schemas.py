"""JSON Schemas that definitions refer to by name."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, Field

from stepkeep.api.bodies import Body, Cursor, Limit, Moment, Page, page
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Schemas")

Ref = Annotated[str, Path(description="The reference of a schema.", examples=["order-v1"])]


class NewSchema(Body):
    """A schema to publish."""

    document: dict[str, Any] = Field(description="A JSON Schema.", examples=[{"type": "object"}])


class SchemaSummary(BaseModel):
    """A published schema."""

    ref: str
    digest: str
    bytes: int
    published_at: Moment
    published_by: str


class Schemas(Page):
    """Published schemas by reference."""

    schemas: list[SchemaSummary]


class SchemaDocument(SchemaSummary):
    """A published schema with its document, where it was asked for."""

    document: Any = None


class SchemaView(BaseModel):
    """One schema."""

    schema_: SchemaDocument = Field(alias="schema")


@routes.put(
    "/schemas/{ref:path}",
    operation_id="publish_schema",
    summary="Publish a JSON Schema",
    response_model=None,
    responses=answers(SchemaView),
)
async def publish_schema(engine: Engine, ref: Ref, body: NewSchema) -> Answer:
    """A published schema never changes: the same content again changes nothing, other content is refused (409)."""
    return Answer(await engine.publish_schema(ref, body.document))


@routes.get(
    "/schemas",
    operation_id="list_schemas",
    summary="List published schemas",
    response_model=None,
    responses=answers(Schemas),
)
async def list_schemas(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    shown, following = page((await engine.schemas())["schemas"], lambda one: str(one["ref"]), cursor, limit)
    return Answer({"schemas": shown, "next": following})


@routes.get(
    "/schemas/{ref:path}",
    operation_id="get_schema",
    summary="Show a schema",
    response_model=None,
    responses=answers(SchemaView),
)
async def get_schema(engine: Engine, ref: Ref) -> Answer:
    return Answer(await engine.schema(ref))
