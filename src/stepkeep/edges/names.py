"""Names of people: when a reader cannot tell two of them apart, they are one person.

Pure, and the standard library alone: `verify.py` of an evidence pack holds a copy of this file. It must not read
a store. Kernel, operations, judge and verifier call it, so that all of them take the same names for one person.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

LOOK_ALIKE = {
    "a": "аαɑ⍺Ꭺꓮⲁ", "b": "вβᏴꓐⲃ", "c": "сϲⲥᏟꓚ", "d": "ԁᎠꓓ", "e": "еεɛҽ℮Ꭼꓰⲉ", "f": "ϝꓝ", "g": "ցԍᏀꓖ", "h": "һнΗհᎻꓧⲏ",
    "i": "іιɩⲓᎥꙇ", "j": "јϳյᎫꓙ", "k": "кκᏦꓗⲕ", "l": "1|IΙІӀӏƖǀ∣│⏐❘Ꮮꓡꓲⳑ", "m": "мΜᎷꓟⲙ", "n": "ηΝпոꓠⲛ",
    "o": "0оοօ〇○◯ꓳⲟ", "p": "рρϱ⍴Ꮲꓑⲣ", "q": "ԛգ", "r": "гᎡᏒꓣ", "s": "ѕՏᏚᏕꓢ", "t": "тτᎢꓔⲧ", "u": "υսʋ∪ꓴ", "v": "νѵᏙꓦ∨",
    "w": "ԝωѡաᎳᏔꓪ", "x": "хχ×ꓫⲭ", "y": "уγүΥɣყᎩᎽꓬⲩ", "z": "ζᏃꓜⲍ", "3": "зʒȝ", "6": "бᏮ", "-": "−˗⁃", "'": "’‘‛ʼʹ′`´",
}  # fmt: skip
"""The characters that look like this one, beside those that Unicode itself takes apart or names after it."""

_READS = {other: letter for letter, others in LOOK_ALIKE.items() for other in others}
_NAMED = re.compile(
    r"LATIN (?:SMALL LETTER|CAPITAL LETTER|LETTER SMALL CAPITAL) (?:SCRIPT |DOTLESS |LONG )?([A-Z])(?: WITH .*)?"
).fullmatch
_UNSEEN = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"  # marks above, below and through a letter
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
).fullmatch
"""Marks on Latin, Greek and Cyrillic letters, and what has no shape. Marks of other scripts spell sounds, and count."""


@lru_cache(maxsize=8192)
def look_of(name: str) -> tuple[str, ...]:
    """A name as a reader sees it: for each visible character, the letters for which it may be taken.

    >>> look_of("Zoë"), look_of("biI1")
    (('z', 'o', 'e'), ('b', 'i', 'il', 'l'))
    """
    return tuple(
        found for one in unicodedata.normalize("NFKD", name) for small in _small(one) if (found := _letters(one, small))
    )


def _small(one: str) -> str:
    return unicodedata.normalize("NFKD", one.casefold())


@lru_cache(maxsize=4096)
def _letters(one: str, small: str) -> str:
    """The letters for which a character may be taken: by its small form, then by its own."""
    kind = unicodedata.category(small)
    if _UNSEEN(small) or kind in ("Cc", "Cf", "Zs", "Zl", "Zp"):
        return ""
    if kind == "Nd":
        small = str(unicodedata.decimal(small))
    plain = "-" if kind == "Pd" else small
    named = _NAMED(unicodedata.name(small, ""))
    plain = _READS.get(plain) or (named[1].lower() if named else plain)
    other = _READS.get(one, plain)
    return plain if other == plain else plain + other


def fold_name(name: str) -> str:
    """The first reading of a name: a key to store. `same_names` also compares the other readings."""
    return "".join(letters[0] for letters in look_of(name))


def same_names(some: Iterable[str], others: Iterable[str]) -> list[str]:
    """Those of `some` that look like one of `others`, in order.

    >>> same_names(["Ann", "bea", "Ian"], ["ann", "lan"])
    ['Ann', 'Ian']
    """
    looks = {look_of(name) for name in others}
    return sorted(name for name in some if any(_meet(look_of(name), look) for look in looks))


def _meet(look: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return look == other or (
        len(look) == len(other) and all(set(one) & set(two) for one, two in zip(look, other, strict=True))
    )


def script_of(letter: str) -> str:
    """The writing system of a letter, by the first word of its Unicode name: LATIN, GREEK, CYRILLIC, HAN…"""
    first = unicodedata.name(letter, "UNKNOWN").split(" ")[0].split("-")[0]
    return _TOGETHER.get(first, first)


_TOGETHER = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "HANGUL": "CJK", "BOPOMOFO": "CJK"}
"""Writing systems that stand in one name together."""
