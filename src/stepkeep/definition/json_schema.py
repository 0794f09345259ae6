"""JSON Schemas of a definition: whether a schema can be used, and whether a value matches it.

The only module that uses the schema library. Nothing is ever fetched, neither from the network nor from files, and
patterns run in linear time, so that a schema can neither reach out nor hang a worker. Front ends and workers call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MAX_COMPLAINTS = 5
_LONGEST = 200


class InvalidSchema(ValueError):
    """A schema that cannot be used; the text says why in one line."""


class Shape:
    """A schema, compiled once.

    >>> shape = Shape({"type": "object", "required": ["invoiceId"]})
    >>> shape.complaints({"invoiceId": "i-1"})
    []
    >>> shape.complaints({})
    ['"invoiceId" is a required property']
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Imported with the first schema: most definitions have none.
        from jsonschema_rs import RegexOptions, ValidationError, validator_for

        try:
            self._validator = validator_for(
                dict(schema), offline=True, pattern_options=RegexOptions(), mask="the value"
            )
        except (ValidationError, ValueError) as problem:
            raise InvalidSchema(_one_line(getattr(problem, "message", None) or str(problem))) from None

    def complaints(self, value: Any) -> list[str]:
        """The problems of a value, a few at most; none if it matches. The value itself is not quoted, because the
        text ends in the journal."""
        return [_said(error) for error in islice(self._validator.iter_errors(value), MAX_COMPLAINTS)]


def _said(error: ValidationError) -> str:
    where = ".".join(str(part) for part in error.instance_path)
    return f"{where}: {_one_line(error.message)}" if where else _one_line(error.message)


def _one_line(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
