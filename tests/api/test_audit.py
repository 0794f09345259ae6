"""The audit log: what people and keys asked for, what was refused, by which request and from where."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepkeep.api.browsers import CSRF
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotAllowed, StoreUnavailable
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.access import key_text
from stepkeep.operations.people import audit
from tests.api.stage import GATED, HELLO, RIVAL, TENANT, Stage, on, told
from tests.suites import first_on


async def noted(stage: Stage, query: str = "", key: str | None = None) -> list[dict[str, Any]]:
    log = stage.app.service.callers.engines.of(TENANT).access.audit_log
    assert log is not None
    await log.close()  # stores what waits
    async with stage.client(key or await stage.key("admin", owner="root")) as client:
        answer = await client.get(f"/audit{query}")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["audit"])


async def test_every_change_through_the_service_is_on_record_with_its_request(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        key = await stage.key()
        async with stage.client(key) as client:
            client.headers["X-Request-Id"] = "r-1"
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            await client.get(f"/runs/{run}")
            assert (await client.post(f"/runs/{run}/approve", json={"step": "sign", "by": "bob"})).status_code == 200
            told(await client.post(f"/runs/{run}/reject", json={"step": "sign"}), 409, "conflict")
            assert (await client.post("/users", json={"name": "cyd"})).status_code == 201
        found = await noted(stage, "?key=" + key.split("_")[1])
        said = [(one["operation"], one["actor"], one["target"], one["outcome"], one["code"]) for one in found]
        assert said == [
            ("user_created", "ann", "cyd", "done", None),
            ("reject", "ann", run, "failed", "conflict"),
            ("approve", "bob", run, "done", None),
            ("start", "ann", run, "done", None),
        ]
        assert [one["vouched_by"] for one in found] == [None, None, "ann", None]
        assert [one.get("detail", {}).get("kind") for one in found] == ["user", None, None, None]
        assert "audit.list" not in {one["operation"] for one in await noted(stage, "")}, "reading is not on record"
        assert {one["request_id"] for one in found} == {"r-1"}
        assert {one["address"] for one in found} == {"127.0.0.1"}
        assert [one["source"] for one in found] == ["people", "audit", "audit", "audit"], "nothing is written twice"


async def test_every_refusal_is_on_record(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        key = await stage.key("read")
        wrong = key_text(key.split("_")[1], "A" * 43)
        async with stage.client(key) as client:
            told(await client.post("/runs", json={"workflow": "hello"}), 403, "not_allowed")
            told(await client.get("/audit"), 403, "not_allowed")
        async with stage.client(wrong) as client:
            for _ in range(3):
                told(await client.get("/runs/x"), 401, "unauthenticated")
            told(await client.post("/session", json={"key": wrong}), 401, "unauthenticated")
        async with stage.client() as client:
            csrf = (await client.post("/session", json={"key": key})).json()["csrf"]
            told(await client.post("/runs", json={"workflow": "hello"}), 403, "forged")
            told(await client.post("/runs", json={"workflow": "hello"}, headers={CSRF: csrf}), 403, "not_allowed")
        found = await noted(stage, "?outcome=refused")
        assert [(one["operation"], one["code"]) for one in found] == [
            ("start", "scope"),
            ("start", "forged"),
            ("show", "unauthenticated"),  # once a second for one key
            ("audit.list", "scope"),
            ("start", "scope"),
        ]
        assert {one["actor"] for one in found} == {"ann"}
        everything = str(found)
        assert key[-43:] not in everything
        assert "A" * 43 not in everything


@first_on("sqlite")
async def test_the_log_of_a_tenant_is_its_own_and_has_pages(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            runs = [(await client.post("/runs", json={"workflow": "hello"})).json()["run_id"] for _ in range(5)]
            await client.post("/users", json={"name": "zoe"})
        rival = await stage.key("admin", tenant=RIVAL, owner="eve")
        assert {one["actor"] for one in await noted(stage, key=rival)} == {"root"}, "who made eve and her key"
        whole = [one["id"] for one in await noted(stage)]
        async with stage.client(await stage.key("admin", owner="root")) as client:
            seen: list[str] = []
            cursor = ""
            for _ in range(20):
                page = (await client.get(f"/audit?limit=2&until=2100-01-01T00:00:00Z{cursor}")).json()
                seen += [one["id"] for one in page["audit"] if one["operation"] != "audit.list"]
                if page["next"] is None:
                    break
                cursor = f"&cursor={page['next']}"
            assert seen == whole
            assert {runs[0], "zoe"} <= {one["target"] for one in await noted(stage)}
            told(await client.get("/audit?cursor=x"), 400, "invalid_input")
            told(await client.get("/audit?outcome=maybe"), 400, "invalid_input")
            nothing = (await client.get("/audit?since=2100-01-01T00:00:00Z")).json()
            assert (nothing["audit"], nothing["next"], nothing["chain"]["is_intact"]) == ([], None, True)


async def test_a_program_with_a_key_is_on_record_and_one_without_only_when_refused(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with AsyncEngine(database_url, key=await stage.key("start", "decide")) as engine:
            run = (await engine.start("gated")).run_id
            with pytest.raises(NotAllowed):
                await engine.cancel(run)
        async with stage.host() as host:
            await host.approve(run)
            await host.tenants.create("acme")
            admin = await stage.key("admin", owner="root")
        async with AsyncEngine(database_url, key=admin) as engine:
            await engine.tenants.set_vouching("acme", "refused")
        async with stage.host() as host:
            with pytest.raises(NotAllowed):
                await host.cancel(run)
        found = [one for one in await noted(stage, key=admin) if one["source"] == "audit"]
        assert [(one["operation"], one["actor"], one["outcome"], one["code"]) for one in found] == [
            ("cancel", "root", "refused", "vouching_refused"),
            ("cancel", "ann", "refused", "scope"),
            ("start", "ann", "done", None),
        ]


@first_on("sqlite")
async def test_old_entries_go_when_they_are_pruned(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            await client.post("/runs", json={"workflow": "hello"})
        assert "start" in {one["operation"] for one in await noted(stage)}
        async with stage.host() as host:
            assert (await host.prune(archive=None, forget_audit="1d")).audit == 0
            host.store.clock_offset = 2 * 86_400 * 1_000_000
            assert (await host.prune(archive=None, forget_audit="1d")).audit > 0
        assert "start" not in {one["operation"] for one in await noted(stage)}


@first_on("sqlite")
async def test_an_operation_does_not_fail_for_its_entry_which_is_stored_later(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        store = stage.engine.store
        append, is_away = store.audit.append, [True]

        async def failing(rows: Any) -> None:
            if is_away[0]:
                raise StoreUnavailable("away")
            await append(rows)

        store.audit.append = failing  # type: ignore[method-assign]
        async with stage.client(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            assert (await client.post(f"/runs/{run}/approve")).status_code == 200
        is_away[0] = False
        assert {"start", "approve"} <= {one["operation"] for one in await noted(stage)}


@first_on("sqlite")
async def test_an_entry_that_is_being_written_when_the_log_is_closed_is_stored(database_url: str) -> None:
    async with on(database_url) as stage, stage.host() as host:
        log = host.access.audit_log
        assert log is not None
        for number in range(20):
            log.add(audit.entry(caller=Caller(TENANT, "ann"), operation="start", target=str(number)))
            log._urgent.set()
            while log._waiting:  # noqa: ASYNC110 - until the batch is taken, a turn of the loop or two
                await asyncio.sleep(0)
            await log.close()
        found = (await host.audit.list(operation="start")).audit
        assert {one["target"] for one in found} == {str(number) for number in range(20)}


@first_on("sqlite")
async def test_at_most_so_many_entries_wait(database_url: str) -> None:
    async with on(database_url) as stage:
        log = stage.engine.access.audit_log
        assert log is not None
        log.most_waiting = 3
        for number in range(5):
            log.add(audit.entry(caller=Caller("acme", "ann"), operation="start", target=str(number)))
        await log.close()
        assert {one["target"] for one in await noted(stage, "?operation=start")} == {"2", "3", "4"}
