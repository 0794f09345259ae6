"""JSON Schemas of a definition: whether a schema can be used, and whether a value matches it.

The only module that uses the schema library. Nothing is ever fetched, neither from the network nor from files, and
patterns run in linear time, so that a schema can neither reach out nor hang a worker. Front ends, workers and the
completion by hand call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from stepkeep.definition.findings import Finding, Path, kind_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MAX_COMPLAINTS = 5
_LONGEST = 200


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
            self._validator = validator_for(
                dict(schema), offline=True, pattern_options=RegexOptions(), mask="the value"
            )
        except (ValidationError, ValueError) as problem:
            said = _one_line(getattr(problem, "message", None) or str(problem))
            raise InvalidSchema(said, tuple(getattr(problem, "instance_path", ()))) from None

    def complaints(self, value: Any) -> list[str]:
        """The problems of a value, a few at most; none if it matches. Each names the place in the value and in the
        schema. The value itself is not quoted but named by its kind, because the text ends in the journal."""
        try:
            return [_said(error) for error in islice(self._validator.iter_errors(value), MAX_COMPLAINTS)]
        except (ValueError, TypeError, OverflowError) as problem:
            return [f"the value cannot be checked: {_one_line(str(problem))}"]


def schema_findings(schema: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """The problem of a schema in a document, if it cannot be used; `path` is the place of the schema."""
    try:
        Shape(schema)
    except InvalidSchema as problem:
        hint = "Write a JSON Schema that refers to nothing outside itself."
        yield Finding((*path, *problem.path), f"This is no usable JSON Schema: {problem}.", hint)


def _said(error: ValidationError) -> str:
    where = "".join(f"{part}." for part in error.instance_path)[:-1]
    place = ".".join(str(part) for part in error.schema_path)
    said = f"{_one_line(error.message)} ({kind_of(error.instance)}; schema: {_one_line(place)})"
    return f"{_one_line(where)}: {said}" if where else said


def _one_line(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
