"""Values of secrets are found and hidden in every spelling in which programs quote them."""

from __future__ import annotations

import base64
import json
import logging
from urllib.parse import quote, quote_plus, urlencode

import pytest

from stepkeep.edges.secret_values import MOST_KNOWN, KnownSecrets, Redactor, spellings

VALUE = 'p&ss/w "o\\rd+42'
HIDDEN = "[secret TOKEN]"


def hidden(text: str, value: str = VALUE) -> str:
    return Redactor([("TOKEN", value)]).text(text)


@pytest.mark.parametrize(
    "spelling",
    [
        VALUE,
        repr(VALUE),
        repr(VALUE.encode()),
        json.dumps({"token": VALUE}),
        json.dumps(json.dumps(VALUE))[3:-3],
        quote(VALUE),
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        urlencode({"token": VALUE}),
        VALUE.encode().hex(),
    ],
)
def test_a_value_is_hidden_in_each_spelling(spelling: str) -> None:
    found = hidden(f"refused: {spelling}!")
    assert HIDDEN in found
    assert "w " not in found.replace(HIDDEN, "").replace("refused: ", "")


@pytest.mark.parametrize("before", ["", "u:", "me:", "ada:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_value_is_hidden_inside_base64_wherever_it_begins(before: str, encode: object) -> None:
    spelled = encode(f"{before}{VALUE} and more".encode()).decode()  # type: ignore[operator]
    found = hidden(f"Authorization: Basic {spelled}")
    assert HIDDEN in found
    assert spelled[8:20] not in found


def test_a_line_of_a_value_of_several_lines_is_hidden_by_itself() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----"
    assert hidden("cannot parse line 'hkiG9w0BAQEFAASC'", key) == f"cannot parse line '{HIDDEN}'"


def test_short_values_are_left_alone() -> None:
    assert hidden("1 of 123", "123") == "1 of 123"
    assert hidden("1 of 1234", "1234") == f"1 of {HIDDEN}"


def test_the_longest_value_is_hidden_first() -> None:
    redactor = Redactor([("SHORT", "abcd"), ("LONG", "abcdefgh")])
    assert redactor.text("abcdefgh abcd") == "[secret LONG] [secret SHORT]"


def test_half_of_a_value_at_a_cut_is_hidden() -> None:
    value = "0123456789abcdef"
    cut = "before 0123456789 … [cut] … cdef after, cde… (9 more characters)"
    assert hidden(cut, value) == f"before {HIDDEN} … [cut] … {HIDDEN} after, cde… (9 more characters)"
    assert Redactor([("TOKEN", value)]).text("cdef after 01234", is_cut=True) == f"{HIDDEN} after {HIDDEN}"


def test_json_is_redacted_at_any_depth_in_keys_and_in_numbers() -> None:
    redactor = Redactor([("TOKEN", "12345678"), ("KEY", "abcd")])
    given = {"a": [{"b": "x 12345678"}, 12345678, 5, True, None], "abcd": 1.5}
    clean = {"a": [{"b": "x [secret TOKEN]"}, "[secret TOKEN]", 5, True, None], "[secret KEY]": 1.5}
    assert redactor.json(given) == clean
    assert redactor.found_in(json.dumps(given)) in {"TOKEN", "KEY"}
    assert redactor.found_in(json.dumps(clean)) is None


def test_the_log_hides_every_value_that_was_read(caplog: pytest.LogCaptureFixture) -> None:
    known, logger = KnownSecrets(), logging.getLogger("tests.secrets")
    logger.addFilter(known)
    try:
        known.remember({"TOKEN": VALUE})
        known.remember({"OTHER": "a-second-value"})
        logger.warning("calling with %r", {"token": VALUE})
        try:
            raise RuntimeError(f"refused {VALUE}")
        except RuntimeError:
            logger.exception("failed with a-second-value")
        logger.warning("%d is no number", VALUE)
    finally:
        logger.removeFilter(known)
    told = caplog.text
    assert VALUE not in told
    assert repr(VALUE) not in told
    assert "calling with {'token': '[secret TOKEN]'}" in told
    assert "failed with [secret OTHER]" in told
    assert "RuntimeError: refused [secret TOKEN]" in told
    assert "(a message that cannot be formatted: TypeError)" in told


@pytest.mark.proof
def test_a_process_that_knows_many_values_hides_the_newest_in_every_spelling_and_forgets_the_oldest() -> None:
    known, values = KnownSecrets(), {f"S{n}": f"canary-{n}-{n * 7919:x}/&?" for n in range(MOST_KNOWN + 50)}
    for name, value in values.items():
        known.remember({name: value})
        known.remember({name: value})
    newest = dict(list(values.items())[50:])
    said = "\n".join(spelling for value in newest.values() for spelling in spellings(value))
    one_by_one = Redactor((name, value) for name, value in newest.items()).text(said)
    assert known.hide(said) == one_by_one
    assert "canary" not in one_by_one
    assert known.hide(values["S0"]) == values["S0"]


def test_what_another_value_spells_alike_stays_hidden_when_the_first_is_forgotten() -> None:
    known = KnownSecrets()
    known.remember({"PLAIN": "canary-1"})
    known.remember({"HEX": b"canary-1".hex()})
    for n in range(MOST_KNOWN - 1):
        known.remember({f"S{n}": f"other-value-{n}"})
    assert known.hide(f"canary-1 {b'canary-1'.hex()}") == "canary-1 [secret PLAIN]"


def test_a_long_text_is_searched_like_a_short_one() -> None:
    known = KnownSecrets()
    known.remember({"TOKEN": "canary-1"})
    for around in ("", "-" * 1000, "cana" * 50):
        for said in (known.hide(f"{around}canary-1{around}"), known.hide(f"{around}{b'canary-1'.hex()}")):
            assert said.startswith(f"{around}[secret TOKEN]")
    assert known.hide("canary-2" * 100) == "canary-2" * 100
