"""A real codec made of what Python brings: a keystream of SHA-256 with a random nonce, and a MAC over all of it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

NONCE, TAG = 16, 32


class KeyringCodec:
    """Encrypts under the newest key, and decrypts under each that it has."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)
        self.key_id = list(self._keys)[-1]

    def encode(self, payload: bytes) -> bytes:
        key, nonce = self._keys[self.key_id], secrets.token_bytes(NONCE)
        body = nonce + _stream(key, nonce, payload)
        return body + hmac.digest(key, body, "sha256")

    def decode(self, sealed: bytes, key_id: str) -> bytes:
        key, body, tag = self._keys[key_id], sealed[:-TAG], sealed[-TAG:]
        if not hmac.compare_digest(hmac.digest(key, body, "sha256"), tag):
            raise ValueError("it was changed")
        return _stream(key, body[:NONCE], body[NONCE:])


def _stream(key: bytes, nonce: bytes, text: bytes) -> bytes:
    made = hashlib.shake_256(key + nonce).digest(len(text))
    return (int.from_bytes(made) ^ int.from_bytes(text)).to_bytes(len(text)) if text else b""
