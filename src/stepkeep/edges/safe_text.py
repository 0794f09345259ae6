"""Makes text safe to show: on a terminal, in a log line, in a stored error, later on a page.

Text from handlers, remote servers, definitions and people may hold terminal escape sequences, bidirectional controls or
line breaks that forge other lines. Every edge passes such text through this module. Nothing here raises:
`exception_text` also survives exceptions whose own `__str__` fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape
from itertools import accumulate
from typing import Final, cast

MAX_SHOWN: Final = 4_000
"""How many characters of one text are shown; the rest is counted."""

# C0, DEL, C1, soft hyphen, bidirectional and zero-width controls, line separators, surrogates, tags.
_CONTROLS: Final = (
    "\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_in_lines: Final = re.compile(f"[\x00-\x08\x0b-\x1f{_CONTROLS}]").sub
_outside_ascii: Final = re.compile(f"[{_CONTROLS}]").sub
_in_one_line: Final = re.compile(f"[\x00-\x1f{_CONTROLS}]").sub


def inert(text: str, limit: int = MAX_SHOWN) -> str:
    r"""The text with every control character but newline and tab written as an escape, and its length bounded.

    >>> inert("a\x1b[2Jb\u202ec")
    'a\\x1b[2Jb\\u202ec'
    """
    return text if len(text) <= limit and text.isprintable() else _escaped(text, limit, _in_lines)


def inert_line(text: str, limit: int = MAX_SHOWN) -> str:
    r"""Like `inert`, for a text that must stay on one line: newline and tab are escaped as well.

    >>> inert_line("a\nforged.yaml:1:1: fine")
    'a\\nforged.yaml:1:1: fine'
    """
    return text if len(text) <= limit and text.isprintable() else _escaped(text, limit, _in_one_line)


def inert_json(text: str) -> str:
    r"""JSON in which control characters inside strings are JSON's own escapes: the same value, safe on a terminal.

    Half of a surrogate pair, which no decoder accepts, becomes the six visible characters of its escape.

    >>> inert_json('["\x7f\u202e"]')
    '["\\u007f\\u202e"]'
    """
    return _outside_ascii(_escape_json, text)


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A title and rows of two cells for a notebook, in which no text is taken for HTML.

    >>> html_table("run r1", [("output", "<b>")])
    '<b>run r1</b><table><tr><td>output</td><td>&lt;b&gt;</td></tr></table>'
    """
    cells = "".join(f"<tr><td>{escape(inert(one))}</td><td>{escape(inert(other))}</td></tr>" for one, other in rows)
    return f"<b>{escape(inert_line(title))}</b>" + (f"<table>{cells}</table>" if cells else "")


def exception_text(error: BaseException) -> str:
    """`TypeName: message` of any exception, also of one that cannot be printed. Not escaped: `inert` does that.

    >>> exception_text(KeyError("email"))
    "KeyError: 'email'"
    """
    name, message = type_name(error), exception_message(error)
    if message is None:
        return f"{name} (its message cannot be read)"
    return f"{name}: {message}" if message else name


def exception_message(error: BaseException) -> str | None:
    """What `str(error)` gives, as a plain str; None where that raises."""
    try:
        # Not `str(error)` alone: `__str__` may return a subclass of str with methods of its own.
        return str.__add__("", str(error))
    except BaseException:  # noqa: BLE001 - user code: SystemExit and RecursionError included
        return None


def type_name(value: object) -> str:
    """The name of a value's type, whatever its metaclass does."""
    return class_name(type(value))


def class_name(kind: type) -> str:
    """The name of a class, whatever its metaclass does."""
    return str.__add__("", type.__dict__["__name__"].__get__(kind))


def plain_text(value: object) -> str | None:
    """A text as a plain str, whatever methods a subclass has; None for anything else."""
    return str.__add__("", cast("str", value)) if is_a(value, str) else None


def is_a(value: object, *kinds: type) -> bool:
    """Whether a value is of one of these classes. `isinstance` would ask `value.__class__`, which is user code.

    >>> is_a(True, str, int)
    True
    """
    return issubclass(type(value), kinds)


def _escaped(text: str, limit: int, replace: Callable[[Callable[[re.Match[str]], str], str], str]) -> str:
    """At most this many characters, escapes counted as they are written, and how many of the text were left out."""
    kept = text[:limit]
    shown = replace(_escape, kept)
    if len(shown) > limit:
        sizes = accumulate(len(replace(_escape, letter)) for letter in kept)
        kept = kept[: sum(size <= limit for size in sizes)]
        shown = replace(_escape, kept)
    return shown if len(kept) == len(text) else f"{shown}… ({len(text) - len(kept):,} more characters)"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    match found[0]:
        case "\n":
            return "\\n"
        case "\t":
            return "\\t"
        case "\r":
            return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xD800 <= code < 0xE000:
        return f"\\\\u{code:04x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
