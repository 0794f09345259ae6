"""Signatures of webhooks, ours and GitHub's: deliveries that are signed rightly, and then changed in some places.

Judges with a computation of its own that what is accepted was signed with one of the keys, byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.network.signatures import SignatureRefused, SignedDelivery, sign, verify, verify_github
from stepkeep_lab.fuzz.chance import changed_text, hostile_text, shorter
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

NOW = 1_800_000_000
STANDARD, GITHUB = "standard", "github"
NAMES = {
    STANDARD: ("webhook-id", "webhook-timestamp", "webhook-signature"),
    GITHUB: ("x-github-delivery", "x-github-event", "x-hub-signature-256"),
}


class Signed(msgspec.Struct, frozen=True):
    """A delivery as it comes in. `is_whole`: nothing was changed after it was signed."""

    scheme: str
    keys: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_whole: bool


Verify = Callable[[Signed], SignedDelivery]


def verified(case: Signed) -> SignedDelivery:
    if case.scheme == GITHUB:
        return verify_github(case.keys, case.headers, case.body)
    return verify(case.keys, case.headers, case.body, now=NOW)


class Signatures(Target[Signed]):
    name = "signatures"
    what = "Deliveries of Standard Webhooks and of GitHub, signed rightly, with headers, bodies and keys changed."
    holds = "What is accepted was signed with one of the keys; what was not changed is accepted; all else is refused."
    limits = Limits(cpu_seconds=5.0, memory_mb=300, batch=1000)

    def __init__(self, check: Verify = verified) -> None:
        self._verified = check

    def generate(self, random: Random) -> Signed:
        scheme = random.choice((STANDARD, GITHUB))
        keys = tuple(random.randbytes(random.randint(24, 64)) for _ in range(random.randint(1, 3)))
        body = random.choice((b"", b"{}", hostile_text(random).encode("utf-8", "surrogatepass"), random.randbytes(40)))
        headers = _signed(random, scheme, keys[: random.randint(1, len(keys))], body)
        changes = random.choice((0, 0, 1, 1, 1, 2, 4))
        for _ in range(changes):
            headers, body, keys = _changed(random, headers, body, keys)
        return Signed(scheme, keys, tuple(headers), body, is_whole=changes == 0)

    def check(self, case: Signed) -> Verdict:
        try:
            found = self._verified(case)
        except SignatureRefused as refused:
            if case.is_whole:
                return broken("accepts what is signed rightly", f"{refused.code}: {refused}")
            return Verdict(outcome=refused.code)
        except InvalidInput:
            return Verdict(outcome="no key") if not case.keys else broken("refuses a delivery as such")
        if not _is_authentic(case):
            return broken("accepts only what was signed with a key", repr(found))
        return Verdict(outcome="accepted")

    def smaller(self, case: Signed) -> Iterator[Signed]:
        for headers in shorter(case.headers):
            yield msgspec.structs.replace(case, headers=tuple(headers))


def _signed(random: Random, scheme: str, keys: tuple[bytes, ...], body: bytes) -> list[tuple[str, str]]:
    if scheme == STANDARD:
        signed = sign(keys, id=f"msg_{random.randrange(10**9)}", timestamp=NOW + random.randint(-290, 290), body=body)
        return list(signed.items())
    mac = hmac.new(keys[0], body, hashlib.sha256).hexdigest()
    written = (f"{random.randrange(10**9)}", "push", f"sha256={mac}")
    return list(zip(NAMES[GITHUB], written, strict=True))


def _changed(
    random: Random, headers: list[tuple[str, str]], body: bytes, keys: tuple[bytes, ...]
) -> tuple[list[tuple[str, str]], bytes, tuple[bytes, ...]]:
    headers = list(headers)
    place = random.randrange(len(headers)) if headers else 0
    match random.choice(("value", "value", "hostile", "twice", "without", "case", "body", "keys", "border")):
        case "value" if headers:
            headers[place] = (headers[place][0], changed_text(random, headers[place][1], 2))
        case "hostile" if headers:
            headers[place] = (headers[place][0], hostile_text(random))
        case "twice" if headers:
            headers.append((headers[place][0].upper(), random.choice((headers[place][1], "x"))))
        case "without" if headers:
            del headers[place]
        case "case" if headers:
            headers[place] = (headers[place][0].swapcase(), headers[place][1])
        case "keys":
            keys = random.choice(((), keys[1:], (random.randbytes(32),), (*keys, random.randbytes(32))))
        case "border" if len(headers) > 1:
            # The border between id, time and body is moved: the text that is signed stays the same.
            (first, said), (second, told) = headers[0], headers[1]
            headers[0], headers[1] = (first, f"{said}.{told[:3]}"), (second, told[3:])
        case _:
            body = random.choice((body + b" ", body[:-1], b"", random.randbytes(8)))
    return headers, body, keys


def _is_authentic(case: Signed) -> bool:
    """Whether one of the keys signed this, computed here."""
    found = {name.lower(): value for name, value in case.headers}
    if len(found) != len(case.headers):
        return False  # one of two headers of the same name was believed
    identity, time, given = (found.get(name, "") for name in NAMES[case.scheme])
    for key in case.keys:
        if case.scheme == GITHUB:
            if f"sha256={hmac.new(key, case.body, hashlib.sha256).hexdigest()}" == given.strip():
                return True
            continue
        mac = hmac.new(key, f"{identity}.{time}.".encode() + case.body, hashlib.sha256).digest()
        if f"v1,{base64.b64encode(mac).decode()}" in given.split(" "):
            return abs(int(time) - NOW) <= 300 and "." not in identity
    return False
