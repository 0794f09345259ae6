"""Rebuilds the bytes of a journal entry from its log lines, and computes the hash chain.

It is written from the format's description and shares no code with the engine, so that a mistake there is not repeated
here. Strings use the standard library's JSON; numbers keep the digits they were read with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any

GENESIS = b""
"""The hash before the first entry of every journal."""

HOP_FIELDS = ("of", "fence", "attempt", "took", "due_at", "category", "error", "digest")
"""The optional fields of a hop, in the order in which they are written."""


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
    return str(value) if type(value) is int else json.dumps(value)


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
