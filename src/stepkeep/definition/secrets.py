"""Secrets in definitions: which ones a step reads, and how Python and queues name them. It never sees a value.

A definition holds `${{ secret.NAME }}` alone. A step that reads one asks for the capability `secret:NAME`, so that only
a worker that has the secret claims it. The native front end, the worker and `explain` call it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from stepkeep.definition.expressions.objects import Expr
from stepkeep.definition.expressions.template_text import OPENING, Embedded, split
from stepkeep.edges.safe_text import plain_text, type_name
from stepkeep.kernel.errors import InvalidInput

LONGEST_SECRET_NAME: Final = 100
CAPABILITY: Final = "secret:"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ = re.compile(r"""\s*secret(?:\s*\.\s*([A-Za-z0-9_]+)|\s*\[\s*["']([A-Za-z0-9_]+)["']\s*\])\s*""")


def secret(name: str) -> Expr:
    """A secret of the worker that executes the step, for inputs, headers, variables and arguments.

    It is a reference: the value is read when the step is executed, and is never stored. It stands alone or in an
    f-string; nothing can be computed with it.

    >>> print(f"Bearer {secret('API_TOKEN')}")
    Bearer ${{ secret.API_TOKEN }}
    """
    if not is_secret_name(text := plain_text(name)):
        given = type_name(name) if text is None else repr(text[:40])
        raise InvalidInput(
            f"secret() takes a name of letters, digits and _, at most {LONGEST_SECRET_NAME} characters, not {given}."
        )
    return Expr(f"secret.{text}")


def is_secret_name(name: str | None) -> bool:
    """Whether a secret can have this name."""
    return name is not None and len(name) <= LONGEST_SECRET_NAME and _NAME.fullmatch(name) is not None


def reference(name: str) -> str:
    """How a definition names a secret. This is shown and stored instead of its value."""
    return f"{OPENING} secret.{name} }}}}"


def secret_capability(name: str) -> str:
    """What a queue asks of a worker for a step that reads this secret."""
    return f"{CAPABILITY}{name}"


def secrets_among(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the secrets among the capabilities of a queue."""
    return tuple(word.removeprefix(CAPABILITY) for word in capabilities if word.startswith(CAPABILITY))


def secrets_read(value: Any) -> list[str]:
    """The secrets that the templates in plain data read, sorted.

    >>> secrets_read({"token": "Bearer ${{ secret.API_TOKEN }}", "to": ["${{ input.email }}"]})
    ['API_TOKEN']
    """
    found: set[str] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, str) and OPENING in part:
            reads = (_READ.fullmatch(piece.source) for piece in split(part) if isinstance(piece, Embedded))
            found.update(read[1] or read[2] for read in reads if read is not None)
    return sorted(found)
