"""Signs and verifies webhooks: Standard Webhooks, and GitHub's `X-Hub-Signature-256`.

All secrets of an endpoint sign and verify, so that a secret is replaced without a gap. Comparisons take constant time,
and every secret is tried. It reads no clock and keeps no ids: the caller refuses a delivery id that it has seen.
The webhook sink and inbound webhooks call it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stepkeep.kernel.errors import InvalidInput

TOLERANCE_SECONDS = 5 * 60
"""How far the time in a delivery may be from ours, in both directions."""

PREFIX = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 24, 64
"""Bytes of a secret, as Standard Webhooks has them."""

MOST_SIGNATURES = 32
MAX_HEADER = 8 * 1024

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
GITHUB_ID, GITHUB_EVENT, GITHUB_SIGNATURE = "x-github-delivery", "x-github-event", "x-hub-signature-256"

_ID = re.compile(r"[A-Za-z0-9_:/+=~@-]{1,200}")
"""Without a full stop, which separates the parts of what is signed: an id with one could be cut differently."""
_SECONDS = re.compile(r"[0-9]{1,12}")
_HEX = re.compile(r"sha256=[0-9a-f]{64}")
_EVENT = re.compile(r"[A-Za-z0-9_.-]{1,100}")

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class SignatureRefused(Exception):
    """A delivery whose signature is not right. `code` is one of: missing, malformed, too_old, too_new, wrong."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.code, str(self))


class SignedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery whose signature is right. `id` is the same when the sender delivers it again."""

    id: str
    sent_at: int | None = None
    """Seconds since 1970, as the sender signed them; None where the scheme has none."""
    event: str | None = None
    """The kind of event that a header names. GitHub does not sign its headers, so only the body is certain."""


def read_key(secret: str) -> bytes:
    """The key in a secret of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64; raises InvalidInput."""
    try:
        key = base64.b64decode(secret.strip().removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("a webhook secret is base64, with or without whsec_ in front; this one is not.") from None
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise InvalidInput(
            f"a webhook secret has {SHORTEST_KEY} to {LONGEST_KEY} bytes; this one has {len(key)}. "
            "Make one of random bytes: `openssl rand -base64 32`."
        )
    return key


def write_key(key: bytes) -> str:
    """The secret that has this key, to be shown once to the other side."""
    return PREFIX + base64.b64encode(key).decode("ascii")


def sign(keys: Sequence[bytes], *, id: str, timestamp: int, body: bytes) -> dict[str, str]:  # noqa: A002 - its name
    """The three headers of a delivery, with one signature per key.

    >>> sorted(sign([b"k" * 24], id="msg_1", timestamp=1_700_000_000, body=b"{}"))
    ['webhook-id', 'webhook-signature', 'webhook-timestamp']
    """
    if not keys:
        raise InvalidInput("a delivery is signed with one secret at least.")
    if not _ID.fullmatch(id):
        raise InvalidInput("the id of a delivery has letters, digits and _:/+=~@-, and no full stop.")
    signatures = " ".join(f"v1,{base64.b64encode(_mac(key, id, str(timestamp), body)).decode('ascii')}" for key in keys)
    return {ID: id, TIMESTAMP: str(timestamp), SIGNATURE: signatures}


def verify(
    keys: Sequence[bytes], headers: Headers, body: bytes, *, now: int, tolerance: int = TOLERANCE_SECONDS
) -> SignedDelivery:
    """A delivery of Standard Webhooks; raises SignatureRefused. `body` is what came over the line, byte for byte."""
    found = _found(headers, (ID, TIMESTAMP, SIGNATURE))
    message_id, written, given = found[ID], found[TIMESTAMP], found[SIGNATURE]
    if not _ID.fullmatch(message_id):
        raise SignatureRefused("malformed", f"the header {ID} is no id")
    if not _SECONDS.fullmatch(written):
        raise SignatureRefused("malformed", f"the header {TIMESTAMP} is no number of seconds")
    candidates = given.split(" ")
    if len(candidates) > MOST_SIGNATURES:
        raise SignatureRefused("malformed", f"the header {SIGNATURE} has more than {MOST_SIGNATURES} signatures")
    offered = [mac for each in candidates if (mac := _read_mac(each)) is not None]
    expected = [_mac(key, message_id, written, body) for key in keys]
    if not _any_equal(expected, offered):
        raise SignatureRefused("wrong", "no signature is one of a secret of this endpoint")
    # After the signature, so that a sender without the secret learns nothing about this clock.
    sent_at = int(written)
    if sent_at < now - tolerance:
        raise SignatureRefused("too_old", f"the delivery was signed more than {tolerance} s ago")
    if sent_at > now + tolerance:
        raise SignatureRefused("too_new", f"the delivery was signed more than {tolerance} s in the future")
    return SignedDelivery(id=message_id, sent_at=sent_at)


def verify_github(keys: Sequence[bytes], headers: Headers, body: bytes) -> SignedDelivery:
    """A delivery of GitHub; raises SignatureRefused. It has no time: the caller must refuse an id that it has seen.

    The id is a header that is not signed: a stolen delivery can be sent again under another id. `body_id` gives an id
    that cannot be changed.
    """
    headers = list(_pairs(headers))
    found = _found(headers, (GITHUB_SIGNATURE, GITHUB_ID))
    given = found[GITHUB_SIGNATURE]
    if not _HEX.fullmatch(given):
        raise SignatureRefused("malformed", f"the header {GITHUB_SIGNATURE} is not sha256= and 64 digits")
    if not _ID.fullmatch(found[GITHUB_ID]):
        raise SignatureRefused("malformed", f"the header {GITHUB_ID} is no id")
    expected = [hmac.digest(key, body, hashlib.sha256) for key in keys]
    if not _any_equal(expected, [bytes.fromhex(given.removeprefix("sha256="))]):
        raise SignatureRefused("wrong", "the signature is not one of a secret of this endpoint")
    event = _optional(headers, GITHUB_EVENT)
    if event is not None and not _EVENT.fullmatch(event):
        raise SignatureRefused("malformed", f"the header {GITHUB_EVENT} is no kind of event")
    return SignedDelivery(id=found[GITHUB_ID], event=event)


def body_id(body: bytes) -> str:
    """An id made of the body alone, for schemes that do not sign the id."""
    return hashlib.sha256(body).hexdigest()


def _mac(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(key, b".".join((message_id.encode("ascii"), timestamp.encode("ascii"), body)), hashlib.sha256)


def _read_mac(text: str) -> bytes | None:
    """The bytes of one v1 signature; None for another version, or what is none."""
    version, comma, encoded = text.partition(",")
    if version != "v1" or not comma:
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def _any_equal(expected: Sequence[bytes], offered: Sequence[bytes]) -> bool:
    """Compares all pairs, whichever is equal, so that the time says nothing about which."""
    equal = False
    for one in expected:
        for other in offered:
            equal |= hmac.compare_digest(one, other)
    return equal


def _pairs(headers: Headers) -> Iterable[tuple[str, str]]:
    return headers.items() if isinstance(headers, Mapping) else headers


def _found(headers: Headers, names: Sequence[str]) -> dict[str, str]:
    headers = list(_pairs(headers))
    found = {name: _optional(headers, name) for name in names}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise SignatureRefused("missing", f"the header {missing[0]} is missing")
    return {name: value for name, value in found.items() if value}


def _optional(headers: Headers, name: str) -> str | None:
    """The value of a header; refuses one that came twice, which two programs could read differently."""
    values = [value for given, value in _pairs(headers) if given.lower() == name]
    if len(values) > 1:
        raise SignatureRefused("malformed", f"the header {name} came {len(values)} times")
    if values and (len(values[0]) > MAX_HEADER or not values[0].isascii()):
        raise SignatureRefused("malformed", f"the header {name} is too long, or not plain ASCII")
    return values[0] if values else None
