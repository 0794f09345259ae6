"""Signatures of webhooks, checked against the official library of Standard Webhooks and GitHub's published example."""

from __future__ import annotations

import base64
import pickle
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from stepkeep.kernel.errors import InvalidInput
from stepkeep.network import signatures
from stepkeep.network.signatures import SignatureRefused, sign, verify, verify_github

OLD, NEW, OTHER = b"o" * 24, b"n" * 32, b"x" * 24
NOW = 1_700_000_000
BODY = b'{"type": "order.paid"}'


def signed(*keys: bytes, **changes: str) -> dict[str, str]:
    return {**sign(keys or (OLD,), id="msg_1", timestamp=NOW, body=BODY), **changes}


def refusal(keys: list[bytes], headers: object, body: bytes = BODY, now: int = NOW) -> str:
    with pytest.raises(SignatureRefused) as caught:
        verify(keys, headers, body, now=now)  # type: ignore[arg-type]
    return caught.value.code


# -- against the official library --------------------------------------------------------------------------------------
@given(body=st.text(max_size=200), key=st.binary(min_size=24, max_size=64), number=st.integers(0, 10**9))
def test_the_official_library_accepts_what_is_signed_here(body: str, key: bytes, number: int) -> None:
    now = int(datetime.now(UTC).timestamp())
    headers = sign([OTHER, key], id=f"msg_{number}", timestamp=now, body=body.encode())
    official = standardwebhooks.Webhook(signatures.write_key(key))
    official.verify(body, headers, json_parse=False)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        official.verify(body + " ", headers, json_parse=False)


@given(body=st.text(max_size=200), key=st.binary(min_size=24, max_size=64), number=st.integers(0, 10**9))
def test_what_the_official_library_signs_is_accepted_here(body: str, key: bytes, number: int) -> None:
    at = datetime.fromtimestamp(NOW, UTC)
    theirs = standardwebhooks.Webhook(signatures.write_key(key)).sign(f"msg_{number}", at, body)
    headers = {"Webhook-Id": f"msg_{number}", "Webhook-Timestamp": str(NOW), "Webhook-Signature": theirs}
    delivery = verify([OTHER, key], headers, body.encode(), now=NOW)
    assert (delivery.id, delivery.sent_at) == (f"msg_{number}", NOW)


# -- Standard Webhooks -------------------------------------------------------------------------------------------------
def test_while_a_secret_is_replaced_both_sides_work_with_either() -> None:
    assert verify([OLD], signed(OLD, NEW), BODY, now=NOW).id == "msg_1"
    assert verify([NEW], signed(OLD, NEW), BODY, now=NOW).id == "msg_1"
    assert verify([NEW, OLD], signed(OLD), BODY, now=NOW).id == "msg_1"
    assert refusal([NEW], signed(OLD)) == "wrong"
    assert refusal([], signed(OLD)) == "wrong"


@pytest.mark.parametrize(
    ("apart", "code"),
    [(-301, "too_old"), (-300, None), (0, None), (300, None), (301, "too_new"), (-(10**9), "too_old")],
)
def test_a_time_outside_of_five_minutes_is_refused(apart: int, code: str | None) -> None:
    now = NOW - apart
    if code is None:
        assert verify([OLD], signed(), BODY, now=now).sent_at == NOW
    else:
        assert refusal([OLD], signed(), now=now) == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"webhook-id": "msg_2"}, "wrong"),
        ({"webhook-id": ""}, "missing"),
        ({"webhook-id": "msg.1"}, "malformed"),
        ({"webhook-id": "a" * 201}, "malformed"),
        ({"webhook-id": "msg_1\n"}, "malformed"),
        ({"webhook-id": "msg_é"}, "malformed"),
        ({"webhook-timestamp": str(NOW + 1)}, "wrong"),
        ({"webhook-timestamp": f"{NOW}.0"}, "malformed"),
        ({"webhook-timestamp": f" {NOW}"}, "malformed"),
        ({"webhook-timestamp": f"+{NOW}"}, "malformed"),
        ({"webhook-timestamp": "1e9"}, "malformed"),
        ({"webhook-timestamp": "٣"}, "malformed"),
        ({"webhook-timestamp": "9" * 13}, "malformed"),
        ({"webhook-timestamp": "nan"}, "malformed"),
        ({"webhook-signature": ""}, "missing"),
        ({"webhook-signature": "v1,"}, "wrong"),
        ({"webhook-signature": "v1"}, "wrong"),
        ({"webhook-signature": "v2,AAAA"}, "wrong"),
        ({"webhook-signature": "v1,***"}, "wrong"),
        ({"webhook-signature": "v1,AAAA " * 40}, "malformed"),
        ({"webhook-signature": "v1," + "A" * 9000}, "malformed"),
    ],
)
def test_a_changed_header_is_refused(change: dict[str, str], code: str) -> None:
    assert refusal([OLD], signed(**change)) == code


def test_a_changed_body_is_refused() -> None:
    for body in (b"", BODY + b" ", BODY[:-1], BODY.replace(b"paid", b"sent")):
        assert refusal([OLD], signed(), body) == "wrong"


def test_a_signature_of_another_version_is_not_taken_for_one_of_ours() -> None:
    ours = signed()["webhook-signature"].removeprefix("v1,")
    assert refusal([OLD], signed(**{"webhook-signature": f"v1a,{ours}"})) == "wrong"
    assert verify([OLD], signed(**{"webhook-signature": f"v1a,{ours} v1,{ours}"}), BODY, now=NOW).id == "msg_1"


def test_a_header_that_came_twice_is_refused() -> None:
    pairs = [*signed().items(), ("Webhook-Id", "msg_2")]
    assert refusal([OLD], pairs) == "malformed"
    assert verify([OLD], iter(signed().items()), BODY, now=NOW).id == "msg_1"


def test_the_border_between_id_time_and_body_cannot_be_moved() -> None:
    headers = sign([OLD], id="msg", timestamp=NOW, body=b"1700000001.rest")
    moved = {**headers, "webhook-id": f"msg.{NOW}", "webhook-timestamp": "1700000001"}
    assert refusal([OLD], moved, b"rest") == "malformed"


@pytest.mark.parametrize(
    "wrong", ["", "whsec_", "whsec_é", "whsec_AAAA", "not base64!", base64.b64encode(b"k" * 65).decode()]
)
def test_a_secret_that_is_none_is_refused_and_not_quoted(wrong: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        signatures.read_key(wrong)
    assert not wrong or wrong not in str(caught.value)


def test_a_secret_reads_back_as_its_key() -> None:
    assert signatures.read_key(signatures.write_key(NEW)) == NEW
    assert signatures.read_key(base64.b64encode(NEW).decode()) == NEW


def test_nothing_is_signed_without_a_secret_or_with_an_unclear_id() -> None:
    with pytest.raises(InvalidInput, match="one secret"):
        sign([], id="a", timestamp=NOW, body=b"")
    with pytest.raises(InvalidInput, match="full stop"):
        sign([OLD], id="a.b", timestamp=NOW, body=b"")


def test_a_refusal_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(SignatureRefused("wrong", "said")))
    assert (again.code, str(again)) == ("wrong", "said")


# -- GitHub ------------------------------------------------------------------------------------------------------------
EXAMPLE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
"""Of the body `Hello, World!` with the secret `It's a Secret to Everybody`, from GitHub's documentation."""
SECRET = b"It's a Secret to Everybody"


def github(**changes: str) -> dict[str, str]:
    return {
        "X-Hub-Signature-256": EXAMPLE,
        "X-GitHub-Delivery": "72d3162e-cc78-11e3",
        "X-GitHub-Event": "push",
        **changes,
    }


def test_the_example_of_githubs_documentation_is_accepted() -> None:
    delivery = verify_github([OTHER, SECRET], iter(github().items()), b"Hello, World!")
    assert (delivery.id, delivery.event, delivery.sent_at) == ("72d3162e-cc78-11e3", "push", None)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"X-Hub-Signature-256": ""}, "missing"),
        ({"X-Hub-Signature-256": EXAMPLE.upper()}, "malformed"),
        ({"X-Hub-Signature-256": EXAMPLE.replace("sha256", "sha1")}, "malformed"),
        ({"X-Hub-Signature-256": EXAMPLE[:-1]}, "malformed"),
        ({"X-Hub-Signature-256": EXAMPLE[:-1] + "8"}, "wrong"),
        ({"X-GitHub-Delivery": ""}, "missing"),
        ({"X-GitHub-Delivery": "a b"}, "malformed"),
        ({"X-GitHub-Event": "a b"}, "malformed"),
    ],
)
def test_a_changed_header_of_github_is_refused(change: dict[str, str], code: str) -> None:
    with pytest.raises(SignatureRefused) as caught:
        verify_github([SECRET], github(**change), b"Hello, World!")
    assert caught.value.code == code


def test_a_changed_body_of_github_is_refused() -> None:
    with pytest.raises(SignatureRefused):
        verify_github([SECRET], github(), b"Hello, World")
    assert signatures.body_id(b"a") != signatures.body_id(b"b")
