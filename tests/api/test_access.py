"""Keys at the door: no route without a row, one answer for every wrong key, scopes, tenants, revocation."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepkeep.api import access
from stepkeep.api.access import ANY_KEY, OPEN, ROUTES, operation_of
from stepkeep.api.handwritten import Routes
from stepkeep.api.problems import NOTHING
from stepkeep.kernel.errors import NotAllowed
from stepkeep.operations import access as operations_access
from stepkeep.operations.access import OPERATIONS, Access, Scope, key_text
from tests.api.stage import HELLO, RIVAL, on, told
from tests.suites import first_on

NOBODYS = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"


def test_a_route_of_no_operation_cannot_be_made() -> None:
    routes = Routes("Secrets")

    @routes("GET /secrets", "read_secrets", "list_secrets", "List secrets")
    async def secrets() -> str:
        return "none"

    with pytest.raises(LookupError, match=r"GET /secrets names the operation read_secrets, which has no row"):
        _ = routes.routes
    del ROUTES["GET /secrets"]


def test_every_row_names_an_operation_with_scopes_or_is_open_on_purpose() -> None:
    assert {row for row in ROUTES.values() if row not in (OPEN, ANY_KEY)} <= set(OPERATIONS)
    assert {route for route, row in ROUTES.items() if row == OPEN} == {
        "GET /healthz",
        "GET /readyz",
        "GET /version",
        "GET /openapi.json",
        "POST /session",
        "GET /oidc/login",
        "GET /oidc/callback",
        "POST /session/link",
        "POST /hooks/{name}",
    }
    assert operation_of("GET", "/runs") == "runs"


async def test_every_wrong_key_gets_one_answer(database_url: str) -> None:
    async with on(database_url) as stage:
        key = await stage.key()
        unknown = key_text("0" * 16, key[-43:])
        wrong = key[:-43] + "A" * 43
        bodies = set()
        for header in (None, "", "Basic abc", "Bearer", f"Bearer {key}x", f"Token {key}"):
            async with stage.client() as client:
                answer = await client.get(
                    "/runs", headers={"X-Request-Id": "one"} | ({} if header is None else {"Authorization": header})
                )
            told(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
            bodies.add(answer.content)
        assert len(bodies) == 1
        for bad in (unknown, wrong):
            async with stage.client(bad) as client:
                assert "is not valid here" in told(await client.get("/runs"), 401, "unauthenticated")["detail"]


@first_on("sqlite")
async def test_the_same_work_is_done_for_a_wrong_secret_and_for_a_key_that_nobody_has(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the time of the answer tells which ids exist. The entry of the audit log is written afterwards."""
    done: list[str] = []

    def counted(where: object, name: str) -> None:
        real = getattr(where, name)

        def count(*arguments: Any, **named: Any) -> Any:
            done.append(name)
            return real(*arguments, **named)

        monkeypatch.setattr(where, name, count)

    async with on(database_url) as stage:
        key = await stage.key("read")
        for where, name in (
            (hmac, "compare_digest"),
            (access, "secret_hash"),
            (operations_access, "secret_hash"),
            (access, "entry"),
            (type(stage.engine.store.people), "find_key"),
        ):
            counted(where, name)
        seen = {}
        async with stage.client() as client:
            await client.get("/runs", headers={"Authorization": f"Bearer {key}"})
            for what, given in (("wrong", key[:-43] + "A" * 43), ("unknown", key_text("0" * 16, "A" * 43))) * 2:
                done.clear()
                answer = await client.get("/runs", headers={"Authorization": f"Bearer {given}"})
                told(answer, 401, "unauthenticated")
                assert seen.setdefault(what, list(done)) == done
        assert seen["wrong"] == seen["unknown"]
        assert {"compare_digest", "entry", "find_key"} <= set(seen["wrong"])


@first_on("sqlite")
async def test_a_header_that_decides_is_not_sent_twice(database_url: str) -> None:
    """The service would go by the first, and a proxy in front of it perhaps by the last."""

    async with on(database_url) as stage:
        await stage.publish(HELLO)
        one, other = [("Authorization", f"Bearer {await stage.key(owner=name)}") for name in ("ann", "bea")]
        async with stage.client() as client:
            for twice in ((one, other), (one, one), (one, ("Idempotency-Key", "a"), ("Idempotency-Key", "b"))):
                for method, path in (("GET", "/runs"), ("POST", "/runs"), ("GET", "/healthz")):
                    body = b'{"workflow": "hello"}' if method == "POST" else None
                    headers = [*twice, ("Content-Type", "application/json")]
                    answer = await client.request(method, path, headers=headers, content=body)
                    assert "more than once" in told(answer, 400, "invalid_input")["detail"]
            assert (await client.get("/runs", headers=[one])).json()["runs"] == []


async def test_a_key_needs_the_scope_of_the_route(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key("start")) as client:
            refused = told(await client.get("/runs"), 403, "not_allowed")
            assert refused["rule"] == "scope"
            assert (await client.post("/runs", json={"workflow": "hello"})).status_code == 201
        async with stage.client(await stage.key("read")) as client:
            told(await client.post("/runs", json={"workflow": "hello"}), 403, "not_allowed")
            assert len((await client.get("/runs")).json()["runs"]) == 1


async def test_what_belongs_to_another_tenant_is_as_if_it_did_not_exist(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "hello"})).json()["run_id"]
        async with stage.client(await stage.key(tenant=RIVAL)) as rival:
            same = {"X-Request-Id": "r"}
            foreign = await rival.get(f"/runs/{run}", headers=same)
            missing = await rival.get(f"/runs/{NOBODYS}", headers=same)
            nonsense = await rival.get("/runs/..%2f", headers=same)
            told(foreign, 404, "not_found")
            assert foreign.content == missing.content == nonsense.content
            assert foreign.headers == missing.headers
            assert (await rival.get("/runs")).json()["runs"] == []
            # A workflow of the other tenant cannot be started, and is not told apart from one that nobody has.
            told(await rival.post("/runs", json={"workflow": "hello"}), 400, "invalid_input")


async def test_a_name_inside_what_a_key_may_see_is_told_with_what_there_is(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key("read", "start", "operate", "decide")) as client:
            run = (await client.post("/runs", json={"workflow": "hello"})).json()["run_id"]
            assert (await client.post(f"/runs/{run}/cancel")).status_code == 200
            wrong: list[tuple[str, str, dict[str, object] | None, str]] = [
                ("POST", f"/runs/{run}/rerun-from", {"start": "nowhere"}, "Its steps: greet."),
                ("POST", f"/runs/{run}/fork", {"start": "nowhere"}, "Its steps: greet."),
                ("POST", f"/runs/{run}/steps/nowhere/decide", {"choice": "skip", "reason": "x"}, "Its steps: greet."),
                ("GET", f"/runs/{run}/steps/nowhere", None, "Its steps: greet."),
                ("POST", f"/runs/{run}/retry", {"version": 9}, "The newest is version 1"),
                ("POST", f"/runs/{run}/migrate", {"to": 9}, "The newest is version 1"),
                ("POST", "/migrations/hello", {"to": 9}, "The newest is version 1"),
                ("GET", "/workflows/hello/compare?old=1&new=9", None, "The newest is version 1"),
                ("GET", f"/runs/{run}/past?seq=99", None, "its last one is"),
                ("POST", "/slots", {"most": 1, "workflow": "nowhere"}, "there is no workflow 'nowhere'"),
                ("POST", "/pauses/queue", {"queue": "nowhere"}, "the default queue"),
                ("POST", "/pauses/queue/resume", {"queue": "nowhere"}, "the default queue"),
            ]
            for method, address, body, says in wrong:
                answer = await client.request(method, address, json=body)
                assert says in told(answer, 404, "not_found")["detail"], address
        async with stage.client(await stage.key("read", "start", "operate", tenant=RIVAL)) as rival:
            for name in ("hello", "nowhere"):
                foreign = told(await rival.post(f"/migrations/{name}", json={"to": 9}), 404, "not_found")
                assert foreign["detail"] == NOTHING


async def test_a_revoked_key_is_refused_within_a_second_and_an_expired_one_at_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as stage:
        now = [0.0]
        monkeypatch.setattr(stage.app.service.callers, "_monotonic", lambda: now[0])
        key = await stage.key("read")
        async with stage.client(key) as client:
            assert (await client.get("/runs")).status_code == 200
            async with stage.host() as host:
                await host.keys.revoke(key.split("_")[1])
            now[0] += access.FRESH_SECONDS
            assert access.FRESH_SECONDS < 1
            assert "was revoked" in told(await client.get("/runs"), 401, "unauthenticated")["detail"]


@first_on("sqlite")
async def test_scopes_are_asked_for_once_and_a_key_that_ends_while_the_body_arrives_is_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as stage:
        now, asked, lacks = [0.0], list[str](), Access.lacks

        def counted(self: Access, *needed: Scope, operation: str) -> NotAllowed | None:
            asked.append(operation)
            return lacks(self, *needed, operation=operation)

        async def slow_body() -> AsyncIterator[bytes]:
            yield b'{"workflow": '
            async with stage.host() as host:
                await host.keys.revoke(key.split("_")[1])
            now[0] += access.FRESH_SECONDS
            yield b'"hello"}'

        await stage.publish(HELLO)
        monkeypatch.setattr(stage.app.service.callers, "_monotonic", lambda: now[0])
        key = await stage.key("read", "start", "operate")
        monkeypatch.setattr(Access, "lacks", counted)
        async with stage.client(key) as client:
            run = (await client.post("/runs", json={"workflow": "hello"})).json()["run_id"]
            assert (await client.post(f"/runs/{run}/pause", json={"reason": "why not"})).status_code == 200
            assert (await client.get("/slots")).status_code == 200
            assert (await client.get(f"/runs/{run}/log")).status_code == 200
            assert asked == ["start", "pause", "slots.list", "log"]
            late = await client.post("/runs", content=slow_body(), headers={"content-type": "application/json"})
            assert "was revoked" in told(late, 401, "unauthenticated")["detail"]


@first_on("sqlite")
async def test_the_engine_of_a_caller_shares_everything_with_that_of_the_process(database_url: str) -> None:
    async with on(database_url) as stage:
        holder = await stage.app.service.callers.authenticate(f"Bearer {await stage.key('read')}")
        engine = holder.engine("runs")
        assert engine.transactor is stage.engine.transactor
        assert set(vars(engine)) == {"_engine", "access", "admitted", "_key_scope", "tenant", "actor"}


@first_on("sqlite")
async def test_the_key_of_a_disabled_person_is_refused(database_url: str) -> None:
    async with on(database_url) as stage:
        key = await stage.key("read", owner="bob")
        async with stage.host() as host:
            await host.users.disable("bob")
        async with stage.client(key) as client:
            told(await client.get("/runs"), 401, "unauthenticated")


@first_on("sqlite")
async def test_a_known_key_is_not_read_from_the_database_for_every_request(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key("read")) as client:
        await client.get("/runs")
        reads = []
        find = stage.engine.store.people.find_key

        async def counted(key_id: str) -> object:
            reads.append(key_id)
            return await find(key_id)

        stage.engine.store.people.find_key = counted  # type: ignore[method-assign, assignment]
        for _ in range(3):
            assert (await client.get("/runs")).status_code == 200
        assert reads == []
