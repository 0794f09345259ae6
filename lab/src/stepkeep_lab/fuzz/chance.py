"""Hostile texts, numbers and JSON values, and small changes to texts and trees; all drawn from one source of chance.

Knows nothing of the engine. Every target draws from here, so that what was once found hostile is tried everywhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")
Path = tuple[Any, ...]

CONTROLS: Final = (
    "\x1b]0;PWNED\x07",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "\r",
    "\x08\x08\x08",
    "\x07",
    "\x7f",
    "\x85",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u2028",
    "\ufeff",
    "\U000e0041",
)
"""What a terminal acts upon, or a reader cannot see."""

TEXTS: Final = (
    "",
    " ",
    "a",
    "null",
    "true",
    "0",
    "-1",
    "1e400",
    "NaN",
    "5s",
    "P1D",
    "é",
    "é",
    "ß" * 40,
    "😀",
    "\U0010ffff",
    "\x00",
    "a\x00b",
    "\ud800",
    "a\udfffb",
    "\n",
    "a\nforged.yaml:1:1: all is well",
    "\t",
    "${{",
    "${{ input }}",
    "${{ input.x }}",
    "${{ 1 / 0 }}",
    "${{ steps.a.output }}",
    "}}",
    "'; drop table runs; --",
    "../../etc/passwd",
    "/dev/null",
    "%s%n{0}{}",
    "[/] [bold]x[/bold] [link=https://example.com]y[/link]",
    "\\u001b[2J",
    "__class__",
    "undo:a",
    "check:run",
    *CONTROLS,
)
INTEGERS: Final = (
    0,
    1,
    -1,
    2,
    10,
    255,
    2**15,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**53 - 1,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    -(10**30),
)
FLOATS: Final = (0.0, -0.0, 0.5, 1.5, 1e-320, 1e308, -1e308, 5e-324, 2.0**53, 1.0000000000000002)


def hostile_text(random: Random) -> str:
    """A text from the list, a mix of several, or a long one."""
    kind = random.random()
    if kind < 0.6:
        return random.choice(TEXTS)
    if kind < 0.9:
        return "".join(random.choice(TEXTS) for _ in range(random.randint(2, 4)))
    return random.choice(TEXTS[2:]) * random.choice((64, 256, 5_000))


def scalar(random: Random, *, storable: bool = False) -> Any:
    """One JSON scalar; `storable` leaves out what no store takes (NUL, surrogates, integers beyond 64 bits)."""
    kind = random.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return random.random() < 0.5
    if kind == 2:
        number = random.choice(INTEGERS)
        return number if not storable or -(2**53) < number < 2**53 else 7
    if kind == 3:
        return random.choice(FLOATS)
    text = hostile_text(random)
    return "".join(letter for letter in text if letter != "\x00" and not _is_surrogate(letter)) if storable else text


def json_value(random: Random, *, depth: int = 3, storable: bool = False) -> Any:
    """A JSON value of a few levels."""
    kind = random.random()
    if depth == 0 or kind < 0.5:
        return scalar(random, storable=storable)
    if kind < 0.75:
        return [json_value(random, depth=depth - 1, storable=storable) for _ in range(random.randrange(4))]
    return {
        str(scalar(random, storable=storable)): json_value(random, depth=depth - 1, storable=storable)
        for _ in range(random.randrange(4))
    }


def nested(depth: int, *, leaf: Any = None, mapping: bool = False) -> Any:
    """A value nested this deep."""
    value = leaf
    for _ in range(depth):
        value = {"a": value} if mapping else [value]
    return value


def _is_surrogate(letter: str) -> bool:
    return "\ud800" <= letter <= "\udfff"


# -- texts -------------------------------------------------------------------------------------------------------------
def changed_text(random: Random, text: str, most: int = 4) -> str:
    """The text after a few random edits."""
    for _ in range(random.randint(1, most)):
        text = random.choice(_EDITS)(random, text)
    return text


def _span(random: Random, text: str) -> tuple[int, int]:
    start = random.randrange(len(text) + 1)
    return start, min(len(text), start + random.choice((1, 1, 2, 5, 20, 100)))


def _drop(random: Random, text: str) -> str:
    start, end = _span(random, text)
    return text[:start] + text[end:]


def _double(random: Random, text: str) -> str:
    start, end = _span(random, text)
    return text[:end] + text[start:]


def _swap_lines(random: Random, text: str) -> str:
    lines = text.split("\n")
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def _drop_line(random: Random, text: str) -> str:
    lines = text.split("\n")
    del lines[random.randrange(len(lines))]
    return "\n".join(lines)


def _double_line(random: Random, text: str) -> str:
    lines = text.split("\n")
    place = random.randrange(len(lines))
    lines.insert(random.randrange(len(lines) + 1), lines[place])
    return "\n".join(lines)


def _insert(random: Random, text: str) -> str:
    start = random.randrange(len(text) + 1)
    return text[:start] + hostile_text(random) + text[start:]


def _replace_letter(random: Random, text: str) -> str:
    if not text:
        return random.choice(TEXTS)
    start = random.randrange(len(text))
    return text[:start] + random.choice("{}[]:,\"'\\-#&*!|>%@`?$()0 \n\t~<=\x00\x1b\x85\u2028é") + text[start + 1 :]


def _cut(random: Random, text: str) -> str:
    return text[: random.randrange(len(text) + 1)]


_EDITS: Final[tuple[Callable[[Random, str], str], ...]] = (
    _drop,
    _double,
    _swap_lines,
    _drop_line,
    _double_line,
    _insert,
    _replace_letter,
    _replace_letter,
    _cut,
)


# -- trees -------------------------------------------------------------------------------------------------------------
def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every part of a tree but the root."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def changed_tree(random: Random, value: Any, make: Callable[[Random], Any], most: int = 3) -> Any:
    """A copy of the tree after a few edits: parts dropped, doubled, swapped, replaced by what `make` makes."""
    tree = copy.deepcopy(value)
    for _ in range(random.randint(1, most)):
        paths = list(places(tree))
        if not paths:
            return make(random)
        path = random.choice(paths)
        kind = random.randrange(5)
        if kind == 0:
            without(tree, path)
        elif kind == 1:
            _put(tree, path, make(random))
        elif kind == 2:
            _rename(tree, path, str(scalar(random)))
        elif kind == 3:
            _put(tree, path, copy.deepcopy(_get(tree, random.choice(paths))))
        else:
            holder = _get(tree, path[:-1])
            if isinstance(holder, list):
                holder.insert(random.randrange(len(holder) + 1), copy.deepcopy(holder[path[-1]]))
            else:
                holder[hostile_text(random)] = make(random)
    return tree


def _get(tree: Any, path: Path) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def _put(tree: Any, path: Path, value: Any) -> None:
    _get(tree, path[:-1])[path[-1]] = value


def without(tree: Any, path: Path) -> None:
    """Remove the part at this path."""
    del _get(tree, path[:-1])[path[-1]]


def _rename(tree: Any, path: Path, key: str) -> None:
    holder = _get(tree, path[:-1])
    if isinstance(holder, dict):
        holder[key] = holder.pop(path[-1])


# -- smaller -----------------------------------------------------------------------------------------------------------
def shorter(items: Sequence[T]) -> Iterator[list[T]]:
    """The items with a run of them left out: halves first, single ones last."""
    size = len(items) // 2 or 1
    while size and items:
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
        size //= 2


def shorter_text(text: str) -> Iterator[str]:
    """The text with lines left out, then with characters left out."""
    lines = text.split("\n")
    if len(lines) > 1:
        for fewer in shorter(lines):
            yield "\n".join(fewer)
    if len(text) <= 2_000:
        for letters in shorter(text):
            yield "".join(letters)


def smaller_tree(tree: Any) -> Iterator[Any]:
    """The tree with one part left out, large parts first."""
    for path in sorted(places(tree), key=len):
        copied = copy.deepcopy(tree)
        without(copied, path)
        yield copied
