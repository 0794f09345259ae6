"""Deliveries of webhooks over HTTP: no key, the signature authenticates them, and no answer is a 500."""

from __future__ import annotations

from typing import Any

import pytest

from stepkeep.definition.native.hooks import MAX_BODY
from stepkeep.worker.attempts.secrets import Secrets
from tests.api.outside import BODY, HOOK, SECRETS, TO_MESSAGE, signed
from tests.api.stage import TENANT, on, told
from tests.suites import first_on


async def test_only_a_genuine_delivery_has_an_effect(database_url: str) -> None:
    async with on(database_url) as stage:
        stage.engine.policies["secrets"] = Secrets(values=SECRETS)
        async with stage.host() as host:
            await host.hooks.add(TO_MESSAGE)
        async with stage.client() as client:
            address = f"/hooks/payments?tenant={TENANT}"
            wrong: list[tuple[dict[str, str], bytes, int, str, str]] = [
                ({}, BODY, 401, "signature", "missing"),
                (signed(key=b"n" * 24), BODY, 401, "signature", "wrong"),
                (signed(), BODY + b" ", 401, "signature", "wrong"),
                ({**signed(), "webhook-timestamp": "1"}, BODY, 401, "signature", "wrong"),
                (signed(body=b"{"), b"{", 422, "unmapped", "no_json"),
                (signed(body=b"{}"), b"{}", 422, "unmapped", "unmapped"),
            ]
            for headers, body, status, code, rule in wrong:
                answer = await client.post(address, content=body, headers=headers)
                assert told(answer, status, code)["rule"] == rule
                assert ("www-authenticate" in answer.headers) is (status == 401)
            told(await client.post(address, content=b" " * (MAX_BODY + 1), headers=signed()), 413, "too_large")
            # Of another tenant, the hook is not there.
            told(await client.post("/hooks/payments", content=BODY, headers=signed()), 404, "not_found")
            told(await client.post("/hooks/payments?tenant=%00", content=BODY, headers=signed()), 400, "invalid_input")
            async with stage.host() as host:
                assert (await host.mailbox.list())["messages"] == []
            for _ in range(2):
                assert (await client.post(address, content=BODY, headers=signed())).json() == {"result": "sent"}
            async with stage.host() as host:
                [kept] = (await host.mailbox.list())["messages"]
            assert (kept["key"], kept["sender"]) == ("o-7", "hook:payments")


@first_on("sqlite")
async def test_a_missing_secret_is_a_problem_of_its_own_and_the_sender_tries_again(database_url: str) -> None:
    async with on(database_url) as stage:
        stage.engine.policies["secrets"] = Secrets(environment=False)
        async with stage.host() as host:
            await host.hooks.add(TO_MESSAGE)
        async with stage.client() as client:
            answer = await client.post(f"/hooks/payments?tenant={TENANT}", content=BODY, headers=signed())
            assert "HOOK" not in told(answer, 503, "secret_missing")["detail"]
            assert answer.headers["retry-after"] == "60"


async def test_a_delivery_starts_a_run_also_where_names_without_a_key_are_refused(database_url: str) -> None:
    async with on(database_url) as stage:
        stage.engine.policies["secrets"] = Secrets(values=SECRETS)
        await stage.key()  # a tenant that refuses names has a key
        start: dict[str, Any] = {**HOOK, "start": {"workflow": "hello", "input": {}}}
        async with stage.host() as host:
            await host.hooks.add(start)
            await host.tenants.create(TENANT, vouching="refused")
        async with stage.client() as client:
            address = f"/hooks/payments?tenant={TENANT}"
            told(await client.post(address, content=BODY, headers=signed()), 409, "conflict")
            async with stage.client(await stage.key()) as keyed:
                answer = await keyed.post(
                    "/workflows",
                    content="workflow: hello\ntimeout: 1h\nsteps: [{name: greet, uses: api.greet, timeout: 5s}]\n",
                    headers={"Content-Type": "application/yaml"},
                )
                assert answer.status_code == 201, answer.text
                for _ in range(2):
                    answer = await client.post(address, content=BODY, headers=signed())
                    assert answer.json() == {"result": "started"}
                [run] = (await keyed.get("/runs")).json()["runs"]
                shown = (await keyed.get(f"/runs/{run['id']}")).json()
            assert "hook:payments" in str(shown)


@first_on("sqlite")
@pytest.mark.parametrize("workflow", ["/etc/hello.yaml", "./hello.yml", "hello.json"])
async def test_a_hook_never_reads_a_file_of_the_service(
    database_url: str, workflow: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hello.yml", "hello.json"):
        (tmp_path / name).write_text('{"workflow": "hello", "steps": [{"name": "greet", "uses": "api.greet"}]}')

    async with on(database_url) as stage:
        stage.engine.policies["secrets"] = Secrets(values=SECRETS)
        async with stage.host() as host:
            await host.hooks.add({**HOOK, "start": {"workflow": workflow}})
        async with stage.client() as client:
            answer = await client.post(f"/hooks/payments?tenant={TENANT}", content=BODY, headers=signed())
            assert "not published" in told(answer, 409, "conflict")["detail"]
