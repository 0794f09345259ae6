"""When two names in a log are one person: a reader cannot tell them apart.

It knows letters alone: case, Unicode forms, and Greek and Cyrillic letters that look like Latin ones. It must not share
code with the engine, which refuses such names too. `ballots.py` calls it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

LOOK_ALIKE = {
    "a": "аα", "b": "вβ", "c": "с", "d": "ԁ", "e": "еε", "h": "һн", "i": "іιı", "j": "ј", "k": "кκ", "m": "м",
    "n": "η", "o": "оο", "p": "рρ", "q": "ԛ", "s": "ѕ", "t": "тτ", "u": "υ", "v": "ν", "w": "ԝω", "x": "хχ",
    "y": "уγ", "z": "ζ",
}  # fmt: skip
"""The small letters of other scripts that look like this Latin one."""

_LATIN = {ord(other): letter for letter, others in LOOK_ALIKE.items() for other in others}


@lru_cache(maxsize=4096)
def look_of(name: str) -> str:
    """A name as a reader sees it.

    >>> look_of("Ann") == look_of("ann") == look_of("аnn")
    True
    """
    for _ in range(2):
        name = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).translate(_LATIN))


def alike(some: Iterable[str], others: Iterable[str]) -> list[str]:
    """The names of `some` that look like one of `others`, in order."""
    looks = {look_of(name) for name in others}
    return sorted(name for name in some if look_of(name) in looks)
