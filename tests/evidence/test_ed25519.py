"""Signatures are those of RFC 8032: its vectors hold in both directions, and nothing else verifies."""

from __future__ import annotations

import pytest

from stepkeep.evidence.ed25519 import NEUTRAL, ORDER, encode_point, verify_signature
from stepkeep.evidence.signing import SigningKey, new_key

VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_the_vectors_of_the_standard_hold(seed: str, public: str, message: str, signature: str) -> None:
    key = SigningKey(bytes.fromhex(seed))
    assert key.public.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert verify_signature(key.public, bytes.fromhex(message), bytes.fromhex(signature))


def test_one_changed_bit_anywhere_is_refused() -> None:
    key = new_key()
    signature = key.sign(b"head")
    assert verify_signature(key.public, b"head", signature)
    assert not verify_signature(key.public, b"heae", signature)
    for place in range(0, 64, 7):
        changed = bytearray(signature)
        changed[place] ^= 1
        assert not verify_signature(key.public, b"head", bytes(changed)), place
    assert not verify_signature(new_key().public, b"head", signature)


def test_what_is_no_signature_or_no_key_is_refused_without_an_error() -> None:
    key = new_key()
    signature = key.sign(b"head")
    malleable = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    assert not verify_signature(key.public, b"head", malleable), "a second signature for the same message"
    assert not verify_signature(encode_point(NEUTRAL), b"head", encode_point(NEUTRAL) + bytes(32)), "a key of no one"
    for wrong in (b"", b"\xff" * 32, bytes(31), bytes(33)):
        assert not verify_signature(wrong, b"head", signature)
    for wrong in (b"", bytes(63), b"\xff" * 64):
        assert not verify_signature(key.public, b"head", wrong)


def test_a_key_does_not_show_its_secret() -> None:
    key = new_key()
    assert key.seed.hex() not in repr(key) + str(key)
