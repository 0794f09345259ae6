"""The base of what operations answer: frozen values with attributes, whose JSON is the same in every face."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, dataclass_transform

import msgspec
from msgspec import UNSET, Meta

MOST_SHOWN, LONGEST_SHOWN = 3, 60
"""How many items of a list, and how many characters of a text, the short form of an answer has."""


def says(text: str) -> Meta:
    """In an annotation: what a value means."""
    return Meta(description=text)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class AnswerType(msgspec.StructMeta):
    """Makes answers frozen, with fields by name alone: a field that may be absent can stand anywhere."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        return super().__new__(mcs, name, bases, namespace, **{"frozen": True, "kw_only": True, **options})


class Answer(msgspec.Struct, metaclass=AnswerType):
    """What an operation answers. A field that is UNSET is absent in JSON.

    Fields can also be read as keys of a mapping (`answer["state"]`), as before; this ends with 1.0.
    """

    def as_json(self) -> dict[str, Any]:
        """The answer as plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def __getitem__(self, name: str) -> Any:
        found = self.get(name, UNSET)
        if found is UNSET:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        found = getattr(self, name, UNSET) if name in self.__struct_fields__ else UNSET
        return default if found is UNSET else found

    def __contains__(self, name: object) -> bool:
        return name in self.__struct_fields__ and getattr(self, str(name)) is not UNSET

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.__struct_fields__ if getattr(self, name) is not UNSET)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> Any:
        return [*self]

    def items(self) -> Any:
        return [(name, getattr(self, name)) for name in self]

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
        told = (f"{name}={_short(one)}" for name, one in self.items() if one not in (None, [], {}))
        return f"{type(self).__name__}({', '.join(told)})"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(repr(one))}</td></tr>" for name, one in self.items())
        return f"<table>{rows}</table>"


def _short(value: Any) -> str:
    """A value in a few words.

    >>> _short([1] * 9), _short("x" * 70)[-3:]
    ('[9 values]', "x…'")
    """
    if isinstance(value, list) and len(value) > MOST_SHOWN:
        return f"[{len(value)} values]"
    if isinstance(value, str) and len(value) > LONGEST_SHOWN:
        return repr(value[:LONGEST_SHOWN] + "…")
    return repr(value)
