"""Text that is shown holds no control characters, and no exception is too broken to be described."""

from __future__ import annotations

import unicodedata

from stepkeep.edges.safe_text import MAX_SHOWN, exception_message, exception_text, inert, inert_line, type_name


def test_no_control_character_survives_but_newline_and_tab() -> None:
    everything = "".join(map(chr, range(0x110000)))
    left = {
        character
        for character in inert(everything, len(everything))
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
    assert left == {"\n", "\t"}


def test_a_text_for_one_line_stays_on_one_line() -> None:
    assert inert_line("a\nb\tc\rd\u2028e") == "a\\nb\\tc\\rd\\u2028e"


def test_other_text_is_left_alone() -> None:
    for text in ("", "plain", "Grüße, 東京 🙂", "two\nlines\twith a tab", "no\u00a0break"):
        assert inert(text) == text


def test_a_long_text_is_cut_and_says_how_much_is_missing() -> None:
    assert inert("x" * (MAX_SHOWN + 7)) == "x" * MAX_SHOWN + "… (7 more characters)"


class Unprintable(Exception):
    def __init__(self, how: BaseException) -> None:
        super().__init__(how)
        self.how = how

    def __str__(self) -> str:
        raise self.how


def test_an_exception_that_cannot_be_printed_is_named_by_its_type() -> None:
    for how in (IndexError(), SystemExit(3), KeyboardInterrupt(), RecursionError(), Unprintable(ValueError())):
        assert exception_text(Unprintable(how)) == "Unprintable (its message cannot be read)"


def test_a_message_is_a_plain_str_whatever_str_returns() -> None:
    class Loud(str):
        def __add__(self, other: str) -> str:
            raise AssertionError

        def __format__(self, spec: str) -> str:
            raise AssertionError

    class Shouting(Exception):
        def __str__(self) -> str:
            return Loud("hey")

    message = exception_message(Shouting())
    assert (message, type(message)) == ("hey", str)
    assert exception_text(Shouting()) == "Shouting: hey"


def test_an_exception_without_a_message_is_its_type() -> None:
    assert exception_text(ValueError()) == "ValueError"


def test_the_name_of_a_type_does_not_ask_its_metaclass() -> None:
    class Meta(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise AssertionError

    class Odd(Exception, metaclass=Meta):
        pass

    assert type_name(Odd()) == "Odd"


def test_escapes_count_as_they_are_written() -> None:
    shown = inert_line("\x07" * 5_000, 100)
    assert shown == "\\x07" * 25 + "… (4,975 more characters)"
    assert inert("a\x1bb", 6) == "a\\x1bb"
    assert inert("a\x1bb", 5) == "a\\x1b… (1 more characters)"
