"""The child process that checks large JSON bodies, strictly, and encodes their large parts as they are stored.

It imports little, because it starts while a request waits. It knows no route. `large_bodies` starts it and reads its
answers.
"""

from __future__ import annotations

import gc
import marshal
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from stepkeep.definition.strict_json import strict_json
from stepkeep.kernel.errors import InvalidInput
from stepkeep.worker.payloads import Unstorable, encode

SMALL_BYTES: Final = 64 * 1024
"""Up to this size, the service checks a body itself, and a part of a large one is told as it is."""


def checked(body: bytes) -> bytes:
    """What is told of a body: a refusal, or the value. A large part of an object is bytes, or a refusal and itself."""
    try:
        value = strict_json(body)
    except InvalidInput as problem:
        return marshal.dumps((str(problem), None))
    if isinstance(value, dict):
        return marshal.dumps((None, {name: _packed(one) for name, one in value.items()}))
    return marshal.dumps((None, type(value)()))  # no route has such a body: what it holds is of no interest


def live(line: int) -> None:
    """Answer until the parent is gone. Requests of the parent go first."""
    gc.disable()
    os.nice(5)
    with Connection(line) as parent, suppress(EOFError, OSError):
        while True:
            parent.send_bytes(checked(parent.recv_bytes()))


def _packed(one: Any) -> Any:
    if not isinstance(one, dict | list | str):
        return one
    try:
        encoded = encode(one, what="what was passed", limit=sys.maxsize, is_json=True)
    except Unstorable as problem:
        return str(problem), one
    return encoded if len(encoded) > SMALL_BYTES else one
