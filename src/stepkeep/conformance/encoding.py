"""Reads and writes the JSON of logs: parses lines, rebuilds the bytes of journal entries, computes the hash chain.

It is written from the format's description and shares no code with the engine, so that a mistake there is not repeated
here. Strings use the standard library's JSON; numbers keep the digits they were read with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from json.encoder import encode_basestring
from typing import Any

import msgspec

GENESIS = b""
"""The hash before the first entry of every journal."""

HOP_FIELDS = ("of", "fence", "attempt", "took", "due_at", "category", "error", "digest")
"""The optional fields of a hop, in the order in which they are written."""


LONGEST_LINE = 4 * 1024 * 1024
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.decode
_encode_in_order = msgspec.json.Encoder(order="sorted").encode
CONSTANTS = {None: "null", True: "true", False: "false"}


class Decimal(float):
    """A JSON number with a fraction that keeps its original digits."""

    text: str

    def __new__(cls, text: str) -> Decimal:
        number = super().__new__(cls, text)
        number.text = text
        return number


def compact(value: Any) -> str:
    """JSON without spaces, with keys in their given order."""
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, Decimal):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact(key)}:{compact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    if type(value) is int:
        return str(value)
    return _encode(value).decode() if isinstance(value, float) else CONSTANTS[value]


def parse(raw: bytes | str) -> dict[str, Any]:
    """The JSON object on one line. Raises ValueError or RecursionError if there is none.

    What encodes to the same bytes is written as an export writes it: no key is repeated, and no number is written in
    another way. Every other line is read by the slow decoder, which keeps the digits of numbers.
    """
    if isinstance(raw, bytes) and len(raw) <= LONGEST_LINE and b"\\" not in raw:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, OverflowError):  # the slow decoder says why
            found = _decode(raw)
            if isinstance(found, dict) and _encode(found) == raw:
                return found
    if len(raw) > LONGEST_LINE:
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    words = raw.decode() if isinstance(raw, bytes) else raw
    document = _DECODER.decode(words)
    if not isinstance(document, dict):
        raise ValueError(f"it is a {type(document).__name__}")
    if "\\u" in words:
        compact(document).encode()  # A lone surrogate cannot be encoded, so it is refused here.
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_constant=_no_constant)


def encoded(value: Any, *, in_order: bool = False) -> bytes:
    """JSON by the C encoder, which writes some fractions in another way; nothing where it cannot encode the value."""
    with suppress(TypeError, OverflowError, RecursionError):
        return (_encode_in_order if in_order else _encode)(value)
    return b""


def in_order(value: Any) -> Any:
    """The same value with the keys of its objects in the order of their bytes."""
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value, key=str.encode)}
    if isinstance(value, list):
        return [in_order(item) for item in value]
    return value


# -- journal entries -------------------------------------------------------------------------------------------------
class CauseText(msgspec.Struct, omit_defaults=True):
    event: str
    actor: str
    detail: msgspec.Raw | None = None


class HopText(msgspec.Struct, omit_defaults=True, rename={"source": "from", "target": "to"}):
    """One hop; fields with their default value are omitted."""

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


class EntryText(msgspec.Struct):
    """The content of an entry, its fields in the order in which they are written."""

    tenant: str
    run_id: str
    seq: int
    at: int
    causes: list[CauseText] = []
    hops: list[HopText] = []


def has_entry_hash(before: bytes, entry: EntryText, seal: bytes) -> bool:
    """Whether an entry has this hash. The C encoder is tried first; the slow one decides where they differ."""
    return chained(before, _encode(entry)) == seal or chained(before, _slowly(entry)) == seal


def _slowly(entry: EntryText) -> bytes:
    causes = [
        cause_text(one.event, one.actor, None if one.detail is None else bytes(one.detail).decode())
        for one in entry.causes
    ]
    hops = []
    for hop in entry.hops:
        rest = {name: getattr(hop, name) for name in HOP_FIELDS}
        hops.append(hop_text(hop.no, hop.trigger, hop.source, hop.target, hop.by, rest))
    return entry_bytes(entry.tenant, entry.run_id, entry.seq, entry.at, causes, hops)


def cause_text(event: str, actor: str, detail: str | None) -> str:
    told = "" if detail is None else f',"detail":{detail}'
    return f'{{"event":{compact(event)},"actor":{compact(actor)}{told}}}'


def hop_text(no: int, trigger: str, source: str | None, target: str, by: int, rest: Mapping[str, Any]) -> str:
    """One hop. Fields with their default value are omitted."""
    optional = ([("by", by)] if by else []) + [(name, rest[name]) for name in HOP_FIELDS if rest.get(name) is not None]
    told = "".join(f',"{name}":{compact(value)}' for name, value in optional)
    return f'{{"no":{no},"trigger":{compact(trigger)},"from":{compact(source)},"to":{compact(target)}{told}}}'


def entry_bytes(tenant: str, owner: str, seq: int, at: int, causes: Iterable[str], hops: Iterable[str]) -> bytes:
    return (
        f'{{"tenant":{compact(tenant)},"run_id":{compact(owner)},"seq":{seq},"at":{at},'
        f'"causes":[{",".join(causes)}],"hops":[{",".join(hops)}]}}'
    ).encode()


def chained(before: bytes, body: bytes) -> bytes:
    """The hash of an entry whose predecessor has the hash `before`."""
    return hashlib.sha256(before + body).digest()
