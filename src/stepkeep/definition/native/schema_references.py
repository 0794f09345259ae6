"""References to schemas of the registry in a definition: which there are, and the definition with the schemas in place.

A reference is `{ref: NAME}` where a JSON Schema may stand. Publishing resolves it, so that a stored definition holds
every schema it is checked by, and its digest. It reads no store; `operations.definitions.schemas` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from stepkeep.definition.expressions.json_schema import reference_of
from stepkeep.kernel.definition import Definition, Rule, StepDefinition, Switch, encode_definition
from stepkeep.kernel.errors import InvalidInput

MAX_RESOLVED_BYTES = 8 * 1024 * 1024
"""How large a definition with all its schemas may be."""


class Known(NamedTuple):
    """A schema of the registry, and the digest of its canonical JSON."""

    schema: dict[str, Any]
    digest: str


def references_in(definition: Definition) -> dict[str, str]:
    """The references of a definition, each with the first place that has it."""
    found: dict[str, str] = {}
    for place, schema in _schema_fields(definition):
        ref = reference_of(schema)
        if ref is not None:
            found.setdefault(ref, place)
    return found


def _schema_fields(definition: Definition) -> Iterator[tuple[str, Any]]:
    yield "`input_schema` of the workflow", definition.input_schema
    yield from (("`output_schema` of the workflow", rule.schema) for rule in definition.rules)
    for step in definition.work:
        yield f"`input_schema` of step `{step.name}`", step.input_schema
        yield f"`output_schema` of step `{step.name}`", step.output_schema
        if step.undo is not None:
            yield f"the input schema of the undo of step `{step.name}`", step.undo.input_schema


def resolved(definition: Definition, known: Mapping[str, Known]) -> Definition:
    """The definition with each of these schemas in the place of its reference, and their digests."""

    def put(schema: Any) -> Any:
        ref = reference_of(schema)
        return schema if ref is None else known[ref].schema

    whole = replace(
        definition,
        input_schema=put(definition.input_schema),
        rules=tuple(_rule(rule, put(rule.schema)) for rule in definition.rules),
        steps=tuple(_step(step, put) for step in definition.steps),
        schemas={ref: known[ref].digest for ref in sorted(known)},
    )
    if (size := len(encode_definition(whole))) > MAX_RESOLVED_BYTES:
        raise InvalidInput(
            f"{definition.name} has {size} bytes with the schemas it refers to; at most {MAX_RESOLVED_BYTES} fit. "
            "Use smaller schemas, or fewer steps that are checked by them."
        )
    return whole


def _rule(rule: Rule, schema: Any) -> Rule:
    return rule if schema is rule.schema else replace(rule, schema=schema)


def _step(step: StepDefinition, put: Any) -> StepDefinition:
    undo = step.undo
    if undo is not None:
        undo = replace(undo, input_schema=put(undo.input_schema))
    growth = step.growth
    if isinstance(growth, Switch):
        growth = replace(growth, cases=tuple(replace(case, step=_step(case.step, put)) for case in growth.cases))
    own = {"input_schema": put(step.input_schema), "output_schema": put(step.output_schema)}
    return replace(step, undo=undo, growth=growth, **own)


def decode_schema(document: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(document, type=dict[str, Any])
    return found
