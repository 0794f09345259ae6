"""Seed 001 over HTTP: a client that was written for its service works below /as/run, without the defects."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx2
import pytest

from stepkeep.definition.python.registry import HandlerSpec
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotAllowed
from tests.api.sse import all_of
from tests.api.stage import RIVAL, Stage, on, told
from tests.suites import first_on

BASE = "/as/run"
TEMPLATE = {
    "template": "default",
    "steps": [
        {"name": "LLM", "position": 1, "timeout_seconds": 5},
        {"name": "TOOL", "position": 2, "timeout_seconds": 5},
        {"name": "APPROVAL", "position": 3},
    ],
}


async def prepared(stage: Stage, client: httpx2.AsyncClient) -> None:
    for name in ("LLM", "TOOL"):
        stage.engine.registry.register(HandlerSpec(name=name, function=lambda: {"text": "done"}))
    answer = await client.post("/workflows", json=TEMPLATE)
    assert answer.status_code == 201, answer.text


async def waits(client: httpx2.AsyncClient, run: str) -> None:
    found = await client.get(f"/runs/{run}/result?wait=30&until_blocked=true")
    assert found.json()["state"] == "blocked", found.text


async def test_001_a_run_from_creation_to_approval(database_url: str) -> None:
    async with on(database_url) as stage, stage.serving(await stage.key(tenant="default")) as client:
        await prepared(stage, client)
        await stage.engine.start_worker()
        # "Idempotent run creation": the body is optional, and one key makes one run.
        made = await client.post(f"{BASE}/runs", headers={"Idempotency-Key": "k"})
        assert made.status_code == 201
        run = made.json()["run_id"]
        assert made.json() == {"run_id": run}
        again = await client.post(f"{BASE}/runs", headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()) == (200, {"run_id": run})
        # Defect 5 of the seed's service: it answered another body under the same key with the old run.
        other = await client.post(f"{BASE}/runs", json={"priority": 7}, headers={"Idempotency-Key": "k"})
        told(other, 422, "key_reused")
        await waits(client, run)
        assert (await client.get(f"{BASE}/runs/{run}")).json() == {"id": run, "status": "WAITING_APPROVAL"}
        steps = (await client.get(f"{BASE}/runs/{run}/steps")).json()
        assert steps["run_id"] == run
        # Defect 1: order by position is enforced.
        assert [(one["name"], one["status"]) for one in steps["steps"]] == [
            ("LLM", "SUCCEEDED"),
            ("TOOL", "SUCCEEDED"),
            ("APPROVAL", "WAITING_APPROVAL"),
        ]
        cost = (await client.get(f"{BASE}/runs/{run}/cost")).json()
        assert (cost["run_id"], cost["total_cost_usd"], len(cost["steps"])) == (run, 0, 3)
        approved = await client.post(f"{BASE}/runs/{run}/approve")
        assert (approved.status_code, approved.json()) == (200, {"id": run, "status": "APPROVED"})
        assert (await client.post(f"{BASE}/runs/{run}/approve")).status_code == 200, "approving again is no-op"
        assert (await client.get(f"{BASE}/runs/{run}")).json() == {"id": run, "status": "SUCCEEDED"}
        await _events(client, run)


async def _events(client: httpx2.AsyncClient, run: str) -> None:
    """`/events?since_id=`: the seed's names and payloads, with ids and an end."""
    got = await all_of(client, f"{BASE}/runs/{run}/events")
    assert [one.event for one in got] == ["step_update"] * (len(got) - 1) + ["end"]
    told_: list[dict[str, Any]] = [one.data for one in got[:-1]]
    assert [one["type"] for one in told_] == [
        "STEP_CLAIMED",
        "STEP_SUCCEEDED",
        "STEP_CLAIMED",
        "STEP_SUCCEEDED",
        "STEP_WAITING_APPROVAL",
        "STEP_APPROVED",
        "RUN_APPROVED",
    ]
    assert [one["seq"] for one in told_] == list(range(1, 8))
    assert set(told_[0]) >= {"id", "seq", "run_id", "type", "payload", "created_at"}
    by_number = await all_of(client, f"{BASE}/runs/{run}/events?since_id=5")
    by_id = await all_of(client, f"{BASE}/runs/{run}/events?since_id={told_[4]['id']}")
    resumed = await all_of(client, f"{BASE}/runs/{run}/events", Last_Event_ID="5")
    assert [one.data for one in by_number[:-1]] == [one.data for one in by_id[:-1]] == told_[5:]
    assert resumed == by_number


async def test_001_what_the_service_refuses(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key(tenant="default")) as client:
        await prepared(stage, client)
        told(await client.post(f"{BASE}/runs", json={"template_name": "nobodys"}), 400, "invalid_input")
        told(await client.post(f"{BASE}/runs", json={"colour": "red"}), 400, "invalid_input")
        told(await client.post(f"{BASE}/runs", json={"priority": 1.5}), 400, "invalid_input")
        two = {"content": b"{} {}", "headers": {"Content-Type": "application/json"}}
        told(await client.post(f"{BASE}/runs", **two), 400, "invalid_input")  # type: ignore[arg-type]
        run = (await client.post(f"{BASE}/runs", json={"template_name": "default", "priority": 5})).json()["run_id"]
        assert (await client.get(f"/runs/{run}")).json()["run"]["priority"] == 5
        told(await client.post(f"{BASE}/runs/{run}/approve"), 409, "conflict")
        for _ in range(2):
            ended = await client.post(f"{BASE}/runs/{run}/cancel")
            assert (ended.status_code, ended.json()) == (200, {"id": run, "status": "CANCELED"})
        told(await client.post(f"{BASE}/runs/{run}/approve"), 409, "conflict")
        async with stage.client(await stage.key(tenant=RIVAL)) as rival:
            # "Cross-tenant resource access intentionally returns 404."
            for method, path in (("GET", ""), ("GET", "/steps"), ("GET", "/cost"), ("GET", "/events")):
                told(await rival.request(method, f"{BASE}/runs/{run}{path}"), 404, "not_found")
            for path in ("/approve", "/cancel"):
                told(await rival.post(f"{BASE}/runs/{run}{path}"), 404, "not_found")


@first_on("sqlite")
async def test_001_the_end_of_a_run_is_posted_to_its_webhook(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key(tenant="default")) as client:
        await prepared(stage, client)
        told(await client.post(f"{BASE}/runs", json={"webhook_url": "ftp://x"}), 400, "invalid_input")
        told(await client.post(f"{BASE}/runs", json={"webhook_secret": "HOOK"}), 400, "invalid_input")
        hooked = {"webhook_url": "https://shop.example/runs", "webhook_secret": "HOOK"}
        run = (await client.post(f"{BASE}/runs", json=hooked)).json()["run_id"]
        assert (await client.post(f"{BASE}/runs/{run}/cancel")).status_code == 200
        # Defect 4 of the seed's service: a cancel sent nothing. Workers deliver it (tests/seeds/test_events.py).
        [due] = (await stage.engine.outbox.list(run_id=run))["deliveries"]
        assert (due["run"], due["state"]) == (run, "ready")


async def test_a_start_names_only_secrets_that_an_administrator_released_for_signing(database_url: str) -> None:
    """Otherwise any caller could have its body signed by any secret of the workers, at an address of its own."""

    async with on(database_url) as stage:
        host = stage.host("default")
        hooked = {"webhook_url": "https://shop.example/runs", "webhook_secret": "PAYMENTS"}
        async with host, stage.client(await stage.key(tenant="default")) as everything:
            await prepared(stage, everything)
            narrow = await stage.key("read", "start", "operate", tenant="default")
            rival = await stage.key("read", "start", "admin", tenant=RIVAL)
            async with stage.client(narrow) as client, AsyncEngine(stage.url, key=narrow) as engine:

                async def is_refused() -> bool:
                    given: dict[str, Any] = {"webhook_url": hooked["webhook_url"], "webhook_secret": "PAYMENTS"}
                    answer = await client.post(f"{BASE}/runs", json=hooked)
                    with suppress(NotAllowed):
                        await engine.start("default", **given)
                        assert answer.status_code == 201
                        return False
                    with pytest.raises(NotAllowed, match="not released"):
                        await engine._prepare_start("default", **given)  # what a start with connection= does first
                    assert told(answer, 403, "not_allowed")["rule"] == "secret_not_released"
                    assert "stepkeep tenants signing default --secret PAYMENTS" in answer.json()["detail"]
                    return True

                assert await is_refused()
                told(await client.put("/tenants/default/signing", json={"secrets": ["PAYMENTS"]}), 403, "not_allowed")
                async with stage.client(rival) as other:
                    told(
                        await other.put("/tenants/default/signing", json={"secrets": ["PAYMENTS"]}), 403, "not_allowed"
                    )
                    assert (await other.put(f"/tenants/{RIVAL}/signing", json={"secrets": ["PAYMENTS"]})).is_success
                assert await is_refused(), "another tenant has released it"
                bad = await everything.put("/tenants/default/signing", json={"secrets": ["no name"]})
                told(bad, 400, "invalid_input")
                said = (await everything.put("/tenants/default/signing", json={"secrets": ["PAYMENTS"]})).json()
                assert said == {"tenant": "default", "secrets": ["PAYMENTS"]}
                assert not await is_refused()
                assert (await host.tenants.set_signing("default", [])).secrets == []
                assert await is_refused()
            # An administrator could release it, and a program without a key has the database.
            assert (await everything.post(f"{BASE}/runs", json=hooked)).status_code == 201
            await host.start("default", webhook_url="https://shop.example/runs", webhook_secret="PAYMENTS")


@first_on("sqlite")
async def test_001_a_run_that_ended_otherwise_is_not_said_to_be_cancelled(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key(tenant="default")) as client:
        await prepared(stage, client)
        await stage.engine.start_worker()
        run = (await client.post(f"{BASE}/runs")).json()["run_id"]
        await waits(client, run)
        await client.post(f"{BASE}/runs/{run}/approve")
        told(await client.post(f"{BASE}/runs/{run}/cancel"), 409, "conflict")
