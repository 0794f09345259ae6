"""Which headers an HTTP step may set: names that the protocol allows, values that fit on one line of plain ASCII.

A value may be a secret, so no complaint quotes one. Definitions are checked with it when they are read, and rendered
headers once more before a request is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from stepkeep.definition.expressions.template_text import OPENING

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
