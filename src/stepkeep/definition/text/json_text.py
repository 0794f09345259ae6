"""Parses JSON strictly and without recursion, with the position of every value.

The standard library's parser keeps the last of two equal keys, accepts NaN and knows no positions; it is used here for
single strings only. `document` calls it for `.json` files.

Decodes JSON from outside without surprises: no duplicate key, no NaN, no number that no store keeps, bounded depth.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from enum import Enum, auto
from math import isfinite
from typing import Any, Final, NoReturn

from stepkeep.definition.text.building import Builder, BuildingStopped, Scalar
from stepkeep.kernel.errors import InvalidInput

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
_WORD = re.compile(r"-?[A-Za-z0-9_.][A-Za-z0-9_.+-]*")
_WORDS: Final = {"true": True, "false": False, "null": None}
_LONGEST_INTEGER: Final = 20
_STRING = json.JSONDecoder()


class _Expect(Enum):
    VALUE = auto()
    FIRST_ITEM = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    COMMA = auto()
    NOTHING = auto()


_EXPECTED: Final = {
    _Expect.VALUE: "a value",
    _Expect.FIRST_ITEM: "a value or `]`",
    _Expect.FIRST_KEY: "a key in double quotes or `}`",
    _Expect.KEY: "a key in double quotes",
    _Expect.COLON: "`:`",
    _Expect.COMMA: "`,` or the end of what is open",
    _Expect.NOTHING: "the end of the document",
}


def read_json(text: str) -> Builder:
    """Build the one value in `text`."""
    reader = _JsonReader(text)
    with suppress(BuildingStopped):
        reader.run()
    return reader.builder


class _JsonReader:
    def __init__(self, text: str) -> None:
        self.text, self.builder = text, Builder()
        self.position, self.expect = 0, _Expect.VALUE

    def run(self) -> None:
        while (character := self._next()) is not None:
            match character:
                case "{" | "[" if self.expect in {_Expect.VALUE, _Expect.FIRST_ITEM}:
                    self.builder.open({} if character == "{" else [], self.position)
                    self.position += 1
                    self.expect = _Expect.FIRST_KEY if character == "{" else _Expect.FIRST_ITEM
                case "}" | "]" if self._may_close(character):
                    self.builder.close()
                    self.position += 1
                    self._after_value()
                case "," if self.expect is _Expect.COMMA:
                    self.position += 1
                    self.expect = _Expect.KEY if self.builder.innermost is dict else _Expect.VALUE
                case ":" if self.expect is _Expect.COLON:
                    self.position += 1
                    self.expect = _Expect.VALUE
                case '"' if self.expect in {_Expect.KEY, _Expect.FIRST_KEY}:
                    self._string()
                    self.expect = _Expect.COLON
                case '"' if self.expect in {_Expect.VALUE, _Expect.FIRST_ITEM}:
                    self._string()
                    self._after_value()
                case _ if self.expect in {_Expect.VALUE, _Expect.FIRST_ITEM}:
                    self._bare()
                    self._after_value()
                case _:
                    self._unexpected(character)
        if self.expect is not _Expect.NOTHING:
            self.builder.stop(
                len(self.text), f"The document ends where {_EXPECTED[self.expect]} should be.", "Complete it."
            )

    def _next(self) -> str | None:
        space = _SPACE.match(self.text, self.position)
        assert space is not None, "the pattern matches nothing, too"
        self.position = space.end()
        return self.text[self.position] if self.position < len(self.text) else None

    def _may_close(self, character: str) -> bool:
        if character == "}":
            return self.expect is _Expect.FIRST_KEY or (self.expect is _Expect.COMMA and self.builder.innermost is dict)
        return self.expect is _Expect.FIRST_ITEM or (self.expect is _Expect.COMMA and self.builder.innermost is list)

    def _after_value(self) -> None:
        self.expect = _Expect.COMMA if self.builder.innermost else _Expect.NOTHING

    def _string(self) -> None:
        try:
            value, end = _STRING.raw_decode(self.text, self.position)
        except json.JSONDecodeError as error:
            self.builder.stop(
                error.pos,
                f"This text in quotes cannot be read: {error.msg[:1].lower()}{error.msg[1:].rstrip(' at')}.",
                "Close the quotes on the same line, and write `\\\\` for a backslash.",
            )
        self.builder.scalar(value, self.position)
        self.position = end

    def _bare(self) -> None:
        number = _NUMBER.match(self.text, self.position)
        word = _WORD.match(self.text, self.position)
        if word is None:
            self._unexpected(self.text[self.position])
        if number is not None and number.end() == word.end():
            self.builder.scalar(self._number(number), self.position)
        elif word[0] in _WORDS:
            self.builder.scalar(_WORDS[word[0]], self.position)
        else:
            self._not_a_value(word[0])
        self.position = word.end()

    def _number(self, number: re.Match[str]) -> Scalar:
        if not number[1]:
            if len(number[0]) > _LONGEST_INTEGER:
                self.builder.fault(
                    self.position, "This number does not fit in 64 bits.", "Write it in quotes, as text."
                )
                return None
            return int(number[0])
        value = float(number[0]) if len(number[0]) <= 400 else float("inf")
        if not isfinite(value):
            self.builder.fault(self.position, "This number is too large.", "Write it in quotes, as text.")
            return None
        return value

    def _not_a_value(self, word: str) -> NoReturn:
        shown = f"`{word[:60]}`"
        if word.lstrip("-") in {"NaN", "Infinity"}:
            self.builder.stop(self.position, f"{shown} is not a number that JSON has.", "Use null, or text.")
        if word[0] in "-0123456789":
            self.builder.stop(self.position, f"{shown} is not a number.", "Put it in quotes if it is text.")
        self.builder.stop(self.position, f"{shown} is not a value.", "Put text in double quotes.")

    def _unexpected(self, character: str) -> NoReturn:
        hint = "Correct the JSON here."
        if character in {"/", "#"}:
            hint = "JSON has no comments; write YAML if you need them."
        elif character == "'":
            hint = "JSON has only double quotes."
        elif character in {"}", "]"} and self.expect in {_Expect.KEY, _Expect.VALUE}:
            hint = "Remove the comma before it."
        self.builder.stop(self.position, f"`{character}` is here where {_EXPECTED[self.expect]} should be.", hint)


MAX_DEPTH: Final = 72
"""Levels of a JSON body. A payload may have 64; the body around it has a few more."""
LONGEST_NUMBER: Final = 40


def strict_json(body: bytes) -> Any:
    """The one JSON value of a body.

    >>> strict_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    stepkeep.kernel.errors.InvalidInput: the body has the key 'a' twice in one object. Remove one of them.
    """
    try:
        text = body.decode("utf-8")
        value = (_PLAIN_NUMBERS if _has_plain_numbers(body) else _DECODER).decode(text)
    except UnicodeDecodeError:
        raise InvalidInput("the body is not UTF-8.") from None
    except RecursionError:
        raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH} levels.") from None
    except json.JSONDecodeError as problem:
        raise InvalidInput(f"the body is not JSON: {problem.msg} at character {problem.pos}.") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH} levels.")
    return value


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) != len(items):
        seen: set[str] = set()
        twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidInput(f"the body has the key {twice[:80]!a} twice in one object. Remove one of them.")
    return found


def _no_constant(name: str) -> NoReturn:
    raise InvalidInput(f"the body has the value {name}, which is no JSON.")


def _integer(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise InvalidInput(f"the body has a number of {len(text)} digits, which no database keeps.")
    return int(text)


def _number(text: str) -> float:
    if len(text) > LONGEST_NUMBER or (value := float(text)) in (float("inf"), float("-inf")):
        raise InvalidInput(f"the body has the number {text[:20]}…, which no database keeps.")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_no_constant, parse_int=_integer, parse_float=_number
)
_PLAIN_NUMBERS: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_constant)
"""Takes a third of the time where there are many numbers, because it calls nothing for each."""

_DIGITS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG: Final = b"0" * (LONGEST_NUMBER // 2)
"""A number that is longer has as many digits before its point, or after it."""
_POWER: Final = b"0e"


def _has_plain_numbers(body: bytes) -> bool:
    """Whether no number can be too long or too large, whatever the texts hold: no long row of digits, and no power."""
    digits = body.translate(_DIGITS)
    return _LONG not in digits and _POWER not in digits


def _is_deeper(value: Any, most: int) -> bool:
    """Whether a value has more levels than this. Without recursion: the value is hostile."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
