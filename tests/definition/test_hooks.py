"""Inbound webhooks: what is genuine becomes a message or a start, once; everything else is refused with a reason."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from stepkeep.definition.native.hooks import HookRefused, Ignored, ToSend, ToStart, read_hook, receive
from stepkeep.kernel.errors import InvalidInput
from stepkeep.network.signatures import sign

KEY, OLD = b"k" * 24, b"o" * 24
NOW = 1_700_000_000
BODY = json.dumps({"type": "invoice.paid", "order": "o-7", "total": 5}).encode()
PAID: dict[str, Any] = {
    "hook": "billing",
    "scheme": "standard",
    "secrets": ["BILLING"],
    "message": {"name": "${{ body.type }}", "key": "${{ body.order }}", "payload": {"total": "${{ body.total }}"}},
}
DEPLOY: dict[str, Any] = {
    "hook": "deploys",
    "scheme": "github",
    "secrets": ["GITHUB"],
    "start": {"workflow": "deploy", "input": {"order": "${{ body.order }}", "event": "${{ delivery.event }}"}},
}


def delivered(body: bytes = BODY, key: bytes = KEY, **changes: str) -> dict[str, str]:
    return {**sign([key], id="msg_1", timestamp=NOW, body=body), **changes}


def github(body: bytes = BODY, **changes: str) -> dict[str, str]:
    signature = "sha256=" + hmac.new(KEY, body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": signature, "X-GitHub-Delivery": "d-1", "X-GitHub-Event": "push"}
    return {**headers, **changes}


def test_a_genuine_delivery_becomes_a_message_by_key_with_the_id_of_the_delivery() -> None:
    found = receive(read_hook(PAID), [KEY], delivered(), BODY, now=NOW)
    assert found == ToSend(id="hook:billing:msg_1", name="invoice.paid", key="o-7", payload={"total": 5})
    assert receive(read_hook(PAID), [KEY, OLD], delivered(key=OLD), BODY, now=NOW) == found, (
        "while a secret is replaced"
    )


def test_a_message_may_start_the_run_that_it_is_for() -> None:
    hook = read_hook(PAID | {"message": PAID["message"] | {"start": "order", "input": {"id": "${{ body.order }}"}}})
    found = receive(hook, [KEY], delivered(), BODY, now=NOW)
    assert isinstance(found, ToSend)
    assert (found.start, found.input) == ("order", {"id": "o-7"})


def test_a_delivery_of_github_becomes_a_start_whose_id_is_made_of_the_signed_body() -> None:
    hook = read_hook(DEPLOY)
    found = receive(hook, [KEY], github(), BODY, now=NOW)
    assert isinstance(found, ToStart)
    assert (found.workflow, found.input) == ("deploy", {"order": "o-7", "event": "push"})
    again = receive(hook, [KEY], github(**{"X-GitHub-Delivery": "d-2"}), BODY, now=NOW)
    assert again == found, "another id in a header that is not signed does not make it another delivery"
    other = receive(hook, [KEY], github(b'{"order":"o-8"}'), b'{"order":"o-8"}', now=NOW)
    assert isinstance(other, ToStart)
    assert other.id != found.id


def test_a_genuine_delivery_for_which_the_condition_is_false_is_ignored() -> None:
    hook = read_hook(PAID | {"when": "body.total > 100"})
    assert receive(hook, [KEY], delivered(), BODY, now=NOW) == Ignored(id="hook:billing:msg_1")
    assert isinstance(receive(hook, [OLD], delivered(), BODY, now=NOW), HookRefused), "the signature comes first"


@pytest.mark.parametrize(
    ("headers", "body", "now", "code"),
    [
        (delivered(), BODY + b" ", NOW, "wrong"),
        (delivered(key=OLD), BODY, NOW, "wrong"),
        (delivered(), BODY, NOW + 301, "too_old"),
        (delivered(), BODY, NOW - 301, "too_new"),
        ({}, BODY, NOW, "missing"),
        (delivered(**{"webhook-id": "a.b"}), BODY, NOW, "malformed"),
        (delivered(b"no json"), b"no json", NOW, "no_json"),
        (delivered(b'{"a": 1, "a": 2}'), b'{"a": 1, "a": 2}', NOW, "no_json"),
        (delivered(b'{"a": NaN}'), b'{"a": NaN}', NOW, "no_json"),
        (delivered(b"\xff"), b"\xff", NOW, "no_json"),
        (delivered(b"{}"), b"{}", NOW, "unmapped"),
        (delivered(b'{"type":"a","order":7,"total":1}'), b'{"type":"a","order":7,"total":1}', NOW, "unmapped"),
        (delivered(b'{"type":"a","order":"","total":1}'), b'{"type":"a","order":"","total":1}', NOW, "unmapped"),
        (delivered(b"[" * 5000), b"[" * 5000, NOW, "no_json"),
        ({}, b"x" * (1024 * 1024 + 1), NOW, "too_large"),
    ],
)
def test_what_is_not_genuine_or_cannot_be_mapped_is_refused(
    headers: dict[str, str], body: bytes, now: int, code: str
) -> None:
    found = receive(read_hook(PAID), [KEY], headers, body, now=now)
    assert isinstance(found, HookRefused)
    assert found.code == code


@pytest.mark.parametrize(
    "change",
    [
        {"hook": ""}, {"hook": "a b"}, {"hook": "a/b"}, {"hook": "é"}, {"hook": "x" * 101}, {"scheme": "none"},
        {"secrets": []}, {"secrets": ["a b"]}, {"secrets": ["A"] * 5}, {"secrets": "A"}, {"message": None},
        {"start": {"workflow": "x"}}, {"unknown": 1}, {"when": "body.("}, {"when": "secret.X"},
        {"message": {"name": "x"}}, {"message": {"name": "x", "key": "${{ input.x }}"}},
        {"message": {"name": "x", "key": "${{ secret.X }}"}},
    ],
)  # fmt: skip
def test_a_definition_that_cannot_work_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="hook"):
        read_hook(PAID | change)
