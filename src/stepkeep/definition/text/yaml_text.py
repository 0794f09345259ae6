"""Parses YAML as a stream of events: YAML 1.2 scalars, without YAML's dangerous or surprising features.

No anchors, aliases, tags, merge keys, directives or second documents. PyYAML's own constructors are not used: they
recurse, resolve YAML 1.1 and keep the last of two equal keys.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from contextlib import suppress
from math import isfinite
from typing import Final

import yaml

from stepkeep.definition.expressions.template_text import OPENING, expression_end
from stepkeep.definition.text.building import Builder, BuildingStopped, Scalar

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_MAY_BE_SPECIAL: Final = frozenset("+-.0123456789nNtTfF~")
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_LONGEST_NUMBER: Final = 40

_HINTS: Final = {
    "mapping values are not allowed in this context": "Check the indentation, or quote text that holds `: `.",
    "could not find expected ':'": "Check the indentation, and that every key ends in a colon.",
    "did not find expected key": "Check the indentation of this line against its neighbours.",
    "did not find expected '-' indicator": "Check the indentation of this line against its neighbours.",
    "did not find expected ',' or '}'": "Close the brace, or quote text that holds braces or commas.",
    "did not find expected ',' or ']'": "Close the bracket, or quote text that holds brackets or commas.",
    "found unexpected end of stream": "Close the quotes.",
}


def read_yaml(text: str) -> Builder:
    """Build the one document in `text`.

    Valid YAML is read as YAML. Only text that YAML refuses is read again with each `${{ … }}` kept together: in `{
    email: ${{ input.email }} }`, the braces of the expression break YAML.
    """
    builder, broken_at = _read(text, _Shield("", (), ()))
    if broken_at is None or OPENING not in text:
        return builder
    shielded, shield = _shielded(text)
    again, broken_again_at = _read(shielded, shield)
    return again if broken_again_at is None or broken_again_at >= broken_at else builder


class _Shield:
    """The parts of the text that were replaced by a filler, and their original text."""

    def __init__(self, filler: str, starts: tuple[int, ...], originals: tuple[str, ...]) -> None:
        self.filler, self.starts, self.originals = filler, starts, originals

    def lift(self, event: yaml.ScalarEvent) -> str:
        value: str = event.value
        if not self.filler or self.filler not in value:
            return value
        number = bisect_left(self.starts, _offset(event))
        pieces = re.split(rf"\${self.filler}+", value)
        lifted = [pieces[0]]
        for piece in pieces[1:]:
            lifted += [_unquoted(self.originals[number], event.style), piece]
            number += 1
        return "".join(lifted)


def _shielded(text: str) -> tuple[str, _Shield]:
    # Fillers are as long as what they replace, so that every position stays the same.
    filler = next(chr(point) for point in range(0xE000, 0xF8FF) if chr(point) not in text)
    starts, originals, pieces, position = [], [], [], 0
    while (start := text.find(OPENING, position)) >= 0:
        newline = text.find("\n", start)
        line_end = newline if newline >= 0 else len(text)
        end = expression_end(text, start, line_end)
        if end < 0:
            # The rest of the line stays unchanged too: trying each opening in it would be quadratic.
            pieces.append(text[position:line_end])
            position = line_end
            continue
        starts.append(start)
        originals.append(text[start:end])
        pieces += [text[position:start], "$", filler * (end - start - 1)]
        position = end
    pieces.append(text[position:])
    return "".join(pieces), _Shield(filler, tuple(starts), tuple(originals))


def _unquoted(original: str, style: str | None) -> str:
    if style == "'":
        return original.replace("''", "'")
    if style == '"' and "\\" in original:
        events = yaml.parse(f'"{original}"', Loader=yaml.CSafeLoader)
        return "".join(event.value for event in events if isinstance(event, yaml.ScalarEvent))
    return original


def _read(text: str, shield: _Shield) -> tuple[Builder, int | None]:
    """The builder, and where the text stopped being YAML, if it did."""
    builder = Builder()
    reader = _YamlReader(text, builder, shield)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            reader.receive(event)
        if not reader.documents:
            builder.fault(0, "There is nothing in this document.", "Write a definition.")
    except BuildingStopped:
        return builder, None
    except yaml.YAMLError as error:
        offset = min(_broken_at(error), len(text))
        with suppress(BuildingStopped):
            _note_broken(builder, text, offset, error)
        return builder, offset
    return builder, None


def _offset(event: yaml.Event) -> int:
    return event.start_mark.index if event.start_mark else 0


def _broken_at(error: yaml.YAMLError) -> int:
    if not isinstance(error, yaml.MarkedYAMLError):
        return 0
    mark = error.problem_mark or error.context_mark
    return mark.index if mark else 0


def _note_broken(builder: Builder, text: str, offset: int, error: yaml.YAMLError) -> None:
    problem, context = "it cannot be read", ""
    if isinstance(error, yaml.MarkedYAMLError):
        problem, context = error.problem or problem, f" {error.context}" if error.context else ""
    hint = _HINTS.get(problem, "")
    if problem == "found character that cannot start any token":
        tab = text[offset : offset + 1] == "\t"
        hint = "Indent with spaces, not tabs." if tab else "Put the text in quotes."
    builder.fault(offset, f"This is not valid YAML: {problem}{context}.", hint)


class _YamlReader:
    def __init__(self, text: str, builder: Builder, shield: _Shield) -> None:
        self.text, self.builder, self.shield = text, builder, shield
        self.documents = 0

    def receive(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._refuse_decorations(event)
                self._scalar(event)
            case yaml.MappingStartEvent():
                self._refuse_decorations(event)
                self.builder.open({}, _offset(event))
            case yaml.SequenceStartEvent():
                self._refuse_decorations(event)
                self.builder.open([], _offset(event))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self.builder.close()
            case yaml.AliasEvent():
                self.builder.stop(_offset(event), "Aliases (`*name`) are not allowed.", "Write the value out.")
            case yaml.DocumentStartEvent():
                self._document(event)

    def _document(self, event: yaml.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            self.builder.stop(
                _offset(event),
                "A second document starts here.",
                "Keep one document per file, and remove this `---`.",
            )
        if event.version or event.tags:
            self.builder.fault(_offset(event), "Directives (`%…`) are not allowed.", "Remove the line.")

    def _refuse_decorations(self, event: yaml.NodeEvent) -> None:
        offset = _offset(event)
        if event.anchor is not None:
            self.builder.fault(offset, "Anchors (`&name`) are not allowed.", "Write the value out where needed.")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            self.builder.fault(offset, "Tags (`!name`) are not allowed.", "Remove the tag; quote what is text.")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        offset = _offset(event)
        value = self.shield.lift(event)
        if event.style:
            self.builder.scalar(value, offset)
        elif value == "<<" and self.builder.expects_key:
            self.builder.stop(offset, "Merge keys (`<<`) are not allowed.", "Write the keys out.")
        else:
            self.builder.scalar(self._resolve(value, offset), offset)

    def _resolve(self, text: str, offset: int) -> Scalar:
        if text in _NULLS:
            return None
        if text[0] not in _MAY_BE_SPECIAL:
            return text
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if _INTEGER.fullmatch(text):
            return self._integer(text, offset)
        if _FLOAT.fullmatch(text):
            return self._float(text, offset)
        if _NOT_FINITE.fullmatch(text):
            self.builder.fault(offset, f"`{text}` is not a number that can be stored.", "Quote it if it is text.")
        return text

    def _integer(self, text: str, offset: int) -> Scalar:
        if _LEADING_ZERO.fullmatch(text):
            self.builder.fault(
                offset,
                "A number that starts with 0 reads as octal to some and as decimal to others.",
                "Drop the zeros, or put it in quotes if it is text.",
            )
            return None
        if len(text) > _LONGEST_NUMBER:
            self.builder.fault(offset, "This number does not fit in 64 bits.", "Write it in quotes, as text.")
            return None
        return int(text, 0)

    def _float(self, text: str, offset: int) -> Scalar:
        value = float(text) if len(text) <= 400 else float("inf")
        if not isfinite(value):
            self.builder.fault(offset, "This number is too large.", "Write it in quotes, as text.")
            return None
        return value
