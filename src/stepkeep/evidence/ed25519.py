"""Ed25519 (RFC 8032): points of the curve, and whether a signature is valid.

Standard library alone: evidence packs ship this file. It is not made to resist an attacker who can measure times.
`signing.py` signs with it, and `verifier.py` verifies.
"""

from __future__ import annotations

import hashlib

# Points are in extended homogeneous coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, x * y = T/Z.
PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, PRIME) % PRIME
SQRT_MINUS_ONE = pow(2, (PRIME - 1) // 4, PRIME)

Point = tuple[int, int, int, int]
NEUTRAL: Point = (0, 1, 1, 0)


def add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % PRIME, (p[1] + p[0]) * (q[1] + q[0]) % PRIME
    c, d = 2 * p[3] * q[3] * D % PRIME, 2 * p[2] * q[2] % PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME)


def multiply(scalar: int, point: Point) -> Point:
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point, scalar = add(point, point), scalar >> 1
    return total


def same_point(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % PRIME == 0 and (p[1] * q[2] - q[1] * p[2]) % PRIME == 0


def x_of(y: int, odd: bool) -> int | None:
    """The x coordinate with this parity of the point with this y; None if there is no such point."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if (x * x - square) % PRIME:
        x = x * SQRT_MINUS_ONE % PRIME
    if (x * x - square) % PRIME or (x == 0 and odd):
        return None
    return PRIME - x if (x & 1) != odd else x


def decode_point(text: bytes) -> Point | None:
    number = int.from_bytes(text, "little")
    y, odd = number & (2**255 - 1), bool(number >> 255)
    x = x_of(y, odd) if y < PRIME else None
    return None if x is None else (x, y, 1, x * y % PRIME)


def encode_point(point: Point) -> bytes:
    inverse = pow(point[2], -1, PRIME)
    x, y = point[0] * inverse % PRIME, point[1] * inverse % PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE_Y = 4 * pow(5, -1, PRIME) % PRIME
BASE_X = x_of(BASE_Y, odd=False) or 0
BASE: Point = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % PRIME)


def challenge(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER


def verify_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether this is the Ed25519 signature over the message by the holder of this public key."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, commitment = decode_point(public), decode_point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= ORDER or same_point(multiply(8, key), NEUTRAL):
        return False
    right = add(commitment, multiply(challenge(signature[:32], public, message), key))
    return same_point(multiply(scalar, BASE), right)
