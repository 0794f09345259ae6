"""Reads large JSON bodies: strictly, and their large parts as they are stored.

What is a payload is never decoded in this process. It knows no route. `requests` calls it in a thread.
"""

from __future__ import annotations

import sys
from typing import Any

from stepkeep.definition.text.strict_json import strict_json
from stepkeep.operations.in_child import SMALL_BYTES, in_child
from stepkeep.operations.typed import LargePart
from stepkeep.worker.attempts.payloads import Unstorable, encode


def read_large(body: bytes) -> Any:
    """The checked value of a body; large parts of an object are `LargePart`."""
    return in_child(checked, body)


def checked(body: bytes) -> Any:
    """The same, in the child."""
    value = strict_json(body)
    if isinstance(value, dict):
        return {name: _packed(one) for name, one in value.items()}
    return type(value)()  # no route has such a body: what it holds is of no interest


def _packed(one: Any) -> Any:
    if not isinstance(one, dict | list | str):
        return one
    try:
        encoded = encode(one, what="what was passed", limit=sys.maxsize, is_json=True)
    except Unstorable as problem:
        return LargePart(b"", str(problem), one)
    return LargePart(encoded) if len(encoded) > SMALL_BYTES else one
