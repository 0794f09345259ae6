"""Names of people: what two names have in common when a reader cannot tell them apart.

Pure. A folded name has no case, no accents that only a normalisation tells apart, and Latin letters in place of the
Greek and Cyrillic ones that look the same. It is compared and stored, never shown.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_SAME_LOOK = {
    **dict(zip("аеорсухіјѕһԁԛԝв", "aeopcyxijshdqwb", strict=True)),
    **dict(zip("кмнт", "kmht", strict=True)),
    **dict(zip("αενικορτυχωγβηζ", "aevikoptuxwybnz", strict=True)),
}
_LOOKS = str.maketrans({**_SAME_LOOK, "ı": "i"})


def fold_name(name: str) -> str:
    """The name as a reader sees it: equal for two names that look the same.

    >>> fold_name("Ann") == fold_name("ann"), fold_name("аnn") == fold_name("ann"), fold_name("bob") == fold_name("ann")
    (True, True, False)
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return unicodedata.normalize("NFKC", text.translate(_LOOKS))


def same_names(some: Iterable[str], others: Iterable[str]) -> list[str]:
    """Those of `some` that look like one of `others`, in order.

    >>> same_names(["Ann", "bea"], ["ann"])
    ['Ann']
    """
    folded = {fold_name(name) for name in others}
    return sorted(name for name in some if fold_name(name) in folded)


def script_of(letter: str) -> str:
    """The writing system of a letter, by the first word of its Unicode name: LATIN, GREEK, CYRILLIC, HAN…"""
    first = unicodedata.name(letter, "UNKNOWN").split(" ")[0].split("-")[0]
    return _TOGETHER.get(first, first)


_TOGETHER = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "HANGUL": "CJK", "BOPOMOFO": "CJK"}
"""Writing systems that stand in one name together."""
