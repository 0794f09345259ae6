"""Sign-in of browsers by OpenID Connect, against a provider on loopback: the right way, and every wrong token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from stepkeep.api.app import create_app
from stepkeep.api.browsers import COOKIE, CSRF, Browsers
from stepkeep.api.oidc import KEYS_SECONDS, OidcSettings, read_oidc
from stepkeep.api.oidc import Provider as Known
from stepkeep.kernel.errors import InvalidInput
from tests.api.provider import CLIENT, SECRET, Provider, serving
from tests.api.stage import TENANT, Stage, on, told
from tests.suites import first_on, some

Act = Callable[[Stage, Provider], Awaitable[None]]


@asynccontextmanager
async def with_provider(url: str) -> AsyncIterator[tuple[Stage, Provider]]:
    async with on(url) as stage:
        with serving() as provider:
            browsers = Browsers()
            settings = OidcSettings(issuer=provider.issuer, client_id=CLIENT, client_secret=SECRET, tenant=TENANT)
            browsers.provider = Known(settings)
            stage.app = create_app(stage.engine, browsers=browsers)
            async with stage.host() as host:
                await host.users.create("ann")
            yield stage, provider


async def signed_in(client: httpx2.AsyncClient, provider: Provider) -> httpx2.Response:
    """What the service says when the browser comes back."""
    sent = await client.get("/oidc/login")
    assert sent.status_code == 303, sent.text
    parts = urlsplit(sent.headers["location"])
    assert f"{parts.scheme}://{parts.netloc}" == provider.issuer
    back = provider.authorize(dict(parse_qsl(parts.query)))
    return await client.get(back.removeprefix("http://service"))


async def test_a_user_signs_in_at_the_provider_and_acts_in_a_session(database_url: str) -> None:
    async with with_provider(database_url) as (stage, provider):
        async with stage.client() as client:
            answer = await signed_in(client, provider)
            assert answer.status_code == 200, answer.text
            assert COOKIE in client.cookies
            session = (await client.get("/session")).json()
            assert (session["principal"], session["tenant"]) == ("ann", TENANT)
            assert session["scopes"] == ["read", "decide", "complete"]
            assert (await client.get("/runs")).status_code == 200
            told(await client.post("/users", json={"name": "x"}, headers={CSRF: session["csrf"]}), 403, "not_allowed")
        async with stage.host() as host:
            entries = (await host.users.history("ann")).history
            assert [one["event"] for one in entries] == ["user_created", "key_created", "signed_in"]
            assert entries[1]["vouched_by"] == "oidc"
            await host.users.disable("ann")
        async with stage.client() as client:
            told(await signed_in(client, provider), 401, "unauthenticated")


async def test_the_key_of_such_a_session_never_leaves_it_and_ends_with_it(database_url: str) -> None:
    async with with_provider(database_url) as (stage, provider):
        admin = await stage.key("read", "admin", owner="ann")
        async with stage.client() as client, stage.host() as host:
            await signed_in(client, provider)
            client.headers[CSRF] = (await client.get("/session")).json()["csrf"]
            [own] = [one for one in (await host.keys.list()).keys if one["of_session"]]
            for key in (own["id"], admin.split("_")[1]):
                refused = await client.post(f"/api-keys/{key}/rotate")
                told(refused, 403, "not_allowed")
                assert "sk_" not in refused.text
            told(await client.post("/api-keys", json={"owner": "ann", "scopes": ["read"]}), 403, "not_allowed")
            cookie = client.cookies[COOKIE]
            assert (await client.delete("/session")).json() == {"ended": True}
            client.cookies.set(COOKIE, cookie)
            told(await client.get("/session"), 401, "unauthenticated")
            [ended] = [one for one in (await host.keys.list()).keys if one["of_session"]]
            assert (ended["state"], ended["revoked_by"]) == ("revoked", "ann")
            entry = (await host.users.history("ann")).history[-1]
            assert (entry["event"], entry["detail"]["ended"]) == ("signed_out", [own["id"]])


@pytest.mark.parametrize(
    "claims",
    some(
        [
            {"iss": "https://evil.example"},
            {"aud": "another"},
            {"aud": [CLIENT, "another"], "azp": "another"},
            {"exp": int(time.time()) - 3600},
            {"nonce": "another"},
            {"nonce": None},
            {"sub": None},
            {"preferred_username": "nobody"},
            {"preferred_username": "ANN"},
            {"preferred_username": None},
            {"preferred_username": ["ann"]},
        ],
        3,
        "-".join,
    ),
)
@first_on("sqlite")
async def test_a_token_with_a_wrong_claim_signs_nobody_in(database_url: str, claims: dict[str, Any]) -> None:
    async with with_provider(database_url) as (stage, provider):
        provider.claims = claims
        async with stage.client() as client:
            told(await signed_in(client, provider), 401, "unauthenticated")
            assert COOKIE not in client.cookies


@first_on("sqlite")
async def test_a_token_that_others_could_have_signed_is_refused(database_url: str) -> None:
    async with with_provider(database_url) as (stage, provider), stage.client() as client:
        provider.signs_as_secret = True
        told(await signed_in(client, provider), 401, "unauthenticated")
        provider.signs_as_secret, provider.signs_with = False, Provider().key
        told(await signed_in(client, provider), 401, "unauthenticated")
        provider.algorithm = "none"
        provider.token = lambda *_: {"id_token": "eyJhbGciOiJub25lIn0.eyJzdWIiOiI0MiJ9."}  # type: ignore[method-assign]
        told(await signed_in(client, provider), 401, "unauthenticated")
        assert COOKIE not in client.cookies


@first_on("sqlite")
async def test_keys_that_the_provider_has_changed_are_read_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_provider(database_url) as (stage, provider):
        now = [0.0]
        monkeypatch.setattr(stage.app.service.browsers.provider, "_monotonic", lambda: now[0])
        async with stage.client() as client:
            assert (await signed_in(client, provider)).status_code == 200
            provider.rotate()
            told(await signed_in(client, provider), 401, "unauthenticated")
            now[0] += KEYS_SECONDS
            assert (await signed_in(client, provider)).status_code == 200
            assert provider.asked.count("/keys") == 2
            assert provider.asked.count("/.well-known/openid-configuration") == 1


@first_on("sqlite")
async def test_an_answer_that_belongs_to_another_browser_or_another_sign_in_is_refused(database_url: str) -> None:
    async with with_provider(database_url) as (stage, provider), stage.client() as client, stage.client() as victim:
        sent = await client.get("/oidc/login")
        cookie = sent.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        back = provider.authorize(dict(parse_qsl(urlsplit(sent.headers["location"]).query)))
        path = back.removeprefix("http://service")
        told(await victim.get(path), 401, "unauthenticated")
        await victim.get("/oidc/login")
        told(await victim.get(path), 401, "unauthenticated")
        state = dict(parse_qsl(urlsplit(back).query))["state"]
        told(await client.get(f"/oidc/callback?error=denied&state={state}"), 401, "unauthenticated")
        told(await client.get(f"/oidc/callback?code=unknown&state={state}"), 401, "unauthenticated")
        told(await client.get(f"{path}&iss=https://evil.example"), 401, "unauthenticated")
        assert (await client.get(path)).status_code == 200
        told(await client.get(path), 401, "unauthenticated")
        assert SECRET not in sent.text + str(sent.headers)


@first_on("sqlite")
@pytest.mark.parametrize("field", ["issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"])
async def test_a_discovery_document_that_lacks_a_field_is_refused(database_url: str, field: str) -> None:
    async with with_provider(database_url) as (stage, provider), stage.client() as client:
        provider.left_out = field
        said = told(await client.get("/oidc/login"), 401, "unauthenticated")
        assert "the provider failed" in said["detail"]


@first_on("sqlite")
async def test_without_a_provider_there_is_nothing_to_find(database_url: str) -> None:
    async with on(database_url) as stage, stage.client() as client:
        told(await client.get("/oidc/login"), 404, "not_found")
        told(await client.get("/oidc/callback?code=x&state=y"), 404, "not_found")


def test_settings_are_read_from_the_environment() -> None:
    given = {
        "STEPKEEP_OIDC_ISSUER": "https://login.example.com",
        "STEPKEEP_OIDC_CLIENT_ID": "flows",
        "STEPKEEP_OIDC_CLIENT_SECRET": "s3cret-value",
        "STEPKEEP_OIDC_SCOPES": "read, start",
    }
    found = read_oidc(given)
    assert found is not None
    assert (found.tenant, found.claim, found.scopes) == ("default", "preferred_username", ("read", "start"))
    assert "s3cret-value" not in repr(found)
    assert read_oidc({}) is None
    for wrong in (
        {**given, "STEPKEEP_OIDC_CLIENT_SECRET": ""},
        {**given, "STEPKEEP_OIDC_ISSUER": "http://login.example.com"},
        {**given, "STEPKEEP_OIDC_SCOPES": "everything"},
    ):
        with pytest.raises(InvalidInput):
            read_oidc(wrong)
