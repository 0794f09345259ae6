"""JSON Schemas of a definition: whether a schema can be used, and whether a value matches it.

The only module that uses the schema library. Nothing is ever fetched, neither from the network nor from files, patterns
run in linear time, and the work of a check is bounded before it runs (`schema_cost`), so that a schema can neither
reach out nor hang a process. Front ends, workers, starts and the completion by hand call it.

References to schemas of the registry in a definition: which there are, and the definition with the schemas in place.

Checks the input of a new run against the declared fields and the schema, before the run is created.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.definition.expressions.schema_cost import MAX_STEPS, CostBound, TooCostly, refuse_costly_patterns
from stepkeep.definition.findings import Finding, Path, did_you_mean, kind_of
from stepkeep.kernel.definition import (
    Definition,
    InputField,
    InputType,
    Rule,
    StepDefinition,
    Switch,
    encode_definition,
)
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError


MAX_COMPLAINTS = 5
TOLD_STEPS = 1_000
"""Up to so many steps of a check, complaints name their places: the library makes all of them at once, slowly."""
QUICK_STEPS = 20_000
"""Up to so many steps, about 0.2 ms, a check may run on an event loop."""
MAX_SCHEMA_BYTES = 256 * 1024
MAX_SCHEMA_DEPTH = 64
LONGEST_REFERENCE = 255
_LONGEST = 200

_encode = msgspec.json.Encoder(order="sorted").encode


class InvalidSchema(ValueError):
    """A schema that cannot be used; the text says why in one line. `path` is the place of the problem in it."""

    def __init__(self, why: str, path: Path = ()) -> None:
        super().__init__(why)
        self.path = path


class Shape:
    """A schema, compiled once.

    >>> shape = Shape({"type": "object", "required": ["invoiceId"]})
    >>> shape.complaints({"invoiceId": "i-1"})
    []
    >>> shape.complaints({})
    ['"invoiceId" is a required property (a mapping; schema: required)']
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Imported with the first schema: most definitions have none.
        from jsonschema_rs import RegexOptions, ValidationError, validator_for

        try:
            refuse_costly_patterns(schema)
            self._validator = validator_for(
                dict(schema), offline=True, pattern_options=RegexOptions(), mask="the value"
            )
        except TooCostly as problem:
            raise InvalidSchema(f"it takes too long to compile: {problem}") from None
        except (ValidationError, ValueError) as problem:
            said = _one_line(getattr(problem, "message", None) or str(problem))
            raise InvalidSchema(said, tuple(getattr(problem, "instance_path", ()))) from None
        try:
            self._cost = CostBound(schema)
        except TooCostly as problem:
            raise InvalidSchema(f"it takes too long to check a value: {problem}") from None

    def is_quick(self, size: int) -> bool:
        """Whether a value of so many bytes is checked in far less than a millisecond."""
        return self._cost.most(size) <= QUICK_STEPS

    def complaints(self, value: Any) -> list[str]:
        """The problems of a value, a few at most; none if it matches. Each names the place in the value and in the
        schema. The value itself is not quoted but named by its kind, because the text ends in the journal."""
        steps = self._cost.steps(value)
        if steps > MAX_STEPS:
            return [f"the value cannot be checked: it would take more than {MAX_STEPS:,} steps; use a smaller value"]
        try:
            if self._validator.is_valid(value):
                return []
            if steps > TOLD_STEPS and self._cost.steps(value, TOLD_STEPS) > TOLD_STEPS:
                return ["the value does not match; it is too large to name the places"]
            return [_said(error) for error in islice(self._validator.iter_errors(value), MAX_COMPLAINTS)]
        except (ValueError, TypeError, OverflowError) as problem:
            return [f"the value cannot be checked: {_one_line(str(problem))}"]


MAX_KEPT = 256
_kept: OrderedDict[int, tuple[Any, Shape]] = OrderedDict()
_keeping = Lock()
"""The compiled schemas of recent definitions, by identity."""


def is_at_hand(schema: Any, size: int) -> bool:
    """Whether a value of so many bytes is checked at once: the schema is compiled, and the steps are few."""
    known = _kept.get(id(schema))
    return known is not None and known[0] is schema and known[1].is_quick(size)


def misfits(what: str, schema: Any, value: Any) -> None:
    """Refuse a value that does not match the schema, and any if the schema cannot be used; `what` names the value.

    >>> misfits("the output of pay", {"type": "string"}, "p-1")
    """
    with _keeping:
        known = _kept.get(id(schema))
    if known is None or known[0] is not schema:
        try:
            known = (schema, Shape(schema))
        except InvalidSchema as problem:
            said = f"{what} cannot be checked, because its schema cannot be used: {problem}."
            raise InvalidInput(f"{said} Publish a version with a simpler schema.") from None
        with _keeping:
            _kept[id(schema)] = known
            while len(_kept) > MAX_KEPT:
                _kept.popitem(last=False)
    if wrong := known[1].complaints(value):
        raise InvalidInput(f"{what} does not fit its schema: {'; '.join(wrong)}")


def misfits_of_json(what: str, schema: Any, value: bytes) -> None:
    """The same for the JSON of a value."""
    try:
        decoded = msgspec.json.decode(value)
    except ValueError as problem:
        raise InvalidInput(f"the output is not JSON: {problem}") from None
    misfits(what, schema, decoded)


def reference_of(schema: Any) -> str | None:
    """The name in `{ref: NAME}`, which stands for a schema of the registry; None for a schema itself.

    >>> reference_of({"ref": "invoice/v1"}), reference_of({"type": "object"})
    ('invoice/v1', None)
    """
    is_reference = isinstance(schema, Mapping) and len(schema) == 1 and isinstance(schema.get("ref"), str)
    return schema["ref"] if is_reference else None


def canonical_schema(schema: Any) -> bytes:
    """The canonical JSON of a schema for the registry, or InvalidInput: it must be usable and within limits."""
    if not isinstance(schema, Mapping):
        raise InvalidInput(f"a JSON Schema is a mapping, not {kind_of(schema)}.")
    if "ref" in schema:
        raise InvalidInput("a schema of the registry refers to no other one: there is no `ref` in JSON Schema.")
    if (depth := _depth(schema)) > MAX_SCHEMA_DEPTH:
        raise InvalidInput(f"this schema is nested {depth} levels deep; at most {MAX_SCHEMA_DEPTH} are allowed.")
    try:
        encoded = _encode(schema)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as problem:
        raise InvalidInput(f"this schema is no JSON: {_one_line(str(problem))}.") from None
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise InvalidInput(f"this schema has {len(encoded)} bytes of JSON; at most {MAX_SCHEMA_BYTES} are allowed.")
    try:
        Shape(schema)
    except InvalidSchema as problem:
        place = f" at {'.'.join(map(str, problem.path))}" if problem.path else ""
        raise InvalidInput(f"this is no usable JSON Schema{place}: {problem}.") from None
    return encoded


def _depth(value: Any) -> int:
    """How deep a value is nested, counted no further than the limit."""
    depth, level = 0, [value]
    while level and depth <= MAX_SCHEMA_DEPTH:
        depth += 1
        level = [
            inner
            for part in level
            if isinstance(part, Mapping | list)
            for inner in (part.values() if isinstance(part, Mapping) else part)
        ]
    return depth


def schema_findings(schema: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """The problem of a schema in a document, if it cannot be used; `path` is the place of the schema."""
    if "ref" in schema:
        ref = reference_of(schema)
        if ref is None or not (0 < len(ref) <= LONGEST_REFERENCE and ref.isprintable()):
            said = f"A reference is `ref` alone, with a name of 1 to {LONGEST_REFERENCE} printable characters."
            yield Finding((*path, "ref"), said, "Write `{ref: NAME}`, or a JSON Schema.", key=True)
        return
    try:
        Shape(schema)
    except InvalidSchema as problem:
        hint = "Write a JSON Schema that refers to nothing outside itself, with few references to references."
        yield Finding((*path, *problem.path), f"This is no usable JSON Schema: {problem}.", hint)


def _said(error: ValidationError) -> str:
    where = "".join(f"{part}." for part in error.instance_path)[:-1]
    place = ".".join(str(part) for part in error.schema_path)
    said = f"{_one_line(error.message)} ({kind_of(error.instance)}; schema: {_one_line(place)})"
    return f"{_one_line(where)}: {said}" if where else said


def _one_line(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


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


_TYPES: dict[InputType, tuple[type, ...]] = {
    InputType.STRING: (str,),
    InputType.INTEGER: (int,),
    InputType.NUMBER: (int, float),
    InputType.BOOLEAN: (bool,),
    InputType.OBJECT: (dict,),
    InputType.ARRAY: (list,),
}


def is_declared(definition: Definition) -> bool:
    """Whether a definition says anything about the input of its runs."""
    return definition.input_fields is not None or definition.input_schema is not UNSET


def is_quick(definition: Definition, size: int) -> bool:
    """Whether an input of so many bytes is checked in far less than a millisecond."""
    return definition.input_schema is UNSET or is_at_hand(definition.input_schema, size)


def check_json_input(definition: Definition, given: bytes) -> None:
    """The same as `check_input`, for the JSON of an input."""
    check_input(definition, msgspec.json.decode(given))


def check_input(definition: Definition, given: Any) -> None:
    """Raise InvalidInput, naming every field that is missing, unknown or of another type than declared, and every
    place that does not match the schema."""
    if definition.input_schema is not UNSET:
        misfits(f"the input of {definition.name}", definition.input_schema, given)
    if definition.input_fields is None:
        return
    if not isinstance(given, Mapping):
        wanted = ", ".join(definition.input_fields) or "no fields"
        raise InvalidInput(f"the input of {definition.name} must be an object with: {wanted}.")
    problems = list(_problems(definition, given))
    if problems:
        raise InvalidInput(f"the input of {definition.name} does not fit: {' '.join(problems)}")


def _problems(definition: Definition, given: Mapping[str, Any]) -> Iterator[str]:
    fields = definition.input_fields or ()
    for name in fields:
        field = definition.input_types.get(name, InputField())
        if name not in given:
            if field.required:
                yield f"`{name}` is missing{_meaning(field)}."
        elif not _is(given[name], field.type):
            yield f"`{name}` must be {field.type}, not {_kind(given[name])}{_meaning(field)}."
    for name in given:
        if name not in fields:
            yield f"`{name}` is not declared. {did_you_mean(name, fields)}".rstrip()


def _meaning(field: InputField) -> str:
    return f" ({field.description})" if isinstance(field.description, str) else ""


def _is(value: Any, wanted: InputType) -> bool:
    if wanted is InputType.ANY:
        return True
    if isinstance(value, bool):
        return wanted is InputType.BOOLEAN
    if wanted is InputType.INTEGER and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return next((str(name) for name, kinds in _TYPES.items() if isinstance(value, kinds)), type(value).__name__)
