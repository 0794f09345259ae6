"""Validates text from callers: keys, names, comments, reasons, run ids. Values that no row can hold are refused.

A value that a database refuses would fail the whole transaction that it shares with others. Every operation that takes
text calls this first; payloads are limited where they are encoded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from stepkeep.definition import arguments
from stepkeep.edges.names import look_of, script_of
from stepkeep.edges.safe_text import inert_line, type_name
from stepkeep.kernel.errors import InvalidInput, NoSuchName, NotFound

MAX_KEY = 255
MAX_WORDS = 4000
MAX_LABELS = 64
MOST_NAMED = 20

_is_run_id = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def key(what: str, value: object, limit: int = MAX_KEY) -> str:
    """A name or key: short, printable, on one line.

    >>> key("the business key", "order-7")
    'order-7'
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text of 1 to {limit} printable characters, not {type_name(value)}")
    plain = str.__str__(value)  # a subclass of str may override anything, and no encoder takes it
    if not (0 < len(plain) <= limit and plain.isprintable()):
        raise InvalidInput(f"{what} must have 1 to {limit} printable characters")
    return plain


def person(what: str, value: object) -> str:
    """The name of a principal: no blanks, no look-alikes, in its shortest Unicode form, letters of one writing system.

    >>> person("the user", "ann@example.org")
    'ann@example.org'
    """
    plain = key(what, value)
    if any(letter.isspace() for letter in plain) or not plain[0].isalnum():
        raise InvalidInput(f"{what} begins with a letter or a digit and has no blanks: {plain!a}. Use a display name.")
    return in_plain_letters(what, plain)


def in_plain_letters(what: str, plain: str) -> str:
    """A name that reads as it is written: letters of one script, no character without a shape, no mark of its own."""
    unseen = any(not letter.isspace() and not look_of(letter) for letter in plain)
    if unseen or unicodedata.normalize("NFKC", plain) != plain:
        raise InvalidInput(
            f"{what} has characters that look like others or like none: {plain!a}. Write it in plain letters."
        )
    scripts = sorted({script_of(letter) for letter in plain if letter.isalpha()})
    if len(scripts) > 1:
        raise InvalidInput(f"{what} mixes letters of {' and '.join(scripts)}: {plain!a}. Use those of one script.")
    return plain


def names(what: str, given: object) -> list[str]:
    """Several names."""
    return [key(f"each of {what}", name) for name in arguments.items(what, given)]


def queues(what: str, given: object) -> list[str]:
    """Names of queues; an empty one is the default queue."""
    return [name if name == "" else key(f"each of {what}", name) for name in arguments.items(what, given)]


def words(what: str, value: object, limit: int = MAX_WORDS) -> str:
    """Text from people, possibly empty, possibly of several lines."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, not {type_name(value)}")
    plain = str.__str__(value)
    if len(plain) > limit:
        raise InvalidInput(f"{what} has {len(plain)} characters; at most {limit} fit. Pass a reference instead.")
    if "\x00" in plain or not _is_unicode(plain):
        raise InvalidInput(f"{what} has characters that no database keeps (NUL, or half of a surrogate pair)")
    return plain


def labels(value: object) -> Mapping[str, str]:
    """Labels of a run: a few texts under a few names."""
    if not isinstance(value, Mapping) or len(value) > MAX_LABELS:
        raise InvalidInput(f"labels are at most {MAX_LABELS} texts by name")
    return {key("the name of a label", name): words("the text of a label", text) for name, text in value.items()}


def run_id(value: Any) -> str:
    """A run id in the form that every store uses; anything else names no run."""
    if isinstance(value, str) and _is_run_id(plain := str.__str__(value)):
        return plain
    raise NotFound(f"there is no run {_shown(value)}")


def no_such_step(of: str, step: str, known: Sequence[str]) -> NoSuchName:
    """The refusal of a name that no step of a run or a workflow has. It names the first steps that there are."""
    more = f" and {len(known) - MOST_NAMED:,} more" if len(known) > MOST_NAMED else ""
    listed = ", ".join(known[:MOST_NAMED])
    return NoSuchName(f"{of} has no step {inert_line(step, 100)}. Its steps: {listed}{more}.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    """An invalid run id, shortened and safe to print."""
    if not isinstance(value, str):
        return f"called by a {type_name(value)}"
    text = str.__str__(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 80 else f"{text[:77]}..."
