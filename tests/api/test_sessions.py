"""Sessions of browsers: sign-in by key, the cookie, requests that other sites forge, and everything that ends one."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie

import httpx2
import pytest

from stepkeep.api.access import FRESH_SECONDS
from stepkeep.api.app import create_app
from stepkeep.api.browsers import COOKIE, CSRF, MOST_FAILURES, WINDOW_SECONDS, Browsers, read_public_url
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.access import key_text
from stepkeep.operations.people.keys import LIFETIME
from tests.api.stage import HELLO, RIVAL, on, told
from tests.suites import first_on

ORIGIN = "http://service"


async def sign_in(client: httpx2.AsyncClient, key: str) -> dict[str, object]:
    answer = await client.post("/session", json={"key": key})
    assert answer.status_code == 201, answer.text
    body: dict[str, object] = answer.json()
    return body


async def test_a_session_acts_with_its_key_and_ends_for_good(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client() as client, stage.client() as elsewhere:
            opened = await sign_in(client, await stage.key("read", "start"))
            assert (opened["principal"], opened["tenant"], opened["scopes"]) == ("ann", "acme", ["read", "start"])
            assert (await client.get("/session")).json() == opened
            assert (await client.get("/runs")).json()["runs"] == []
            told(await client.get("/session", headers={"Authorization": "Bearer no"}), 401, "unauthenticated")
            proof = {CSRF: str(opened["csrf"])}
            started = await client.post("/runs", json={"workflow": "hello"}, headers=proof)
            assert started.status_code == 201
            told(await client.post("/workflows", headers=proof, content="workflow: x"), 403, "not_allowed")
            elsewhere.cookies = client.cookies.__class__(client.cookies)
            assert (await elsewhere.get("/session")).json() == opened
            assert (await client.delete("/session", headers=proof)).json() == {"ended": True}
            assert COOKIE not in client.cookies
            told(await elsewhere.get("/session"), 401, "unauthenticated")
        async with stage.host() as host:
            entries = (await host.users.history("ann")).history[-2:]
        assert [one["event"] for one in entries] == ["signed_in", "signed_out"]
        assert {one["by"] for one in entries} == {"ann"}


@first_on("sqlite")
async def test_the_cookie_is_not_for_scripts_other_sites_or_plain_http(database_url: str) -> None:
    async with on(database_url) as stage:
        key = await stage.key("read")
        for public, secure in ((None, False), ("https://flows.example.com", True)):
            stage.app = create_app(stage.engine, browsers=Browsers(public))
            async with stage.client() as client:
                answer = await client.post("/session", json={"key": key})
            [cookie] = SimpleCookie(answer.headers["set-cookie"]).values()
            assert cookie.key == COOKIE
            assert (cookie["path"], cookie["samesite"], cookie["httponly"]) == ("/", "strict", True)
            assert bool(cookie["secure"]) is secure
            assert int(cookie["max-age"]) == LIFETIME // 1_000_000
            assert "access-control-allow-origin" not in answer.headers
            assert key[-43:] not in str(answer.headers)
            assert key[-43:] not in answer.text


@first_on("sqlite")
async def test_a_request_that_another_site_forges_is_refused(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client() as client, stage.client() as other:
            opened = await sign_in(client, await stage.key())
            foreign = await sign_in(other, await stage.key())
            proof = {CSRF: str(opened["csrf"])}
            start = {"workflow": "hello"}
            for headers in ({}, {CSRF: "x"}, {CSRF: str(foreign["csrf"])}, {CSRF: "\x7f"}):
                told(await client.post("/runs", json=start, headers=headers), 403, "forged")
            for origin in ("https://evil.example", "null", "https://service", "http://service:81"):
                told(await client.post("/runs", json=start, headers={**proof, "Origin": origin}), 403, "forged")
                told(await client.post("/session", json={"key": "x"}, headers={"Origin": origin}), 403, "forged")
            told(await client.delete("/session"), 403, "forged")
            assert (await client.get("/runs")).json()["runs"] == [], "nothing was done"
            assert (await client.post("/runs", json=start, headers={**proof, "Origin": ORIGIN})).status_code == 201
            # A key in the header is a program's: the cookie beside it is ignored, and no token is needed.
            told(await client.post("/runs", json=start, headers={"Authorization": "Bearer x"}), 401, "unauthenticated")


@first_on("sqlite")
async def test_no_answer_allows_another_origin(database_url: str) -> None:
    async with on(database_url) as stage, stage.client() as client:
        asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        for path in ("/session", "/runs", "/healthz"):
            answer = await client.options(path, headers=asks)
            assert answer.status_code == 405
            assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_session_ends_with_its_key_its_owner_or_its_time(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as stage:
        now = [0.0]
        monkeypatch.setattr(stage.app.service.callers, "_monotonic", lambda: now[0])
        keys = [await stage.key("read", owner=name) for name in ("ann", "bob", "cyd")]
        short = await stage.key("read", owner="dan", expires_in="1h")
        async with stage.client() as ann, stage.client() as bob, stage.client() as cyd, stage.client() as dan:
            both = [*zip((ann, bob, cyd), keys, strict=True), (dan, short)]
            opened = [await sign_in(client, key) for client, key in both]
            assert str(opened[3]["expires_at"]) < str(opened[2]["expires_at"]), "never longer than the key"
            assert [(await one.get("/runs")).status_code for one, _ in both] == [200] * 4
            async with stage.host() as host:
                await host.keys.revoke(keys[0].split("_")[1])
                await host.users.disable("bob")
            now[0] += FRESH_SECONDS
            told(await ann.get("/runs"), 401, "unauthenticated")
            told(await bob.get("/runs"), 401, "unauthenticated")
            assert (await cyd.get("/runs")).status_code == 200
            stage.engine.store.clock_offset = 3600 * 1_000_000
            now[0] += FRESH_SECONDS
            told(await dan.get("/runs"), 401, "unauthenticated")
            assert (await cyd.get("/runs")).status_code == 200
            stage.engine.store.clock_offset = LIFETIME
            now[0] += FRESH_SECONDS
            assert "has expired" in told(await cyd.get("/runs"), 401, "unauthenticated")["detail"]
            told(await dan.post("/session", json={"key": short}), 401, "unauthenticated")


async def test_a_session_holds_after_a_restart_and_in_every_process(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.client() as client:
            opened = await sign_in(client, await stage.key("read"))
            cookie = client.cookies[COOKIE]
        stage.app = create_app(stage.engine)
        async with stage.client() as client:
            client.cookies.set(COOKIE, cookie)
            assert (await client.get("/session")).json() == opened
            for wrong in ("", "x", cookie[:-1], cookie[:-43] + "A" * 43, "0" * 16 + cookie[16:]):
                client.cookies.set(COOKIE, wrong)
                told(await client.get("/session", headers={}), 401, "unauthenticated")
        async with stage.host() as host:
            row = await host.store.people.find_session(cookie[:16])
            assert row is not None
            assert cookie[17:] not in str(row)
            assert row.secret_hash != opened["csrf"]


@first_on("sqlite")
async def test_failed_sign_ins_are_limited_and_good_ones_wait_their_turn(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as stage:
        now = [0.0]
        monkeypatch.setattr(stage.app.service.browsers.attempts, "_monotonic", lambda: now[0])
        key = await stage.key("read")
        wrong = key_text(key.split("_")[1], "A" * 43)
        async with stage.client() as client:
            for _ in range(MOST_FAILURES):
                told(await client.post("/session", json={"key": wrong}), 401, "unauthenticated")
            late = await client.post("/session", json={"key": key})
            told(late, 429, "too_many_requests")
            assert late.headers["retry-after"] == str(int(WINDOW_SECONDS) + 1)
            # Programs with the same key are not held up by it.
            assert (await client.get("/runs", headers={"Authorization": f"Bearer {key}"})).status_code == 200
            now[0] += WINDOW_SECONDS
            assert (await client.post("/session", json={"key": key})).status_code == 201


@first_on("sqlite")
async def test_failed_sign_ins_are_counted_for_an_address_and_for_a_key(database_url: str) -> None:
    async with on(database_url) as stage:
        key = await stage.key("read")

        async def attempt(address: str, given: str) -> int:
            transport = httpx2.ASGITransport(app=stage.app, client=(address, 1))
            async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
                return (await client.post("/session", json={"key": given})).status_code

        for number in range(MOST_FAILURES):
            assert await attempt("192.0.2.1", key_text(f"{number:016x}", "A" * 43)) == 401
        assert await attempt("192.0.2.1", key) == 429, "many keys from one address"
        assert await attempt("192.0.2.2", key) == 201
        for number in range(MOST_FAILURES):
            assert await attempt(f"192.0.2.{number + 10}", key[:-43] + "A" * 43) == 401
        assert await attempt("192.0.2.2", key) == 429, "one key from many addresses"
        assert await attempt("192.0.2.2", await stage.key("read", owner="bea")) == 201


@first_on("sqlite")
async def test_guesses_at_links_count_as_failed_sign_ins(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on(database_url) as stage:
        now = [0.0]
        monkeypatch.setattr(stage.app.service.browsers.attempts, "_monotonic", lambda: now[0])
        code = stage.app.service.links.make(await stage.key("read"))
        async with stage.client() as client:
            for _ in range(MOST_FAILURES):
                told(await client.post("/session/link", json={"code": "guessed"}), 401, "unauthenticated")
            told(await client.post("/session/link", json={"code": code}), 429, "too_many_requests")
            told(await client.post("/session", json={"key": await stage.key("read")}), 429, "too_many_requests")
            for origin in ("https://evil.example", "null"):
                forged = await client.post("/session/link", json={"code": code}, headers={"Origin": origin})
                told(forged, 403, "forged")
            now[0] += WINDOW_SECONDS
            assert (await client.post("/session/link", json={"code": code})).status_code == 201


async def test_of_parallel_sign_outs_one_ends_the_session(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.client() as client:
            opened = await sign_in(client, await stage.key("read"))
            proof = {CSRF: str(opened["csrf"])}
            done = await asyncio.gather(*(client.delete("/session", headers=proof) for _ in range(10)))
        assert sorted({one.status_code for one in done}) in ([200], [200, 401])
        assert sum(one.status_code == 200 for one in done) == 1
        async with stage.host() as host:
            entries = (await host.users.history("ann")).history
        assert [one["event"] for one in entries].count("signed_out") == 1


@first_on("sqlite")
async def test_a_session_sees_nothing_of_another_tenant(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "hello"})).json()["run_id"]
        async with stage.client() as rival:
            await sign_in(rival, await stage.key(tenant=RIVAL, owner="eve"))
            told(await rival.get(f"/runs/{run}"), 404, "not_found")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("https://flows.example.com", "https://flows.example.com"),
        ("https://Flows.example.com:443/", "https://flows.example.com"),
        ("http://localhost:8321", "http://localhost:8321"),
    ],
)
def test_the_public_url_is_an_origin(given: str, read: str) -> None:
    assert read_public_url(given) == read


@pytest.mark.parametrize(
    "given", ["", "flows.example.com", "ftp://x", "https://x/y", "https://u@x", "https://x?y", "https://x:y"]
)
def test_what_is_no_origin_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="public URL"):
        read_public_url(given)
