"""The record: hops, the entry that holds all hops of one run in one transaction, and the chain that seals entries.

An entry's hash covers the hash before it and every byte of its body, so a changed, dropped or reordered entry shows.
The body is canonical JSON in field order; nothing here reads or writes a database.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

RUN_ENTITY = -1
"""The `no` of a hop that belongs to the run itself (or, in a worker's journal, to the worker)."""


class Cause(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why hops happened: the event, who was behind it, and what they said."""

    event: str
    actor: str
    detail: dict[str, Any] | None = None


class Hop(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename={"source": "from", "target": "to"}):
    """One change of one state. `by` points into the entry's causes; `of` names the step that led to this hop."""

    no: int
    trigger: str
    source: str | None
    target: str
    by: int = 0
    of: int | None = None
    fence: int | None = None
    attempt: int | None = None
    took: int | None = None
    due_at: int | None = None
    category: str | None = None
    error: str | None = None


class Entry(msgspec.Struct, frozen=True, gc=False):
    """All hops of one run in one transaction, in order."""

    tenant: str
    run_id: str
    seq: int
    at: int
    causes: tuple[Cause, ...]
    hops: tuple[Hop, ...]


class SealedEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry as it is stored: its body and the hash that continues the chain."""

    tenant: str
    run_id: str
    seq: int
    at: int
    body: bytes
    hash: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode

GENESIS = b""


def seal(entry: Entry, head: bytes) -> SealedEntry:
    """Continue the chain that ends in `head` with this entry."""
    body = _encode(entry)
    return SealedEntry(entry.tenant, entry.run_id, entry.seq, entry.at, body, chain(head, body))


def chain(head: bytes, body: bytes) -> bytes:
    """The hash of an entry with this body that follows `head`."""
    return hashlib.sha256(head + body).digest()


def open_entry(body: bytes) -> Entry:
    """Read an entry's body back."""
    return _decode(body)
