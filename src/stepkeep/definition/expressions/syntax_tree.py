"""Decodes the syntax tree of a CEL expression from its serialised form.

The binding exposes no tree, but a compiled expression serialises to the public `cel.expr` protocol buffers. The few
relevant messages are decoded here. Nothing is checked. Only `expressions` calls it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias


class Constant(NamedTuple):
    """A literal; `at` is the offset in the source, here and in every other node."""

    at: int
    value: str | int | float | bool | bytes | None


class Name(NamedTuple):
    at: int
    name: str


class Select(NamedTuple):
    """`operand.field`, or `has(operand.field)` when it is a test."""

    at: int
    operand: Node
    field: str
    test: bool


class Call(NamedTuple):
    """A function or operator (`_+_`, `_[_]`); a method's receiver is its first argument."""

    at: int
    function: str
    arguments: tuple[Node, ...]


class ListOf(NamedTuple):
    at: int
    items: tuple[Node, ...]


class MapOf(NamedTuple):
    """A map literal, or a protocol buffer when it has a message name."""

    at: int
    message: str
    entries: tuple[tuple[Node, Node], ...]


class Loop(NamedTuple):
    """The expansion of `map`, `filter`, `all`, `exists` and `exists_one`."""

    at: int
    variable: str
    over: Node
    result: str
    start: Node
    step: Node
    last: Node


Node: TypeAlias = Constant | Name | Select | Call | ListOf | MapOf | Loop

_Fields: TypeAlias = "list[tuple[int, int | bytes]]"

_PLACES = {b"ParsedExpr": (2, 3), b"CheckedExpr": (4, 5)}
"""The fields that hold the tree and what is known of its source, by the kind of message."""

_FIXED = {1: 8, 5: 4}
"""Wire types of a fixed length, in bytes."""


def decode(serialized: bytes) -> Node:
    """The tree in a serialised `ParsedExpr` or `CheckedExpr`.

    It recurses: CEL's parser has already refused what is nested more than 32 levels deep.
    """
    packed = dict(_fields(serialized))
    tree, about = _PLACES[_bytes(packed[1]).rpartition(b".")[2]]
    parsed = dict(_fields(_bytes(packed[2])))
    positions: dict[int, int] = {}
    for number, value in _fields(_bytes(parsed.get(about, b""))):
        if number == 4:
            entry = _bytes(value)
            if len(entry) == 4 and entry[0] == 8 and entry[2] == 16:  # most are two numbers below 128
                positions[entry[1]] = entry[3]
            else:
                fields = dict(_fields(entry))
                positions[_int(fields.get(1, 0))] = _int(fields.get(2, 0))
    return _Decoder(positions).node(_bytes(parsed[tree]))


def walk(tree: Node) -> Iterator[Node]:
    """Every node, parents before children."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case Constant() | Name():
            return ()
        case Select():
            return (node.operand,)
        case Call():
            return node.arguments
        case ListOf():
            return node.items
        case MapOf():
            return tuple(part for entry in node.entries for part in entry)
        case Loop():
            return (node.over, node.start, node.step, node.last)


class _Decoder:
    def __init__(self, positions: dict[int, int]) -> None:
        self.positions = positions

    def node(self, message: bytes) -> Node:
        kind, body, at = 0, b"", 0
        for number, value in _fields(message):
            if number == 2:
                at = self.positions.get(_int(value), 0)
            else:
                kind, body = number, _bytes(value)
        match kind:
            case 3:
                return Constant(at, _constant(body))
            case 4:
                return Name(at, _text(_only(body, 1)))
            case 5:
                return self._select(at, body)
            case 6:
                return self._call(at, body)
            case 7:
                items = [self.node(_bytes(value)) for number, value in _fields(body) if number == 1]
                return ListOf(at, tuple(items))
            case 8:
                return self._map(at, body)
            case 9:
                return self._loop(at, body)
            case _:
                raise ValueError(f"the syntax tree holds a node of the unknown kind {kind}")

    def _select(self, at: int, body: bytes) -> Select:
        fields = dict(_fields(body))
        return Select(at, self.node(_bytes(fields[1])), _text(_bytes(fields[2])), bool(fields.get(3, 0)))

    def _call(self, at: int, body: bytes) -> Call:
        function, receiver, arguments = "", [], []
        for number, value in _fields(body):
            match number:
                case 1:
                    receiver.append(self.node(_bytes(value)))
                case 2:
                    function = _text(_bytes(value))
                case 3:
                    arguments.append(self.node(_bytes(value)))
        return Call(at, function, (*receiver, *arguments))

    def _map(self, at: int, body: bytes) -> MapOf:
        message, entries = "", []
        for number, value in _fields(body):
            if number == 1:
                message = _text(_bytes(value))
            elif number == 2:
                fields = dict(_fields(_bytes(value)))
                key = self.node(_bytes(fields[3])) if 3 in fields else Constant(at, _text(_bytes(fields[2])))
                entries.append((key, self.node(_bytes(fields[4]))))
        return MapOf(at, message, tuple(entries))

    def _loop(self, at: int, body: bytes) -> Loop:
        fields = dict(_fields(body))
        return Loop(
            at,
            variable=_text(_bytes(fields[1])),
            over=self.node(_bytes(fields[2])),
            result=_text(_bytes(fields[3])),
            start=self.node(_bytes(fields[4])),
            step=self.node(_bytes(fields[6])),
            last=self.node(_bytes(fields[7])),
        )


def _constant(body: bytes) -> str | int | float | bool | bytes | None:
    for number, value in _fields(body):
        match number:
            case 2:
                return bool(value)
            case 3:
                return _int(value) - (1 << 64 if _int(value) >> 63 else 0)
            case 4:
                return _int(value)
            case 5:
                unpacked: float = struct.unpack("<d", _bytes(value))[0]
                return unpacked
            case 6:
                return _text(_bytes(value))
            case 7:
                return _bytes(value)
    return None


def _fields(message: bytes) -> _Fields:
    """The fields of a protocol buffer: numbers as int, everything else as bytes."""
    found: _Fields = []
    position, end = 0, len(message)
    while position < end:
        # Most of a tree is short nested messages: numbers of one byte are read without a call.
        key = message[position]
        position += 1
        if key >= 0x80:
            key, position = _varint(message, position - 1)
        if key & 7 == 2:
            length = message[position]
            position += 1
            if length >= 0x80:
                length, position = _varint(message, position - 1)
            found.append((key >> 3, message[position : position + length]))
            position += length
        elif key & 7 == 0:
            value = message[position]
            position += 1
            if value >= 0x80:
                value, position = _varint(message, position - 1)
            found.append((key >> 3, value))
        elif key & 7 in _FIXED:
            length = _FIXED[key & 7]
            found.append((key >> 3, message[position : position + length]))
            position += length
        else:
            raise ValueError(f"the syntax tree uses the unknown wire type {key & 7}")
    return found


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7


def _only(message: bytes, wanted: int) -> bytes:
    return next((_bytes(value) for number, value in _fields(message) if number == wanted), b"")


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def _int(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value


def _text(value: bytes) -> str:
    return value.decode()
