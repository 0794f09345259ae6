"""Two names that a reader cannot tell apart are one person; ordinary names that differ are two."""

from __future__ import annotations

import runpy
import sys
import unicodedata
from pathlib import Path

import pytest

from stepkeep.edges.names import fold_name, look_of, same_names
from stepkeep.evidence.pack import verifier_source

CODES = [chr(code) for code in range(0x20, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
EVERY = [one for at, one in enumerate(CODES) if at % 97 == 0 or unicodedata.category(one) not in ("Cn", "Co")]
"""Every character that Unicode names, and some of the others."""

UNSEEN = ("\u200b", " ", "\u00a0", "\ufe0f", "\u034f", "\u3164", "\u115f", "\u2800", "\U000e0041", "\u0307")
LOOKS = ("biII", "bi1l", "bi|l", "BILL", "bíll", "ｂill", "biӏl", "biꓲl", "ʙɪʟʟ", "вill", "𝐛ill")


@pytest.mark.parametrize("name", [*LOOKS, *(f"bill{one}" for one in UNSEEN), *(f"b{one}ill" for one in UNSEEN)])
def test_what_looks_like_bill_is_bill(name: str) -> None:
    assert same_names([name], ["bill"]) == [name]
    assert same_names(["bill"], [name]) == ["bill"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("ann", "anna"), ("neil", "nell"), ("ian", "lan"), ("ali", "all"), ("bea", "ben"), ("ann1", "ann2")),
        *(("ann.lee", "ann-lee"), ("か", "が"), ("राम", "रिम"), ("김", "긴"), ("דן", "דו"), ("ann", "")),
    ],
)
def test_ordinary_names_that_differ_are_two_people(one: str, other: str) -> None:
    assert same_names([one], [other]) == []


def test_every_character_looks_like_its_folded_form_and_like_its_small_one() -> None:
    for letter in EVERY:
        folded = fold_name(letter)
        assert fold_name(folded) == folded, ascii(letter)
        for other in {folded, letter.casefold(), unicodedata.normalize("NFKC", letter)} - {letter}:
            assert same_names([letter], [other]), ascii(letter)


def test_the_verifier_of_a_pack_takes_the_same_names_for_one_person(tmp_path: Path) -> None:
    """Its file holds the rule itself and imports nothing of the product."""
    source = verifier_source()
    assert b"stepkeep.edges" not in source
    file = tmp_path / "verify.py"
    file.write_bytes(source)
    space = runpy.run_path(str(file), run_name="verify")
    assert all(space["look_of"](letter) == look_of(letter) for letter in EVERY[::97])
