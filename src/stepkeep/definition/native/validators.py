"""Validators that the models of several formats share: of keys, and of the bounds of durations and attempts.

Each raises an error that `complaints` puts into words, with the position in the source. It knows no format. The models
in `written` of the native format and of the dialects use it.

Which headers an HTTP step may set: names that the protocol allows, values that fit on one line of plain ASCII.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError, PydanticKnownError

from stepkeep.definition.bounds import MAX_ATTEMPTS, SEED_ATTEMPTS
from stepkeep.definition.durations import format_duration, parse_duration
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.kernel.errors import InvalidInput


def _literal(text: str) -> str:
    if OPENING in text:
        raise PydanticCustomError("expression", "is taken as it is written")
    return text


literal = AfterValidator(_literal)
"""A text in which no expression is evaluated, and which therefore must hold none."""

Word = Annotated[str, StringConstraints(min_length=1, max_length=127), literal]

DurationText = Annotated[str, Field(examples=["30s", "1h30m", "500ms", "PT5M"])]


def filled(value: Any) -> Any:
    """The value of a key that must not be empty."""
    # `retry:` with nothing after it is a mistake, not a request for the default.
    if value is None:
        raise PydanticCustomError("empty", "is empty")
    return value


def given(shape: Any) -> BeforeValidator:
    """A key that may be omitted, but not empty."""
    return BeforeValidator(filled, json_schema_input_type=shape)


def within(limits: tuple[int, int], text: Any = DurationText) -> BeforeValidator:
    """A duration within bounds, as microseconds."""
    return BeforeValidator(partial(duration, limits=limits), json_schema_input_type=text)


def duration(value: Any, limits: tuple[int, int]) -> int:
    """The microseconds of a duration, if it is within these limits."""
    found = parse_duration(filled(value))
    least, most = limits
    if not least <= found <= most:
        span = {"least": format_duration(least), "most": format_duration(most)}
        raise PydanticCustomError("out_of_bounds", "must be from {least} to {most}", span)
    return found


def short(key: str, shape: Any) -> BeforeValidator:
    """A bare text stands for a block with this one key."""

    def widen(value: Any) -> Any:
        return {key: value} if isinstance(value, str) else filled(value)

    return BeforeValidator(widen, json_schema_input_type=str | shape)


VARIABLE = "STEPKEEP_MAX_ATTEMPTS"


def attempts_bound(usual: int = MAX_ATTEMPTS) -> int:
    """The bound that holds in this process; `usual` is that of the format, without a bound by the operator."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return usual
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_ATTEMPTS:
        raise InvalidInput(f"{VARIABLE} must be a whole number from 1 to {MAX_ATTEMPTS}, not {text[:40]!r}.")
    return int(text)


def _attempts(value: int) -> int:
    if value > (bound := attempts_bound()):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


def _seed_attempts(value: int) -> int:
    if value > (bound := attempts_bound(SEED_ATTEMPTS)):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


def _seed_retries(value: int) -> int:
    if value > (bound := attempts_bound(SEED_ATTEMPTS) - 1):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


Attempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS), AfterValidator(_attempts)]
"""All executions of a step, the first included."""

SeedAttempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS), AfterValidator(_seed_attempts)]
"""The same in a format whose seed says 1 to 10."""

SeedRetries = Annotated[int, Field(ge=0, le=MAX_ATTEMPTS - 1), AfterValidator(_seed_retries)]
"""Executions after the first, in such a format."""


RESERVED = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that frame a request, lead it or manage its connection: the client sets them, from the URL and the body."""

_is_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_is_value = re.compile(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?").fullmatch


def complaints(headers: Mapping[str, str], *, rendered: bool) -> Iterator[tuple[str, str]]:
    """Each header that cannot be sent, with what is wrong with it; no value is quoted.

    >>> list(complaints({"Host": "example.com", "X-Note": "a\\nb"}, rendered=True))
    [('Host', 'is set by the client itself'), ('X-Note', 'has a value with a line break or a control character in it')]
    """
    known: set[str] = set()
    for name, value in headers.items():
        if not _is_name(name):
            yield name, "is no name of a header: letters, digits and hyphens only"
        elif name.lower() in RESERVED:
            yield name, "is set by the client itself"
        elif name.lower() in known:
            yield name, "is given twice; case makes no difference"
        elif (rendered or OPENING not in value) and not _is_value(value):
            yield name, _what_is_wrong(value)
        known.add(name.lower())


def _what_is_wrong(value: str) -> str:
    if not value.isascii():
        return "has a value that is not plain ASCII"
    if value != value.strip(" \t") and _is_value(value.strip(" \t")):
        return "has a value that begins or ends with a space"
    return "has a value with a line break or a control character in it"
