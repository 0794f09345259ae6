"""Publishes a definition: stores it permanently under its name and version, with the queues of its steps; lists them.

It changes no run. The engine and `start` call it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, decode_definition, digest_of, encode_definition
from stepkeep.kernel.errors import Conflict, NoSuchName, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan, queue_specs
from stepkeep.operations.answers import Answer, Moment, Next, says
from stepkeep.operations.definitions.differences import differences
from stepkeep.operations.definitions.former_defaults import is_same_but_for_defaults
from stepkeep.operations.definitions.pinned_children import pin_children
from stepkeep.operations.definitions.schemas import resolve_schemas
from stepkeep.operations.definitions.withdrawn import Withdrawal, list_withdrawn
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import StoredDefinition


class Newest(msgspec.Struct, frozen=True):
    """The plan that a name alone stands for. A start of it names no version, which a later one may differ from."""

    plan: Plan


class DefinitionSummary(Answer, kw_only=True):
    """A published version of a workflow."""

    workflow: str
    version: int
    dialect: str
    digest: str
    published_at: Moment
    published_by: str
    withdrawn: Annotated[Withdrawal | None, says("Set while no run of it may start.")]


class Definitions(Answer, kw_only=True):
    """Published workflows by name and version."""

    definitions: list[DefinitionSummary]
    next: Next = UNSET


class DefinitionView(Answer, kw_only=True):
    """A published version with its definition, every default made explicit."""

    definition: DefinitionSummary
    document: dict[str, Any]


async def publish(transactor: Transactor, definition: Definition, *, caller: Caller) -> Plan:
    """Publish a definition, or return the published one. The same name and version with other content is refused."""
    definition = await resolve_schemas(transactor, definition, tenant=caller.tenant)
    definition = await pin_children(transactor, definition, tenant=caller.tenant)
    document = encode_definition(definition)
    digest = digest_of(document)
    stored = await transactor.store.publish(
        caller.tenant,
        definition.name,
        definition.version,
        definition.dialect,
        digest,
        document,
        queue_specs(definition),
        caller.actor,
    )
    if not is_published(stored, definition):
        raise Conflict(
            f"version {definition.version} of {definition.name} was published before with other content"
            f"{_what_differs(stored, definition)}. A published version never changes: raise `version`, or let "
            "`stepkeep run --dev`, in Python `stepkeep.open(dev=True)`, do so while you try it."
        )
    return transactor.plans.add(stored)


def is_published(stored: StoredDefinition, definition: Definition) -> bool:
    """Whether the stored definition is this one. An earlier program stored it with the defaults of its time."""
    if stored.digest == digest_of(encode_definition(definition)):
        return True
    is_whole = digest_of(stored.document) == stored.digest
    return is_whole and is_same_but_for_defaults(decode_definition(stored.document), definition)


def _what_differs(stored: StoredDefinition, definition: Definition) -> str:
    if digest_of(stored.document) != stored.digest:
        return ""
    found = differences(decode_definition(stored.document), definition)
    return f" ({'; '.join(found)})" if found else ""


async def as_draft(transactor: Transactor, definition: Definition, *, tenant: str) -> Definition:
    """The definition under a version in which it can be published: its own, the newest if that has the same content,
    or the next one."""
    definition = await resolve_schemas(transactor, definition, tenant=tenant)
    definition = await pin_children(transactor, definition, tenant=tenant)
    own = await transactor.store.read_definition(tenant, definition.name, definition.version)
    if own is None or is_published(own, definition):
        return definition
    newest = await transactor.store.read_definition(tenant, definition.name, None)
    assert newest is not None
    again = replace(definition, version=newest.version)
    if is_published(newest, again):
        return again
    return replace(definition, version=newest.version + 1)


async def find_plan(transactor: Transactor, name: str, version: int | None, *, tenant: str) -> Plan:
    """The plan of a published definition; without a version, of the highest one."""
    stored = await transactor.definitions.new((tenant, name, version))
    if stored is None:
        which = name if version is None else f"version {version} of {name}"
        if version is not None and (newest := await transactor.store.read_definition(tenant, name, None)) is not None:
            listed = "`stepkeep definitions` lists them all"
            raise NoSuchName(f"there is no published {which}. The newest is version {newest.version}; {listed}.")
        raise NotFound(f"there is no published workflow {which}. Publish it first (stepkeep start FILE does).")
    return transactor.plans.add(stored)


async def list_published(transactor: Transactor, name: str | None, *, tenant: str) -> Definitions:
    """Every published version, by name and version; with a name, only its versions."""
    found = await transactor.store.list_definitions(tenant)
    gone = await list_withdrawn(transactor.store, tenant)
    return Definitions(
        definitions=[
            DefinitionSummary(
                workflow=one.name,
                version=one.version,
                dialect=one.dialect,
                digest=one.digest,
                published_at=instant(one.published_at),
                published_by=one.published_by,
                withdrawn=gone.get((one.name, one.version)),
            )
            for one in sorted(found, key=lambda one: (one.name, one.version))
            if name in (None, one.name)
        ]
    )


async def show_published(transactor: Transactor, name: str, version: int | None, *, tenant: str) -> DefinitionView:
    """A published version, or the highest one, with its document."""
    plan = await find_plan(transactor, name, version, tenant=tenant)
    listed = (await list_published(transactor, name, tenant=tenant)).definitions
    [found] = [one for one in listed if one.version == plan.definition.version]
    return DefinitionView(definition=found, document=msgspec.json.decode(plan.document))
