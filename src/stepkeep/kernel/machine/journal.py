"""The journal: hops, the entry that holds all hops of one run in one transaction, and the hash chain over entries.

An entry's hash covers the previous hash and every byte of its body, so a changed, dropped or reordered entry is found.
The body is canonical JSON in field order. Nothing here reads or writes a database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from stepkeep.kernel.machine.bounds import Moment, Seq
from stepkeep.kernel.machine.payloads import digest_of_value

RUN_ENTITY = -1
"""The `no` of a hop of the run itself (or, in a worker's journal, of the worker)."""


class Cause(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The cause of hops: the event, its actor, and their data."""

    event: str
    actor: str
    detail: Mapping[str, Any] | None = None


class Hop(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename={"source": "from", "target": "to"}):
    """One change of one state. `by` is an index into the entry's causes; `of` is the step that caused this hop.

    `digest` is the SHA-256 of what came with the hop: the output of the step, or what a gate shows when it opens.
    """

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
    digest: str | None = None


class Entry(msgspec.Struct, frozen=True, gc=False):
    """All hops of one run in one transaction, in order."""

    tenant: str
    run_id: str
    seq: int
    at: int
    causes: tuple[Cause, ...]
    hops: tuple[Hop, ...]


class SealedEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry as it is stored: its body and its hash."""

    tenant: str
    run_id: str
    seq: Seq
    at: Moment
    body: bytes
    hash: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode

GENESIS = b""


def seal(entry: Entry, head: bytes) -> SealedEntry:
    """Append this entry to the chain that ends in `head`."""
    body = _encode(entry)
    return SealedEntry(entry.tenant, entry.run_id, entry.seq, entry.at, body, chain(head, body))


def chain(head: bytes, body: bytes) -> bytes:
    """The hash of an entry with this body after `head`."""
    return hashlib.sha256(head + body).digest()


def payload_digest(payload: bytes | None) -> str | None:
    """The digest of a payload that is stored outside the journal; None if there is none."""
    return None if payload is None else digest_of_value(payload)


def open_entry(body: bytes) -> Entry:
    """Decode an entry's body."""
    return _decode(body)
