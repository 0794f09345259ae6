"""Sign-in of browsers at an OpenID Connect provider: authorization code with PKCE, into a session of this service.

The provider gives the name of a person, and nothing else: the person must be a user of the tenant already, and has the
roles that are on record. The session acts with a key of its own whose scopes the operator has set. Needs the extra
`oidc`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from stepkeep.api.access import OPEN
from stepkeep.api.handwritten import Routes
from stepkeep.api.problems import NOT_FOUND, UNAUTHENTICATED, ApiError
from stepkeep.api.routing import service_of
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.people.keys import create_session_key, read_scopes, sign_in
from stepkeep.operations.people.principals import registered
from stepkeep.store.principals import ApiKey, PrincipalKind
from stepkeep.store.protocol import Store

if TYPE_CHECKING:
    from joserfc.jwt import Claims

T = TypeVar("T")

routes = Routes("Sessions")

FLOW_COOKIE: Final = "stepkeep_oidc"
FLOW_SECONDS: Final = 600
"""How long a person may take at the provider."""
ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that are accepted: those with a public key. A provider's public key is never a shared secret."""
LEEWAY_SECONDS: Final = 60
ASK_SECONDS: Final = 10.0
MOST_BYTES: Final = 1024 * 1024
KEYS_SECONDS: Final = 10.0
"""A key that is not known makes the keys be read again, at most so often."""
DISCOVERY: Final = "/.well-known/openid-configuration"


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The provider, and what its people may do here. `claim` holds the name of a user of `tenant`."""

    issuer: str
    client_id: str
    client_secret: str
    tenant: str = "default"
    claim: str = "preferred_username"
    scopes: tuple[str, ...] = ("read", "decide", "complete")

    def __repr__(self) -> str:
        return f"<OIDC at {self.issuer}>"


VARIABLES: Final = {
    "issuer": "STEPKEEP_OIDC_ISSUER",
    "client_id": "STEPKEEP_OIDC_CLIENT_ID",
    "client_secret": "STEPKEEP_OIDC_CLIENT_SECRET",
    "tenant": "STEPKEEP_OIDC_TENANT",
    "claim": "STEPKEEP_OIDC_CLAIM",
    "scopes": "STEPKEEP_OIDC_SCOPES",
}


def read_oidc(environment: Mapping[str, str]) -> OidcSettings | None:
    """The settings in environment variables; None if there is no issuer."""
    given = {name: environment.get(variable, "") for name, variable in VARIABLES.items()}
    if not given["issuer"]:
        return None
    for name in ("client_id", "client_secret"):
        if not given[name]:
            raise InvalidInput(f"sign-in by OIDC needs {VARIABLES[name]}, too.")
    parts = urlsplit(given["issuer"])
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise InvalidInput("STEPKEEP_OIDC_ISSUER is an https address: over http anyone could sign in as anyone.")
    kept: dict[str, Any] = {name: value for name, value in given.items() if value}
    if "scopes" in kept:
        kept["scopes"] = tuple(one.strip() for one in kept["scopes"].split(","))
        read_scopes(kept["scopes"])
    return OidcSettings(**kept)


class Discovery(msgspec.Struct, frozen=True):
    """What a provider says of itself; other fields are not looked at."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    issuer: str = ""


class TokenAnswer(msgspec.Struct, frozen=True):
    """What a provider answers for a code."""

    id_token: str | None = None


class PublicKeys(msgspec.Struct, frozen=True):
    """The keys of a provider, each as RFC 7517 has it."""

    keys: Sequence[dict[str, str | list[str]]] = ()


class Provider:
    """A provider: its endpoints by discovery, and its keys, which it may change at any time."""

    def __init__(self, settings: OidcSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.settings, self._monotonic = settings, monotonic
        self._endpoints: Discovery | None = None
        self._keys: Any = None
        self._keys_at = float("-inf")

    async def endpoints(self) -> Discovery:
        if self._endpoints is None:
            issuer = self.settings.issuer.removesuffix("/")
            found = await self._ask(Discovery, "GET", f"{issuer}{DISCOVERY}")
            if found.issuer.removesuffix("/") != issuer:
                raise _failed("its discovery document names another issuer")
            self._endpoints = found
        return self._endpoints

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> str:
        """The id token that a code stands for."""
        import httpx2

        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        basic = httpx2.BasicAuth(self.settings.client_id, self.settings.client_secret)
        where = (await self.endpoints()).token_endpoint
        said = await self._ask(TokenAnswer, "POST", where, data=form, auth=basic)
        if said.id_token is None:
            raise _failed("its answer has no id token")
        return said.id_token

    async def claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        """The claims of an id token: signed by the provider, for this client, for this sign-in, and not expired."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            found = await self._decode(token)
            requests = jwt.JWTClaimsRegistry(
                leeway=LEEWAY_SECONDS,
                iss={"essential": True, "value": (await self.endpoints()).issuer},
                aud={"essential": True, "value": self.settings.client_id},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
            )
            requests.validate(found)
        except (JoseError, ValueError) as problem:
            raise _failed(f"its id token is not accepted ({type(problem).__name__})") from None
        several = found["aud"] if isinstance(found["aud"], list) else [found["aud"]]
        if len(several) > 1 and found.get("azp") != self.settings.client_id:
            raise _failed("its id token is for another client")
        if not hmac.compare_digest(str(found.get("nonce", "")), nonce):
            raise _failed("its id token belongs to another sign-in")
        return found

    async def _decode(self, token: str) -> Claims:
        from joserfc import jwt
        from joserfc.errors import BadSignatureError, InvalidKeyIdError

        try:
            return jwt.decode(token, await self._key_set(), algorithms=ALGORITHMS).claims
        except (BadSignatureError, InvalidKeyIdError, ValueError):
            # The provider may have changed its keys since they were read.
            if self._monotonic() - self._keys_at < KEYS_SECONDS:
                raise
            self._keys = None
            return jwt.decode(token, await self._key_set(), algorithms=ALGORITHMS).claims

    async def _key_set(self) -> Any:
        from joserfc.jwk import KeySet

        if self._keys is None:
            found = await self._ask(PublicKeys, "GET", (await self.endpoints()).jwks_uri)
            # A symmetric key among them would be one that anyone can read.
            public = [one for one in found.keys if one.get("kty") != "oct"]
            self._keys, self._keys_at = KeySet.import_key_set({"keys": public}), self._monotonic()
        return self._keys

    async def _ask(self, kind: type[T], method: str, url: str, **options: Any) -> T:
        import httpx2

        try:
            async with httpx2.AsyncClient(trust_env=False, timeout=ASK_SECONDS, follow_redirects=False) as client:
                answer = await client.request(method, url, **options)
            if answer.status_code != 200 or len(answer.content) > MOST_BYTES:
                raise _failed(f"it answers with {answer.status_code}")
            return msgspec.json.decode(answer.content, type=kind)
        except (httpx2.HTTPError, msgspec.DecodeError) as problem:
            raise _failed(f"it cannot be asked ({type(problem).__name__})") from None


@routes(
    "GET /oidc/login",
    OPEN,
    "begin_oidc",
    "Sign in at the provider",
    status=303,
    done="To the provider",
    media=None,
    problems=(401, 404),
)
async def begin(request: Request) -> Response:
    """Sends the browser to the provider. 404 where sign-in by OIDC is not set up."""
    provider = _provider(request)
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    digest = hashlib.sha256(verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": provider.settings.client_id,
        "redirect_uri": _redirect_uri(request),
        "scope": "openid profile email",
        "state": state,
        "nonce": nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    where = (await provider.endpoints()).authorization_endpoint
    answer = RedirectResponse(f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}", 303)
    # Lax: the provider sends the browser back from another site. It holds nothing but this one sign-in.
    answer.set_cookie(
        FLOW_COOKIE,
        f"{state}.{nonce}.{verifier}",
        max_age=FLOW_SECONDS,
        path="/oidc",
        secure=service_of(request).browsers.is_secure(request),
        httponly=True,
        samesite="lax",
    )
    return answer


@routes(
    "GET /oidc/callback",
    OPEN,
    "end_oidc",
    "Come back from the provider",
    done="Signed in",
    media="text/html",
    problems=(401, 404),
)
async def come_back(
    request: Request,
    code: Annotated[str, Meta(max_length=4096)] | None = None,
    state: Annotated[str, Meta(max_length=255)] | None = None,
    error: Annotated[str, Meta(max_length=255)] | None = None,
    error_description: Annotated[str, Meta(max_length=4096)] | None = None,
    iss: Annotated[str, Meta(max_length=1024)] | None = None,
    session_state: Annotated[str, Meta(max_length=1024)] | None = None,
) -> Response:
    """Sets the session cookie, and goes on to the pages."""
    service, provider = service_of(request), _provider(request)
    parts = request.cookies.get(FLOW_COOKIE, "").split(".")
    if len(parts) != 3 or not hmac.compare_digest(parts[0].encode(), (state or "").encode()):
        raise _failed("the sign-in was begun in another browser, or too long ago. Begin again: GET /oidc/login")
    if error is not None or code is None:
        raise _failed("the person was not signed in there")
    if iss is not None and iss != (await provider.endpoints()).issuer:
        raise _failed("another provider has answered")
    token = await provider.exchange(code, parts[2], _redirect_uri(request))
    claims = await provider.claims(token, parts[1])
    settings = provider.settings
    store = service.engine.store.for_tenant(settings.tenant)
    key = await _session_key(store, settings, claims, service.browsers.lifetime_us)
    made, _ = await sign_in(store, key, lifetime=service.browsers.lifetime_us)
    # A page of this origin goes on, because a redirect from another site would come without the strict cookie.
    answer = HTMLResponse('<!doctype html><meta http-equiv="refresh" content="0; url=/ui"><title>Signed in</title>')
    service.browsers.set_cookie(request, answer, made)
    answer.delete_cookie(FLOW_COOKIE, path="/oidc")
    return answer


async def _session_key(store: Store, settings: OidcSettings, claims: Mapping[str, Any], lifetime: int) -> ApiKey:
    """A key of the user that the claim names, for this session alone."""
    name = claims.get(settings.claim)
    if not isinstance(name, str) or (settings.claim == "email" and claims.get("email_verified") is not True):
        raise _failed(f"its id token has no usable claim {settings.claim}")
    try:
        row = await registered(store, settings.tenant, name)
    except (InvalidInput, NotFound, Conflict):
        raise _failed("the person is no user here. Ask an administrator for an account") from None
    if row.name != name or row.kind is not PrincipalKind.USER or row.disabled_at is not None:
        raise _failed("the person is no user here. Ask an administrator for an account")
    caller = Caller(settings.tenant, row.name, vouched_by="oidc")
    return await create_session_key(store, row.name, scopes=settings.scopes, lifetime=lifetime, caller=caller)


def _provider(request: Request) -> Provider:
    provider = service_of(request).browsers.provider
    if provider is None:
        raise ApiError(NOT_FOUND, "")
    return provider  # type: ignore[no-any-return]


def _redirect_uri(request: Request) -> str:
    return f"{service_of(request).browsers.origin(request)}/oidc/callback"


def _failed(why: str) -> ApiError:
    return ApiError(UNAUTHENTICATED, f"The sign-in at the provider failed: {why}.")
