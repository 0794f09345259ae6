"""Seals payloads with a codec of the program's, such as encryption, and opens them again.

A sealed payload is JSON with the id of its key and the bytes that the codec made. It stands wherever a payload stands;
the journal has the digest of the sealed bytes, which tells nothing of the value. Names, states, keys and labels are
never sealed. `Payloads` seals before a decision and opens after reading; conditions of plans open what they read.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from stepkeep.edges.safe_text import plain_text, type_name
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import InvalidInput, PayloadSealed
from stepkeep.store.protocol import Store

HIDDEN: Final = "[encrypted]"
PREFIX: Final = b'{"$stepkeep.sealed":{"key":"'

_SEALED = re.compile(rb'\{"\$stepkeep\.sealed":\{"key":"([A-Za-z0-9._-]{1,100})","data":"([A-Za-z0-9+/=]*)"\}\}')
_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")


@runtime_checkable
class PayloadCodec(Protocol):
    """What seals payloads. `key_id` names the key that `encode` uses, and is stored with each payload."""

    @property
    def key_id(self) -> str: ...

    def encode(self, payload: bytes) -> bytes:
        """The sealed bytes of a payload. They must tell when they were changed, and differ for equal payloads."""
        ...

    def decode(self, sealed: bytes, key_id: str) -> bytes:
        """The payload that was sealed under this key, which may be an older one. Raises whatever it likes."""
        ...


def is_sealed(payload: bytes | None) -> bool:
    """Whether a codec made this payload."""
    return payload is not None and payload.startswith(PREFIX) and _SEALED.fullmatch(payload) is not None


SEALED_QUEUE = QueueSpec(kind="sealed")
"""A queue that no step is in. A tenant that has it has runs whose payloads are sealed: a worker without the codec looks
at each run before it runs a step of it."""


async def mark_sealed(store: Store, tenant: str) -> None:
    """Write down for workers without a codec that payloads of this tenant are sealed. An engine with one does so."""
    if all(spec != SEALED_QUEUE for _, spec in await store.list_queues(tenant)):
        await store.add_queue(tenant, SEALED_QUEUE)


class Seal:
    """Seals and opens with the codec of one engine; without one, nothing is sealed and sealed payloads stay closed."""

    def __init__(self) -> None:
        self._codec: PayloadCodec | None = None

    @property
    def is_on(self) -> bool:
        return self._codec is not None

    def use(self, codec: PayloadCodec) -> None:
        if not isinstance(codec, PayloadCodec):
            raise InvalidInput(
                f"payload_codec has `key_id`, `encode` and `decode`; a value of type {type_name(codec)} has not."
            )
        key = plain_text(codec.key_id)
        if key is None or _KEY.fullmatch(key) is None:
            raise InvalidInput("the key_id of payload_codec has 1 to 100 letters, digits, dots, dashes and _.")
        self._codec = codec

    def use_codec_of(self, other: Seal) -> None:
        self._codec = other._codec

    def seal(self, payload: bytes) -> bytes:
        """The payload as it is stored."""
        codec = self._codec
        if codec is None:
            return payload
        try:
            made = base64.b64encode(codec.encode(payload))
        except Exception as problem:  # noqa: BLE001 - whatever the codec raises
            # Its text and its chain may quote the payload.
            raise InvalidInput(f"payload_codec cannot seal a payload: it raised {type_name(problem)}.") from None
        return b'%s%s","data":"%s"}}' % (PREFIX, codec.key_id.encode(), made)

    def opened(self, payload: bytes) -> bytes:
        """The payload as it was given; raises PayloadSealed if it cannot be opened here."""
        found = _SEALED.fullmatch(payload) if payload.startswith(PREFIX) else None
        if found is None:
            return payload
        key, codec = found[1].decode(), self._codec
        if codec is None:
            raise PayloadSealed(f"a payload is sealed under the key {key}: open the engine with payload_codec=.")
        try:
            return bytes(codec.decode(base64.b64decode(found[2], validate=True), key))
        except binascii.Error:
            raise PayloadSealed(f"a payload that is sealed under the key {key} is damaged.") from None
        except Exception as problem:  # noqa: BLE001 - whatever the codec raises
            said = f"payload_codec cannot open a payload that is sealed under the key {key}"
            raise PayloadSealed(f"{said}: it raised {type_name(problem)}.") from None

    def opened_value(self, value: Any) -> Any:
        """The same for a payload that was decoded as a part of other JSON."""
        if not isinstance(value, dict) or set(value) != {"$stepkeep.sealed"}:
            return value
        return msgspec.json.decode(self.opened(msgspec.json.encode(value)))

    def visible(self, payload: bytes) -> bytes:
        """The payload for a view: opened, or the JSON of `[encrypted]` if it cannot be opened here."""
        try:
            return self.opened(payload)
        except PayloadSealed:
            return msgspec.json.encode(HIDDEN)
