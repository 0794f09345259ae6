"""References to payloads that are kept outside their rows: JSON with the digest and the size of the value.

A reference stands wherever a payload could stand. The kernel writes its digest to the journal as it would that of the
value, and never reads the value. `operations/pipeline/payloads.py` puts references in and takes them out.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

MADE_HERE = b'{"$stepkeep.'
"""How everything begins that stands in the place of a payload: references, and payloads that are sealed."""
PREFIX = b'{"$stepkeep.payload":'

_REFERENCE = re.compile(
    rb'\{"\$stepkeep\.payload":\{"sha256":"([0-9a-f]{64})","bytes":([0-9]{1,15}),"kept":"([a-z]+)"\}\}'
)


class Reference(NamedTuple):
    """A payload elsewhere. `kept` says where: in `rows` of the same database, or in a `store` of the user's."""

    digest: str
    size_bytes: int
    kept: str

    def encoded(self) -> bytes:
        return b'%s{"sha256":"%s","bytes":%d,"kept":"%s"}}' % (
            PREFIX,
            self.digest.encode(),
            self.size_bytes,
            self.kept.encode(),
        )


def read_reference(payload: bytes | None) -> Reference | None:
    """The reference that stands in the place of a payload; None where the payload itself does.

    >>> read_reference(Reference("0" * 64, 5, "rows").encoded()).size_bytes
    5
    """
    if payload is None or not payload.startswith(PREFIX):
        return None
    found = _REFERENCE.fullmatch(payload)
    return None if found is None else Reference(found[1].decode(), int(found[2]), found[3].decode())


def digest_of_value(payload: bytes) -> str:
    """The SHA-256 of a payload, or of the value that a reference stands for."""
    reference = read_reference(payload)
    return hashlib.sha256(payload).hexdigest() if reference is None else reference.digest
