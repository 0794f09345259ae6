"""Reads the body of an answer up to a limit, and unpacks gzip and deflate without ever holding more than the limit.

The HTTP library unpacks a whole piece at once and takes several encodings on top of each other: a few kilobytes then
become gigabytes. Here one encoding is taken, and each step of unpacking is bounded. The client calls it.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable

from stepkeep.network.failures import BadAnswer

ACCEPTED = "gzip, deflate"
"""What the client says that it accepts."""

_PLAIN = frozenset({"", "identity"})
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB = 47
_BARE = -15


async def read_body(pieces: AsyncIterator[bytes], encoding: str, limit: int) -> tuple[bytes, bool]:
    """The body, and whether it is whole; a longer one is cut at `limit` bytes. Raises BadAnswer."""
    unpack = _unpacker(encoding)
    body = bytearray()
    async for piece in pieces:
        body += unpack(piece, limit + 1 - len(body))
        if len(body) > limit:
            return bytes(body[:limit]), False
    return bytes(body), True


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    name = encoding.strip().lower()
    if name in _PLAIN:
        return lambda piece, _: piece
    if name not in _PACKED:
        raise BadAnswer("the body of the answer is packed in a way that was not asked for")
    return _Unpacker(bare=name == "deflate")


class _Unpacker:
    """Unpacks piece by piece. Some servers send deflate without its header, which only the first piece shows."""

    def __init__(self, *, bare: bool) -> None:
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._may_be_bare = bare

    def __call__(self, piece: bytes, most: int) -> bytes:
        try:
            found = self._inflate.decompress(piece, most)
        except zlib.error:
            if not self._may_be_bare:
                raise BadAnswer("the body of the answer cannot be unpacked") from None
            self._inflate, self._may_be_bare = zlib.decompressobj(_BARE), False
            return self(piece, most)
        self._may_be_bare = self._may_be_bare and not found
        return found
