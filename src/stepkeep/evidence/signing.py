"""Signing keys: made once per tenant, kept in a file of their owner, and used to sign heads of runs and packs.

The public half verifies; the secret half never enters a database, a log or a pack. The arithmetic is that of the
verifier, in Python: it is not made to resist an attacker who can time signatures, so sign where only operators are.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any, Literal

import msgspec

from stepkeep.evidence.ed25519 import BASE, ORDER, challenge, encode_point, multiply
from stepkeep.evidence.verifier import head_message, pack_message
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.rows import Run

SEED_BYTES = 32
MOST_BYTES = 4096
"""The largest size of a key file; anything larger is not one."""


class _KeyFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a key file."""

    format: Literal["stepkeep-signing-key/1"]
    id: str
    public_key: str
    seed: str


class SigningKey(msgspec.Struct, frozen=True):
    """A key pair of Ed25519. Its `repr` shows the public half only."""

    seed: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.public.hex()})"

    @property
    def public(self) -> bytes:
        return encode_point(multiply(_secrets_of(self.seed)[0], BASE))

    @property
    def id(self) -> str:
        """A short name of the public half."""
        return hashlib.sha256(self.public).hexdigest()[:16]

    def sign(self, message: bytes) -> bytes:
        """The signature over these bytes (RFC 8032, Ed25519)."""
        scalar, prefix = _secrets_of(self.seed)
        public = encode_point(multiply(scalar, BASE))
        nonce = challenge(prefix, message)
        commitment = encode_point(multiply(nonce, BASE))
        answer = (nonce + challenge(commitment, public, message) * scalar) % ORDER
        return commitment + answer.to_bytes(32, "little")


def _secrets_of(seed: bytes) -> tuple[int, bytes]:
    """The secret scalar and the prefix for nonces, derived from a seed."""
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def new_key() -> SigningKey:
    """A new key pair, from the randomness of the operating system."""
    return SigningKey(secrets.token_bytes(SEED_BYTES))


def write_key(path: Path, key: SigningKey) -> None:
    """Write a key to a new file that only its owner can read. An existing file is never replaced."""
    document = _KeyFile(format="stepkeep-signing-key/1", id=key.id, public_key=key.public.hex(), seed=key.seed.hex())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise InvalidInput(f"{path} exists. A key is never replaced; name another file.") from None
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror or problem}.") from None


def read_key(path: Path) -> SigningKey:
    """Read the key in a file."""
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(MOST_BYTES), type=_KeyFile)
        seed = bytes.fromhex(found.seed)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror or problem}.") from None
    except ValueError:
        seed = b""
    if len(seed) != SEED_BYTES:
        # The content is not quoted: it may be another secret.
        raise InvalidInput(f"{path} holds no signing key. `stepkeep evidence --new-key FILE` makes one.")
    return SigningKey(seed)


def pack_signatures(key: SigningKey, run: Run, manifest: bytes, at: int) -> list[dict[str, Any]]:
    """The signatures of a pack: over the end of the run's journal, and over the manifest and so every file."""
    messages = {"head": head_message(run.tenant, run.id, run.seq, run.head.hex()), "pack": pack_message(manifest)}
    return [
        {
            "over": over,
            "key_id": key.id,
            "public_key": key.public.hex(),
            "signature": key.sign(message).hex(),
            "signed_at": at,
        }
        for over, message in messages.items()
    ]
