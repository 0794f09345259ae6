"""The registry of JSON Schemas: publish one under a reference, list them, and put them into definitions.

Nothing is ever fetched: a reference names a schema that was published here. A published schema never changes, so that a
reference always means the same. The engine and `publish` call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from stepkeep.definition.expressions.json_schema import Known, canonical_schema, decode_schema, references_in, resolved
from stepkeep.kernel.definition import Definition, digest_of
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, Moment, Next
from stepkeep.operations.aside import aside
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import StoredSchema

PAGE = 1000


class SchemaSummary(Answer, kw_only=True):
    """A published schema."""

    ref: str
    digest: str
    bytes: int
    published_at: Moment
    published_by: str


class SchemaDocument(SchemaSummary, kw_only=True):
    """A published schema with its document, where it was asked for."""

    document: Any = UNSET


class Schemas(Answer, kw_only=True):
    """Published schemas by reference."""

    schemas: list[SchemaSummary]
    next: Next = UNSET


class SchemaView(Answer, kw_only=True):
    """One schema."""

    schema: SchemaDocument


async def publish_schema(transactor: Transactor, ref: str, schema: Mapping[str, Any], *, caller: Caller) -> SchemaView:
    """Publish a JSON Schema; the same schema again changes nothing, another one under the same reference is refused."""
    name = validate.key("the reference of a schema", ref)
    document = await aside(caller.tenant, canonical_schema, schema)
    digest = digest_of(document)
    stored = await transactor.store.publish_schema(caller.tenant, name, digest, document, caller.actor)
    if stored.digest != digest:
        raise Conflict(
            f"the schema {name} was published before with other content (digest {stored.digest[:12]}). A published "
            "schema never changes: publish this one under another reference, such as one with a new version in it."
        )
    return SchemaView(schema=_shown(stored).extended(SchemaDocument))


async def list_schemas(transactor: Transactor, *, tenant: str) -> Schemas:
    """Every schema, by reference."""
    found: list[StoredSchema] = []
    page = [*await transactor.store.list_schemas(tenant, limit=PAGE)]
    while page:
        found += page
        page = [] if len(page) < PAGE else await transactor.store.list_schemas(tenant, after=page[-1].ref, limit=PAGE)
    return Schemas(schemas=[_shown(one) for one in found])


async def show_schema(transactor: Transactor, ref: str, *, tenant: str) -> SchemaView:
    """One schema with its document."""
    name = validate.key("the reference of a schema", ref)
    stored = await transactor.store.read_schema(tenant, name)
    if stored is None:
        raise NotFound(f"there is no schema {name}. {_how_to_publish(name)}")
    return SchemaView(schema=_shown(stored).extended(SchemaDocument, document=decode_schema(stored.document)))


async def resolve_schemas(transactor: Transactor, definition: Definition, *, tenant: str) -> Definition:
    """The definition with every schema that it refers to; one that is not published is refused by name."""
    wanted = references_in(definition)
    if not wanted:
        return definition
    known, problems = {}, []
    for ref, place in wanted.items():
        stored = await transactor.store.read_schema(tenant, ref)
        if stored is None:
            problems.append(f"{place}: there is no schema {ref}. {_how_to_publish(ref)}")
        elif digest_of(stored.document) != stored.digest:
            problems.append(f"{place}: the schema {ref} was changed in the database after it was published.")
        else:
            known[ref] = Known(decode_schema(stored.document), stored.digest)
    if problems:
        raise InvalidInput(f"{definition.name} cannot be published: {' '.join(problems)}")
    return resolved(definition, known)


def _how_to_publish(ref: str) -> str:
    return f"Publish it: stepkeep schemas publish FILE --ref {ref}"


def _shown(stored: StoredSchema) -> SchemaSummary:
    return SchemaSummary(
        ref=stored.ref,
        digest=stored.digest,
        bytes=len(stored.document),
        published_at=instant(stored.published_at),
        published_by=stored.published_by,
    )
