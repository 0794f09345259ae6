"""Finds `${{ … }}` in text: where an expression starts, and where it ends whatever braces and quotes it holds.

It reads CEL's tokens, not its grammar, and checks nothing inside the braces. The YAML parser calls it to keep unquoted
expressions together, and the expression compiler to split templates.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

OPENING: Final = "${{"

WHOLE_INPUT: Final = "${{ input }}"
"""The inputs of a handler or agent whose step has no `with`; its parameters select from them."""

# A comment ends at `}}` too: text on one line has no other end for it. Raw strings know no escapes.
_TOKEN = re.compile(
    r"""
      [rR][bB]?(?:"{3}.*?"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
    | [bB][rR](?:"{3}.*?"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
    | "{3}(?:\\.|[^\\])*?"{3} | '{3}(?:\\.|[^\\])*?'{3}
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | //(?:(?!}}|\n).)*
    | \\.
    | [A-Za-z0-9_]+
    | [{}]
    """,
    re.VERBOSE | re.DOTALL,
)


class Embedded(NamedTuple):
    """One `${{ … }}`: the source between the braces, and where that source starts in the whole text."""

    source: str
    offset: int


class Unclosed(NamedTuple):
    """A `${{` without its `}}`, and where it starts."""

    offset: int


def expression_end(text: str, start: int, limit: int) -> int:
    """The index after the `}}` that closes the `${{` at `start`, or -1 if nothing before `limit` does."""
    depth = 0
    position = start + len(OPENING)
    while (match := _TOKEN.search(text, position, limit)) is not None:
        position = match.end()
        if match[0] == "{":
            depth += 1
        elif match[0] == "}" and depth:
            depth -= 1
        elif match[0] == "}" and text[position : position + 1] == "}" and position < limit:
            return position + 1
    return -1


def split(text: str) -> list[str | Embedded | Unclosed]:
    """The text in order, as plain pieces and embedded expressions; it ends at one that is not closed."""
    pieces: list[str | Embedded | Unclosed] = []
    position = 0
    while (start := text.find(OPENING, position)) >= 0:
        if start > position:
            pieces.append(text[position:start])
        end = expression_end(text, start, len(text))
        if end < 0:
            pieces.append(Unclosed(start))
            return pieces
        inner = start + len(OPENING)
        pieces.append(Embedded(text[inner : end - 2], inner))
        position = end
    if position < len(text):
        pieces.append(text[position:])
    return pieces
