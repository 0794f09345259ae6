"""Evaluates the rules of policies on the facts on record: the part of CEL that rules use most.

Literals, fields, comparisons, `in`, `&&`, `||`, `!`, sums, has() and size(). Standard library alone: evidence packs
ship this file. `verifier.py` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Value = Callable[[], Any]


class CannotReplay(Exception):
    """An expression that this script cannot read, or facts that are not in the pack."""


class Unknown(Exception):
    """An expression that has no value on these facts: a field is missing, or types do not fit."""


TOKEN = re.compile(
    r"""\s*(?:(\d+\.\d+(?:[eE][-+]?\d+)?|\d+)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]]))"""
)
LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
WORDS = {"true": True, "false": False, "null": None}


def evaluate(source: str, facts: dict[str, Any]) -> Any:
    """The value of an expression; Unknown without one, CannotReplay if it uses more of CEL than this script reads."""
    reader = Reader(source, facts)
    found = reader.ternary()
    if reader.place != len(reader.tokens):
        raise CannotReplay(f"`{source}` is not read by this script")
    return found()


class Reader:
    """Reads an expression into functions without arguments, so that `&&` and `||` may leave one out."""

    def __init__(self, source: str, facts: dict[str, Any]) -> None:
        self.source, self.facts, self.place = source, facts, 0
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while source[position:].strip():
            found = TOKEN.match(source, position)
            if found is None:
                raise CannotReplay(f"`{source}` is not read by this script")
            kind = ("number", "text", "word", "mark")[(found.lastindex or 1) - 1]
            self.tokens.append((kind, found[found.lastindex or 1]))
            position = found.end()

    def take(self, *marks: str) -> str | None:
        if self.place < len(self.tokens) and self.tokens[self.place][1] in marks and self.kind() != "text":
            self.place += 1
            return self.tokens[self.place - 1][1]
        return None

    def kind(self) -> str:
        return self.tokens[self.place][0] if self.place < len(self.tokens) else ""

    def need(self, mark: str) -> None:
        if self.take(mark) is None:
            raise CannotReplay(f"`{self.source}` is not read by this script")

    def ternary(self) -> Value:
        condition = self.binary(0)
        if self.take("?") is None:
            return condition
        yes = self.ternary()
        self.need(":")
        no = self.ternary()
        return lambda: yes() if truth(condition()) else no()

    def binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (mark := self.take(*LEVELS[level])) is not None:
            left = combined(mark, left, self.binary(level + 1))
        return left

    def unary(self) -> Value:
        if self.take("!"):
            inner = self.unary()
            return lambda: not truth(inner())
        if self.take("-"):
            number = self.unary()
            return lambda: arithmetic("-", 0, number())
        return self.member(self.primary())

    def primary(self) -> Value:
        kind = self.kind()
        if self.take("("):
            inner = self.ternary()
            self.need(")")
            return inner
        if self.take("["):
            items = self.arguments("]")
            return lambda: [item() for item in items]
        if kind not in ("number", "text", "word"):
            raise CannotReplay(f"`{self.source}` is not read by this script")
        text = self.tokens[self.place][1]
        self.place += 1
        if kind == "number":
            number = float(text) if "." in text or "e" in text.lower() else int(text)
            return lambda: number
        if kind == "text":
            if "\\" in text:
                raise CannotReplay(f"`{self.source}` is not read by this script")
            return lambda: text[1:-1]
        if self.take("("):
            return self.call(text, self.arguments(")"))
        if text in WORDS:
            return lambda: WORDS[text]
        return lambda: field(self.facts, text)

    def arguments(self, end: str) -> list[Value]:
        found: list[Value] = []
        while self.take(end) is None:
            found.append(self.ternary())
            if self.take(",") is None:
                self.need(end)
                break
        return found

    def call(self, name: str, given: list[Value]) -> Value:
        if name == "size" and len(given) == 1:
            return lambda: sized(given[0]())
        if name == "has" and len(given) == 1:
            return lambda: is_there(given[0])
        raise CannotReplay(f"`{self.source}` calls {name}, which this script does not know")

    def member(self, value: Value) -> Value:
        while True:
            if self.take("."):
                if self.kind() != "word":
                    raise CannotReplay(f"`{self.source}` is not read by this script")
                name = self.tokens[self.place][1]
                self.place += 1
                value = self.method(value, name) if self.take("(") else selected(value, name)
            elif self.take("["):
                index = self.ternary()
                self.need("]")
                value = indexed(value, index)
            else:
                return value

    def method(self, value: Value, name: str) -> Value:
        given = self.arguments(")")
        if name == "size" and not given:
            return lambda: sized(value())
        if name not in ("startsWith", "endsWith", "contains") or len(given) != 1:
            raise CannotReplay(f"`{self.source}` calls {name}, which this script does not know")
        return lambda: texts(name, value(), given[0]())


def selected(value: Value, name: str) -> Value:
    return lambda: field(value(), name)


def indexed(value: Value, index: Value) -> Value:
    return lambda: field(value(), index())


def field(value: Any, name: Any) -> Any:
    try:
        return value[name]
    except (KeyError, IndexError, TypeError):
        raise Unknown(f"there is no {name}") from None


def is_there(value: Value) -> bool:
    try:
        value()
    except Unknown:
        return False
    return True


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unknown("not true or false")
    return value


def sized(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise Unknown("it has no size")
    return len(value)


def texts(name: str, value: Any, given: Any) -> bool:
    if not isinstance(value, str) or not isinstance(given, str):
        raise Unknown("not a text")
    if name == "contains":
        return given in value
    return value.startswith(given) if name == "startsWith" else value.endswith(given)


def combined(mark: str, left: Value, right: Value) -> Value:
    if mark in ("&&", "||"):
        return lambda: logical(mark == "||", left, right)
    return lambda: compared(mark, left(), right())


def logical(decides: bool, left: Value, right: Value) -> bool:
    """One side that decides is enough, also if the other has no value."""
    try:
        if truth(left()) is decides:
            return decides
    except Unknown:
        if truth(right()) is decides:
            return decides
        raise
    return truth(right())


def compared(mark: str, left: Any, right: Any) -> Any:
    if mark == "==":
        return same_kind(left, right) and left == right
    if mark == "!=":
        return not (same_kind(left, right) and left == right)
    if mark == "in":
        if not isinstance(right, list | dict):
            raise Unknown("not a list")
        return any(same_kind(left, one) and left == one for one in right)
    if mark in "+-*/%":
        return arithmetic(mark, left, right)
    if not same_kind(left, right) or not isinstance(left, int | float | str) or isinstance(left, bool):
        raise Unknown("these cannot be compared")
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[mark]


def same_kind(left: Any, right: Any) -> bool:
    numbers = (int, float)
    both = (
        isinstance(left, numbers) and isinstance(right, numbers) and type(left) is not bool and type(right) is not bool
    )
    return both or type(left) is type(right)


def arithmetic(mark: str, left: Any, right: Any) -> Any:
    if (type(left) is not type(right) and left != 0) or not isinstance(left, int | float) or isinstance(left, bool):
        raise CannotReplay("this script does not know this arithmetic")
    if mark in "/%":
        raise CannotReplay("this script does not divide")
    return left + right if mark == "+" else left - right if mark == "-" else left * right
