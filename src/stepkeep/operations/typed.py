"""Reads values by declared types: whatever is wrong with them is found at once, in one set of words for every face.

A type is what `msgspec` knows of an annotation: bounds are its `Meta`. Values of JSON and of Python are read strictly;
values of an address are texts, and are turned into what they stand for (`from_text`). It knows no operation.
`operation` builds one reader for each argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as types

from stepkeep.edges.safe_text import is_a, plain_text

Place = tuple[str | int, ...]
Read = Callable[[Any, Place, "list[Wrong]"], Any]
"""Returns the value as the operation gets it, and adds what is wrong to the list."""

IS_TIME = re.compile(r"\d{4}-\d\d-\d\dt\d\d:\d\d(:\d\d(\.\d+)?)?(z|[+-]\d\d:\d\d)", re.IGNORECASE)
TRUE, FALSE = ("true", "1", "yes", "on", "t", "y"), ("false", "0", "no", "off", "f", "n")

NOT_AN_OBJECT = "Input should be a valid dictionary or object to extract fields from"


class Wrong(NamedTuple):
    """One thing that is wrong, and where. Values are not repeated: one may be a secret."""

    at: Place
    message: str


class LargePart(NamedTuple):
    """A large part of a request: its JSON as it is stored; or else why it cannot be stored, and the value."""

    json: bytes
    problem: str = ""
    value: Any = None

    def decoded(self) -> Any:
        return self.value if self.problem else msgspec.json.decode(self.json)


class InPython(NamedTuple):
    """In an annotation: Python takes more than JSON has, and the operation itself checks it there."""

    wire: Any


def reader(annotation: Any, *, from_text: bool = False) -> Read:
    """What reads values of this type."""
    return _reader(types.type_info(annotation), from_text)


def _reader(told: types.Type, from_text: bool) -> Read:
    match told:
        case types.Metadata():
            return _reader(told.type, from_text)
        case types.AnyType() | types.RawType():
            return _anything
        case types.StrType():
            return _text(told)
        case types.BoolType():
            return _flag(from_text)
        case types.IntType() | types.FloatType():
            return _number(told, from_text)
        case types.DateTimeType():
            return _time
        case types.LiteralType():
            return _choice(told.values, lambda value: value)
        case types.EnumType():
            return _choice([one.value for one in told.cls], told.cls)
        case types.ListType() | types.VarTupleType():
            return _list(told, from_text)
        case types.DictType():
            return _mapping(told)
        case types.TypedDictType():
            return record({one.encode_name: (_reader(one.type, False), one.required) for one in told.fields})
        case types.StructType():
            return _struct(told)
        case types.UnionType():
            return _union(told, from_text)
    raise LookupError(f"arguments of type {type(told).__name__} are not read: say how, in operations/typed.py.")


def _anything(value: Any, at: Place, wrong: list[Wrong]) -> Any:
    return value


def record(fields: Mapping[str, tuple[Read, bool]]) -> Read:
    """An object with these fields and no others."""

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        if not is_a(value, dict):
            wrong.append(Wrong(at, "Input should be a valid dictionary"))
            return value
        return read_fields(fields, value, at, wrong)

    return read


def _struct(told: types.StructType) -> Read:
    fields = {one.encode_name: (_reader(one.type, False), one.required) for one in told.fields}
    names = {one.encode_name: one.name for one in told.fields}

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        if not is_a(value, dict):
            wrong.append(Wrong(at, NOT_AN_OBJECT))
            return value
        before = len(wrong)
        found = read_fields(fields, value, at, wrong)
        if len(wrong) > before:
            return value
        try:
            return told.cls(**{names[name]: one for name, one in found.items()})
        except ValueError as problem:  # its own check (`__post_init__`)
            wrong.append(Wrong(at, str(problem)))
            return value

    return read


def read_fields(
    fields: Mapping[str, tuple[Read, bool]], given: Mapping[str, Any], at: Place, wrong: list[Wrong]
) -> dict[str, Any]:
    """The values that are given, each read as its field wants it."""
    found: dict[str, Any] = {}
    for name, (read, is_required) in fields.items():
        if name in given:
            value = given[name]
            if type(value) is LargePart and read is not _anything:
                value = value.decoded()
            found[name] = read(value, (*at, name), wrong)
        elif is_required:
            wrong.append(Wrong((*at, name), "Field required"))
    wrong += (Wrong((*at, str(name)), "Extra inputs are not permitted") for name in given if name not in fields)
    return found


def _text(told: types.StrType) -> Read:
    least, most = told.min_length or 0, told.max_length
    # `$` would also match before a line break at the end.
    pattern = None if told.pattern is None else re.compile(re.sub(r"\$$", r"\\Z", told.pattern))

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        found = plain_text(value)
        if found is None or is_a(value, Enum):
            wrong.append(Wrong(at, "Input should be a valid string"))
        elif len(found) < least:
            wrong.append(Wrong(at, f"String should have at least {_counted(least, 'character')}"))
        elif most is not None and len(found) > most:
            wrong.append(Wrong(at, f"String should have at most {_counted(most, 'character')}"))
        elif pattern is not None and pattern.search(found) is None:
            wrong.append(Wrong(at, f"String should match pattern '{told.pattern}'"))
        return found

    return read


def _flag(from_text: bool) -> Read:
    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        if from_text and is_a(value, str):
            if (word := value.lower()) in (*TRUE, *FALSE):
                return word in TRUE
            wrong.append(Wrong(at, "Input should be a valid boolean, unable to interpret input"))
        elif not isinstance(value, bool):
            wrong.append(Wrong(at, "Input should be a valid boolean"))
        return value

    return read


def _number(told: types.IntType | types.FloatType, from_text: bool) -> Read:
    is_whole = isinstance(told, types.IntType)
    kinds, name = ((int,), "integer") if is_whole else ((int, float), "number")
    parsed = f"Input should be a valid {name}, unable to parse string as {'an integer' if is_whole else 'a number'}"

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        if from_text and is_a(value, str):
            try:
                value = int(value) if is_whole else float(value)
            except ValueError:
                wrong.append(Wrong(at, parsed))
                return value
        if type(value) not in kinds:
            wrong.append(Wrong(at, f"Input should be a valid {name}"))
        elif type(value) is float and not isfinite(value):
            wrong.append(Wrong(at, "Input should be a finite number"))
        elif told.ge is not None and value < told.ge:
            wrong.append(Wrong(at, f"Input should be greater than or equal to {told.ge}"))
        elif told.gt is not None and value <= told.gt:
            wrong.append(Wrong(at, f"Input should be greater than {told.gt}"))
        elif told.le is not None and value > told.le:
            wrong.append(Wrong(at, f"Input should be less than or equal to {told.le}"))
        return value

    return read


def _time(value: Any, at: Place, wrong: list[Wrong]) -> Any:
    if is_a(value, datetime) and value.tzinfo is not None:
        return value
    if (text := plain_text(value)) is not None and IS_TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError as problem:
            wrong.append(Wrong(at, f"Input should be a valid datetime or date, {problem}"))
            return value
    wrong.append(Wrong(at, "Value error, it is a time with a zone, as in 2026-01-01T00:00:00Z"))
    return value


def _choice(values: Iterable[Any], made: Callable[[Any], Any]) -> Read:
    known = [*values]
    kinds, said = {type(one) for one in known}, [repr(one) for one in known]
    words = " or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        plain = value.value if is_a(value, Enum) else value
        if type(plain) not in kinds or plain not in known:
            wrong.append(Wrong(at, f"Input should be {words}"))
            return value
        return made(plain)

    return read


def _list(told: types.ListType | types.VarTupleType, from_text: bool) -> Read:
    item, least, most = _reader(told.item_type, from_text), told.min_length or 0, told.max_length
    is_tuple = isinstance(told, types.VarTupleType)

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        if not is_a(value, list, tuple, set, frozenset):
            wrong.append(Wrong(at, "Input should be a valid list"))
            return value
        found = [*value]
        if most is not None and len(found) > most:
            said = f"List should have at most {_counted(most, 'item')} after validation, not {len(found)}"
            wrong.append(Wrong(at, said))
            return found
        read_items = [item(one, (*at, place), wrong) for place, one in enumerate(found)]
        if len(found) < least:
            wrong.append(
                Wrong(at, f"List should have at least {_counted(least, 'item')} after validation, not {len(found)}")
            )
        return tuple(read_items) if is_tuple else read_items

    return read


def _mapping(told: types.DictType) -> Read:
    key, inner, most = _reader(told.key_type, True), _reader(told.value_type, False), told.max_length

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        if not is_a(value, dict):
            wrong.append(Wrong(at, "Input should be a valid dictionary"))
            return value
        if most is not None and len(value) > most:
            wrong.append(
                Wrong(at, f"Dictionary should have at most {_counted(most, 'item')} after validation, not {len(value)}")
            )
            return value
        return {
            key(name, (*at, str(name), "[key]"), wrong): inner(one, (*at, str(name)), wrong)
            for name, one in value.items()
        }

    return read


def _union(told: types.UnionType, from_text: bool) -> Read:
    kinds = [one for one in told.types if not isinstance(one, types.NoneType)]
    readers, takes_none = [_reader(one, from_text) for one in kinds], len(kinds) < len(told.types)

    def read(value: Any, at: Place, wrong: list[Wrong]) -> Any:
        if value is None and takes_none:
            return None
        tried: list[Wrong] = []
        for one in readers:
            found: list[Wrong] = []
            result = one(value, at, found)
            if not found:
                return result
            tried = tried or found
        wrong += tried
        return value

    return read


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
