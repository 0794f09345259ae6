"""The base of what operations answer: frozen values with attributes, whose JSON is the same in every face."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cache
from html import escape
from typing import Annotated, Any, TypeVar, dataclass_transform

import msgspec
from msgspec import UNSET, Meta, UnsetType

A = TypeVar("A", bound="Answer")
MOST_SHOWN, LONGEST_SHOWN = 3, 60
"""How many items of a list, and how many characters of a text, the short form of an answer has."""


def says(text: str) -> Meta:
    """In an annotation: what a value means."""
    return Meta(description=text)


Moment = Annotated[str, Meta(description="UTC, with milliseconds.", examples=["2026-01-01T00:00:00.000Z"])]
Next = Annotated[str | UnsetType | None, says("The `cursor` of the next page; null at the end.")]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Answer(msgspec.Struct, frozen=True):
    """What an operation answers. A field that is UNSET is absent in JSON.

    Its classes say `kw_only=True`, so that a field that may be absent can stand anywhere.
    Fields can also be read as keys of a mapping (`answer["state"]`), by their names in JSON; this ends with 1.0.
    """

    def as_json(self) -> dict[str, Any]:
        """The answer as plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def extended(self, kind: type[A], **more: Any) -> A:
        """An answer of a larger kind: these fields, and more."""
        return kind(**msgspec.structs.asdict(self), **more)

    def __getitem__(self, name: str) -> Any:
        found = self.get(name, UNSET)
        if found is UNSET:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        found = getattr(self, _fields(type(self)).get(name, ""), UNSET)
        return default if found is UNSET else found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name, UNSET) is not UNSET

    def __iter__(self) -> Iterator[str]:
        return (name for name, field in _fields(type(self)).items() if getattr(self, field) is not UNSET)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> Any:
        return [*self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, dict):
            return bool(self.as_json() == msgspec.to_builtins(other))
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self.__struct_fields__
        )

    def __hash__(self) -> int:
        return hash(tuple(map(str, self.items())))

    def __repr__(self) -> str:
        """The fields that say something, in short."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        told = (f"{name}={_short(one)}" for name, one in fields if one not in (None, [], {}, UNSET))
        return f"{type(self).__name__}({', '.join(told)})"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(repr(one))}</td></tr>" for name, one in self.items())
        return f"<table>{rows}</table>"


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The fields of an answer by their names in JSON, which may be words of Python: `from` is `from_`."""
    return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))


def _short(value: Any) -> str:
    """A value in a few words.

    >>> _short([1] * 9), _short("x" * 70)[-3:]
    ('[9 values]', "x…'")
    """
    if isinstance(value, list) and len(value) > MOST_SHOWN:
        return f"[{len(value)} values]"
    if isinstance(value, str) and len(value) > LONGEST_SHOWN:
        return repr(value[:LONGEST_SHOWN] + "…")
    return repr(value.value if isinstance(value, Enum) else value)
