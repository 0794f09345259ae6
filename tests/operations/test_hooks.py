"""Inbound webhooks on both stores: each delivery has its effect once, and everything else is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.network.signatures import sign, write_key

KEY, NEXT = b"k" * 24, b"n" * 24
SECRETS = {"BILLING": write_key(KEY), "BILLING_NEXT": write_key(NEXT)}
MESSAGE = {"name": "${{ body.type }}", "key": "${{ body.order }}"}
PAID: dict[str, Any] = {"hook": "billing", "scheme": "standard", "secrets": ["BILLING"], "message": MESSAGE}
START: dict[str, Any] = {"workflow": "delivery", "input": {"order": "${{ body.order }}"}}
BODY = b'{"type":"paid","order":"o-7"}'


def delivery(number: int = 1, key: bytes = KEY, body: bytes = BODY) -> dict[str, str]:
    return sign([key], id=f"msg_{number}", timestamp=int(time.time()), body=body)


def waiting() -> sk.Workflow:
    workflow = sk.Workflow("delivery")
    workflow.wait("arrival", "paid")
    return workflow


def test_a_delivery_wakes_the_run_with_its_key_once(database_url: str) -> None:
    with sk.open(database_url, secrets=SECRETS) as engine:
        engine.hooks.add(PAID)
        run = engine.start(waiting(), business_key="o-7").run_id
        looked = engine.hooks.receive("billing", delivery(), BODY, dry_run=True)
        assert (looked["result"], looked["key"]) == ("would send", "o-7")
        first = engine.hooks.receive("billing", delivery(), BODY)
        again = engine.hooks.receive("billing", delivery(), BODY)
        assert (first["result"], again["result"]) == ("sent", "sent")
        assert engine.wait(run, seconds=10).state is sk.RunState.SUCCEEDED
        assert first["run_id"] == again["run_id"] == run


def test_a_delivery_starts_one_run_however_often_it_comes(database_url: str) -> None:
    with sk.open(database_url, secrets=SECRETS) as engine:
        engine.publish(waiting())
        engine.hooks.add({**PAID, "message": None, "start": START})
        found = [engine.hooks.receive("billing", delivery(), BODY) for _ in range(3)]
        assert [one["result"] for one in found] == ["started"] * 3
        assert [one["created"] for one in found] == [True, False, False]
        assert len({one["run_id"] for one in found}) == 1
        other = engine.hooks.receive("billing", delivery(2), BODY)
        assert other["run_id"] != found[0]["run_id"]


def test_a_delivery_starts_one_run_whichever_api_key_receives_it(database_url: str) -> None:
    """Idempotency keys of callers belong to their API keys; that of a delivery belongs to the hook."""
    keys = []
    with sk.open(database_url, secrets=SECRETS) as engine:
        engine.publish(waiting())
        engine.hooks.add({**PAID, "message": None, "start": START})
        engine.users.create("ann")
        for _ in range(2):
            made = engine.keys.create("ann", scopes=["read", "start", "complete"])
            keys.append(made["secret"])
        found = [engine.hooks.receive("billing", delivery(), BODY)["run_id"]]
    for key in keys:
        with sk.open(database_url, key=key, secrets=SECRETS) as receiver:
            found.append(receiver.hooks.receive("billing", delivery(), BODY)["run_id"])
    assert len(set(found)) == 1


def test_what_is_not_genuine_changes_nothing(database_url: str) -> None:
    with sk.open(database_url, secrets=SECRETS) as engine:
        engine.publish(waiting())
        engine.hooks.add({**PAID, "message": None, "start": START})
        for headers, body in ((delivery(key=NEXT), BODY), (delivery(), BODY + b" "), ({}, BODY)):
            assert engine.hooks.receive("billing", headers, body)["result"] == "refused"
        assert engine.runs()["runs"] == []


def test_a_secret_is_replaced_without_a_gap(database_url: str) -> None:
    with sk.open(database_url, secrets=SECRETS) as engine:
        engine.hooks.add({**PAID, "secrets": ["BILLING_NEXT", "BILLING"]}, by="ann")
        for key in (KEY, NEXT):
            assert engine.hooks.receive("billing", delivery(key=key), BODY, dry_run=True)["result"] == "would send"
        engine.hooks.add({**PAID, "secrets": ["BILLING_NEXT"]}, by="ann")
        assert engine.hooks.receive("billing", delivery(), BODY, dry_run=True)["code"] == "wrong"
        assert [one["saved_by"] for one in engine.hooks.list()["hooks"]] == ["ann"]


def test_a_removed_or_unknown_hook_and_a_missing_secret_are_typed_errors(database_url: str) -> None:
    with sk.open(database_url, tenant="other", secrets=SECRETS) as other, sk.open(database_url) as engine:
        engine.hooks.add(PAID)
        with pytest.raises(sk.NotFound):
            other.hooks.receive("billing", delivery(), BODY)
        with pytest.raises(sk.StepkeepError, match="no secret BILLING"):
            engine.hooks.receive("billing", delivery(), BODY)
        engine.hooks.remove("billing")
        for call in (lambda: engine.hooks.remove("billing"), lambda: engine.hooks.receive("billing", {}, b"")):
            with pytest.raises(sk.NotFound, match="no hook billing"):
                call()
        with pytest.raises(sk.InvalidInput):
            engine.hooks.add({**PAID, "scheme": "none"})
