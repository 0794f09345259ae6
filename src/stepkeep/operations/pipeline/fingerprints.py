"""What an idempotency key was used for: the fingerprint of a request, and in which parts two requests differ.

It computes texts and reads no store. `start.py` keeps the fingerprint with the key and compares it when the key comes
back.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

FORMAT = "2:"
"""Begins every fingerprint that can be compared part by part; one from before is a SHA-256 alone."""

_canonical = msgspec.json.Encoder(order="sorted").encode


def fingerprint(parts: Mapping[str, Any], version: int | None) -> str:
    """The version that was named, a digest of everything else, and a short sum of each part, which names what differs.

    >>> one, other = fingerprint({"input": 1, "labels": None}, None), fingerprint({"input": 2, "labels": None}, 3)
    >>> difference(one, other, ("input", "labels"))
    ['input']
    """
    written = [_canonical(value) for value in parts.values()]
    sums = "".join(f"{zlib.crc32(text) & 0xFFFF:04x}" for text in written)
    return f"{FORMAT}{version or ''}:{hashlib.sha256(b' '.join(written)).hexdigest()}:{sums}"


def difference(earlier: str, later: str, names: tuple[str, ...]) -> list[str] | None:
    """The parts in which two requests differ; None if they ask for the same. A version counts where both name one."""
    before, now = earlier.removeprefix(FORMAT).split(":"), later.removeprefix(FORMAT).split(":")
    versions = [] if not before[0] or not now[0] or before[0] == now[0] else [f"version {before[0]}, now {now[0]}"]
    if before[1] == now[1]:
        return versions or None
    sums = [[one[at : at + 4] for at in range(0, 4 * len(names), 4)] for one in (before[2], now[2])]
    return [name for name, *pair in zip(names, *sums, strict=True) if pair[0] != pair[1]] + versions
