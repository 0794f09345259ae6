"""No caller gets a key that is worth more than the one in its hand: every kind of key, way and target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import product
from typing import Any, NamedTuple

import httpx2
import pytest
from msgspec.structs import replace

from stepkeep.api.app import create_app
from stepkeep.api.browsers import CSRF, Browsers
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict, NotAllowed, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.access import Scope, parse_key
from stepkeep.operations.people.keys import create_session_key, sign_in
from stepkeep.operations.people.people_journal import Change, record
from tests.api.stage import RIVAL, TENANT, Stage, on, told
from tests.suites import first_on

PLAIN = tuple(scope.value for scope in Scope if scope not in (Scope.ADMIN, Scope.METRICS))


class Kind(NamedTuple):
    """A kind of key: its owner, scopes and lifetime. Keys of sessions are made as sign-in at a provider makes them."""

    scopes: tuple[str, ...]
    owner: str = "ann"
    expires_in: str | None = None
    tenant: str = TENANT
    of_session: bool = False
    queues: tuple[str, ...] | None = None
    handlers: tuple[str, ...] | None = None


HANDS = {
    "read": Kind(("read",)),
    "work": Kind(("work",)),
    "work on a queue": Kind(("read", "work"), queues=("a", "b")),
    "work on a handler": Kind(("read", "work"), handlers=("h",)),
    "start": Kind(("read", "start")),
    "vouch": Kind(("read", "vouch")),
    "plain": Kind(PLAIN),
    "plain for an hour": Kind(PLAIN, expires_in="1h"),
    "plain of bea": Kind(PLAIN, "bea"),
    "admin": Kind(("admin",), "cyd"),
    "admin for an hour": Kind(("admin",), "cyd", "1h"),
    "session": Kind(("read", "decide", "complete"), of_session=True),
    "session of an administrator": Kind(("read", "admin"), "cyd", of_session=True),
}
TARGETS = {
    **HANDS,
    "work on one queue": Kind(("work",), queues=("a",)),
    "work on another queue": Kind(("work",), queues=("a", "c")),
    "work on both": Kind(("work",), queues=("a",), handlers=("h",)),
    "read for a day": Kind(("read",), expires_in="1d"),
    "everything of ann": Kind(tuple(Scope)),
    "read of the rival": Kind(("read",), tenant=RIVAL),
}
WAYS = ("engine", "request", "browser")
"""An engine that is opened with the key, a request with it, and a session that was opened with it."""


async def made(stage: Stage, kind: Kind) -> tuple[str, str]:
    """The id of a new key of this kind, and its secret; the cookie in its place where it belongs to a session."""
    if kind.of_session:
        async with stage.host(kind.tenant) as host:
            if kind.owner not in [one["name"] for one in (await host.users.list()).users]:
                await host.users.create(kind.owner)
            caller = Caller(kind.tenant, kind.owner, vouched_by="oidc")
            hours = 12 * 3600 * 1_000_000
            scopes = kind.scopes
            row = await create_session_key(host.store, kind.owner, scopes=scopes, lifetime=hours, caller=caller)
            cookie, _ = await sign_in(host.store, row)
            return row.id, f"{cookie.id}_{cookie.secret}"
    given = {"expires_in": kind.expires_in, "queues": kind.queues, "handlers": kind.handlers}
    options = {name: value for name, value in given.items() if value is not None}
    secret = await stage.key(*kind.scopes, tenant=kind.tenant, owner=kind.owner, max_requests_per_min=10_000, **options)
    return parse_key(secret).id, secret


async def browser(stage: Stage, client: httpx2.AsyncClient, kind: Kind, secret: str) -> None:
    """Sign this client in."""
    if kind.of_session:
        client.cookies.set("stepkeep_session", secret)
        session = (await client.get("/session")).json()
    else:
        session = (await client.post("/session", json={"key": secret})).json()
    client.headers[CSRF] = session["csrf"]


Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Sends a body to an address and returns the answer; None if it is refused."""


@asynccontextmanager
async def asking(stage: Stage, way: str, kind: Kind, secret: str) -> AsyncIterator[Ask]:
    async def call(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        try:
            if path == "/api-keys":
                return await engine.keys.create(body["owner"], scopes=body["scopes"])
            return await engine.keys.rotate(path.split("/")[2])
        except (NotAllowed, NotFound):
            return None

    async def request(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        answer = await client.post(path, json=body)
        assert answer.status_code in (201, 403, 404), answer.text
        assert answer.status_code == 201 or "secret" not in answer.json()
        return answer.json() if answer.status_code == 201 else None

    if way == "engine":
        async with AsyncEngine(stage.url, key=secret) as engine:
            yield call
    else:
        async with stage.client(secret if way == "request" else None) as client:
            if way == "browser":
                await browser(stage, client, kind, secret)
            yield request


def end_of(key: dict[str, Any]) -> float:
    return float("inf") if key["expires_at"] is None else datetime.fromisoformat(key["expires_at"]).timestamp()


async def test_no_way_leads_to_a_key_that_is_worth_more_than_the_one_in_hand(database_url: str) -> None:
    async with on(database_url) as stage:
        tried = got = 0
        async with stage.host() as host:
            hands = {name: await made(stage, kind) for name, kind in HANDS.items()}
            targets = {name: (await made(stage, kind))[0] for name, kind in TARGETS.items()}
            known = {one["id"]: one for one in (await host.keys.list()).keys}
            for (name, hand), way in product(HANDS.items(), WAYS):
                if hand.of_session and way != "browser":
                    continue
                mine, secret = hands[name]
                async with asking(stage, way, hand, secret) as ask:
                    for (goal, target), is_new in product(TARGETS.items(), (False, True)):
                        if target.tenant == RIVAL and is_new:
                            continue
                        new = {"owner": target.owner, "scopes": [str(one) for one in target.scopes]}
                        path, body = ("/api-keys", new) if is_new else (f"/api-keys/{targets[goal]}/rotate", {})
                        found = await ask(path, body)
                        tried += 1
                        said = f"{name} by {way} for {goal}: {path}"
                        if found is None:
                            never = target.of_session or target.tenant == RIVAL
                            assert "admin" not in hand.scopes or never, said
                            continue
                        got += 1
                        key = found["key"]
                        assert target.tenant == TENANT, said
                        assert is_new or not target.of_session, said
                        if "admin" in hand.scopes:
                            continue
                        assert way != "browser", said
                        assert key["owner"] == hand.owner, said
                        assert set(key["scopes"]) <= set(hand.scopes), said
                        assert end_of(key) <= end_of(known[mine]), said
                        for own, limit in ((hand.queues, key["queues"]), (hand.handlers, key["handlers"])):
                            is_bound = "work" in key["scopes"] and own is not None
                            assert not is_bound or (limit is not None and set(limit) <= set(own or ())), said
        assert tried > 600
        assert got > 100, "an administrator gives keys, and a key replaces those that are worth no more"


async def test_a_key_replaces_itself_and_keeps_its_end_unless_an_administrator_does_it(database_url: str) -> None:
    async with on(database_url) as stage, stage.host() as host:
        secret = await stage.key("read", expires_in="1h")
        first = next(one for one in (await host.keys.list()).keys if one["id"] == parse_key(secret).id)
        for _ in range(3):
            async with stage.client(secret) as client:
                answer = await client.post(f"/api-keys/{parse_key(secret).id}/rotate")
            secret, view = answer.json()["secret"], answer.json()["key"]
            assert view["expires_at"] == first["expires_at"]
        renewed = (await host.keys.rotate(view["id"])).key
        assert end_of(renewed) > end_of(view)


async def test_revoking_a_key_ends_those_that_replaced_it_and_their_sessions(database_url: str) -> None:
    async with on(database_url) as stage, stage.host() as host, stage.client() as page:
        first = await stage.key("read", owner="ann", expires_in="1d")
        line = [first]
        for _ in range(3):
            line.append((await host.keys.rotate(parse_key(line[-1]).id)).secret)
        beside = (await host.keys.rotate(parse_key(first).id)).secret
        alone = await stage.key("read", owner="ann", expires_in="2d")
        await browser(stage, page, HANDS["read"], line[2])
        said = await host.keys.revoke(parse_key(line[1]).id)
        assert (said["successors"], said["sessions"]) == ([parse_key(one).id for one in line[2:]], 1)
        assert said["key"]["state"] == "revoked"
        stage.app.service.callers.forget()
        told(await page.get("/session"), 401, "unauthenticated")
        for secret, status in ((first, 200), (beside, 200), (alone, 200), *((one, 401) for one in line[1:])):
            async with stage.client(secret) as client:
                assert (await client.get("/session")).status_code == status
        with pytest.raises(Conflict, match="revoked already"):
            await host.keys.revoke(parse_key(line[1]).id)
        with pytest.raises(Conflict, match="revoked already"):
            await host.keys.revoke(parse_key(line[3]).id)
        detail = (await host.users.history("ann")).history[-1].detail
        assert detail["ended"] == [parse_key(one).id for one in line[2:]]
        assert len(detail["sessions"]) == 1
        assert (await host.users.history()).chain.differences == [], "the journal tells of every end"


async def test_a_key_that_was_revoked_before_is_revoked_again_to_end_what_replaced_it(database_url: str) -> None:
    """As after an upgrade: until then a successor outlived the key that it replaced."""

    async with on(database_url) as stage, stage.host() as host:
        old = await stage.key("read", expires_in="1d")
        new = (await host.keys.rotate(parse_key(old).id)).secret
        row = await host.store.people.find_key(parse_key(old).id)
        assert row is not None

        async def alone(now: int) -> Any:
            return lambda at: Change(
                event="key_revoked", subject="ann", keys=(replace(row, revoked_at=at, revoked_by="root"),)
            )

        await record(host.store, Caller(TENANT, "root"), alone)
        assert (await host.keys.revoke(parse_key(old).id)).successors == [parse_key(new).id]
        async with stage.client(new) as client:
            told(await client.get("/session"), 401, "unauthenticated")


async def test_of_a_rotation_and_a_revocation_at_the_same_time_no_successor_is_left(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.host() as host:
            for _ in range(10):
                key = parse_key(await stage.key("read", expires_in="1d")).id
                secret = (await host.keys.rotate(key)).secret
                async with AsyncEngine(stage.url, key=secret) as thief:
                    await asyncio.gather(
                        *(thief.keys.rotate(parse_key(secret).id) for _ in range(3)),
                        host.keys.revoke(key),
                        return_exceptions=True,
                    )
        async with stage.host() as host:
            assert {one["state"] for one in (await host.keys.list(owner="ann")).keys} == {"revoked"}


@first_on("sqlite")
async def test_the_key_of_a_session_has_no_secret_and_ends_with_it(database_url: str) -> None:
    async with on(database_url) as stage:
        stage.app = create_app(stage.engine, browsers=Browsers())
        async with stage.host() as host, stage.client() as client:
            key, cookie = await made(stage, HANDS["session"])
            await browser(stage, client, HANDS["session"], cookie)
            [view] = (await host.keys.list()).keys
            assert (view["of_session"], view["state"]) == (True, "live")
            for guess in ("A" * 43, "0" * 43):
                async with stage.client(f"sk_{key}_{guess}") as other:
                    told(await other.get("/session"), 401, "unauthenticated")
            refused = told(await client.post(f"/api-keys/{key}/rotate"), 403, "not_allowed")
            assert "belongs to a session" in refused["detail"]
            with pytest.raises(NotAllowed, match="belongs to a session"):
                await host.keys.rotate(key)
            assert (await client.delete("/session")).json() == {"ended": True}
            [view] = (await host.keys.list()).keys
            assert (view["state"], view["revoked_by"]) == ("revoked", "ann")
            assert (await host.users.history()).chain.differences == [], "the journal tells of every end"
