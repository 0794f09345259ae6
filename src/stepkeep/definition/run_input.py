"""Checks the input of a new run against the declared fields and the schema, before the run is created.

It changes nothing and fills nothing in. Every start calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from stepkeep.definition.expressions.json_schema import is_at_hand, misfits
from stepkeep.definition.findings import did_you_mean
from stepkeep.kernel.definition import Definition, InputField, InputType
from stepkeep.kernel.errors import InvalidInput

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
