"""Encodes values from user code as JSON, or refuses them with a reason.

A result that the database refuses would leave its step stuck. Therefore values that cannot be stored (NaN, NUL, lone
surrogates, keys that are not text, too large, too deep) are found before the result leaves the handler's side. It
changes no value and logs nothing. The worker, its child processes and `Context` call it.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from stepkeep.edges.safe_text import exception_message, exception_text, type_name

MAX_RESULT = 256 * 1024
MAX_DEPTH = 64
MAX_ERROR = 4000
MAX_EMITTED = 1000
MAX_EMITTED_BYTES = 4 * 1024 * 1024
"""How many events one attempt may emit, and how many bytes of JSON they may hold together."""


class Unstorable(ValueError):
    """A value that no database row can hold; the text names the part and the reason."""


def encode(value: Any, *, what: str = "the result", limit: int = MAX_RESULT, is_json: bool = False) -> bytes:
    """The JSON of `value`, or Unstorable. `is_json`: it was decoded from JSON, so that its types are those of JSON.

    >>> encode({"sum": 3})
    b'{"sum":3}'
    """
    if value is None:
        return b"null"
    try:
        encoded = _encode(value)
    except UnicodeEncodeError:
        raise Unstorable(f"{what} cannot be stored: it contains text that is not valid Unicode") from None
    except RecursionError:
        raise Unstorable(f"{what} cannot be stored: it is nested deeper than {MAX_DEPTH} levels") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as problem:
        raise Unstorable(f"{what} cannot be stored: {exception_message(problem) or exception_text(problem)}") from None
    if len(encoded) > limit:
        raise Unstorable(f"{what} cannot be stored: {len(encoded)} bytes of JSON, and {limit} are the limit")
    if not _comes_back_the_same(value, encoded, is_json):
        _inspect(value, what)
    return encoded


def storable_text(text: str, limit: int = MAX_ERROR) -> str:
    """`text` with characters that no database stores replaced, and its middle removed if it is too long."""
    clean = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")
    if len(clean) <= limit:
        return clean
    half = (limit - 20) // 2
    return f"{clean[:half]} … [cut] … {clean[-half:]}"


def bound_emitted(count: int, size_bytes: int) -> None:
    """Refuse the events of one attempt if they are too large in total."""
    if count > MAX_EMITTED:
        raise Unstorable(f"an attempt may emit at most {MAX_EMITTED} events, and this one emitted {count}")
    if size_bytes > MAX_EMITTED_BYTES:
        raise Unstorable(
            f"the events of an attempt may hold {MAX_EMITTED_BYTES} bytes of JSON in sum, and these hold {size_bytes}. "
            "Emit references instead."
        )


def _hook(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"a value of type {type_name(value)} has no JSON form")


_encode = msgspec.json.Encoder(enc_hook=_hook).encode
_decode = msgspec.json.Decoder().decode


_TEXT = frozenset({str})
_PLAIN = frozenset({str, int, bool, type(None)})


def _comes_back_the_same(value: Any, encoded: bytes, is_json: bool) -> bool:
    # Fast path: plain JSON values decode to equal values, and an object of plain values needs not even that check. NaN
    # (written as null), numbers as keys and richer types do not, and are checked one by one. So is anything that could
    # be too deep.
    if b"\\" in encoded and b"\\u0000" in encoded:
        return False
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value)):
        return True
    if encoded.count(b"[") + encoded.count(b"{") > MAX_DEPTH:
        return False
    try:
        return is_json or bool(_decode(encoded) == value)
    except BaseException:  # noqa: BLE001 - a value may define equality as it likes; then it is inspected
        return False


def _inspect(value: Any, what: str) -> None:
    """Find the part that JSON's encoder let through, piece by piece, without recursion."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=_hook)
    except RecursionError:
        raise Unstorable(f"{what} cannot be stored: it is nested deeper than {MAX_DEPTH} levels") from None
    pending: list[tuple[Any, int]] = [(plain, 1)]
    while pending:
        piece, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise Unstorable(f"{what} cannot be stored: it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(piece, dict):
            for key in piece:
                if not isinstance(key, str):
                    raise Unstorable(f"{what} cannot be stored: the key {key!r} is not text")
                _inspect_leaf(key, what)
            pending.extend((inner, depth + 1) for inner in piece.values())
        elif isinstance(piece, list | tuple | set | frozenset):
            pending.extend((inner, depth + 1) for inner in piece)
        else:
            _inspect_leaf(piece, what)


def _inspect_leaf(piece: Any, what: str) -> None:
    if isinstance(piece, float) and not math.isfinite(piece):
        raise Unstorable(f"{what} cannot be stored: it contains {piece}, which JSON does not have")
    if isinstance(piece, str) and "\x00" in piece:
        raise Unstorable(f"{what} cannot be stored: it contains a NUL character")
