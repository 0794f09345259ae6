"""Sessions of browsers: a key opened once, and from then on a cookie with a secret of its own.

A session acts with its key: it has the key's owner, tenant and scopes, and it ends when the key does. Each sign-in and
sign-out is an entry in the tenant's journal of people. Only a hash of the secret is kept. It knows no HTTP; the service
calls it (`api.session`, `api.access`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.access import Access, Credential, secret_hash
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.people.people_journal import Change, MakeAt, record
from stepkeep.operations.people.principals import revoked
from stepkeep.store.principals import NO_SECRET, ApiKey, SessionRow
from stepkeep.store.protocol import Store

LIFETIME: Final = 12 * 3600 * 1_000_000
"""How long a session lasts at most. A key that expires earlier ends it earlier."""

_COOKIE = re.compile(r"([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


def parse_session(cookie: str) -> Credential:
    """The parts of a session cookie. Its secret is hidden in the log of this process from now on."""
    found = _COOKIE.fullmatch(cookie)
    if found is None:
        raise InvalidInput("the session is not one. Sign in again: POST /session.")
    KNOWN.remember({f"of session {found[1]}": found[2]})
    return Credential(*found.groups())


def csrf_token(credential: Credential) -> str:
    """What a page shows to prove that it reads the answers of the service. It follows from the secret of the cookie."""
    return hmac.new(credential.secret.encode(), b"stepkeep csrf", hashlib.sha256).hexdigest()


class SessionAccess(Access):
    """The caller of a session: everything that its key may do, while both last."""

    def __init__(
        self,
        store: Store,
        credential: Credential,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        fresh_seconds: float | None = None,
    ) -> None:
        super().__init__(store, "default", "", None, monotonic, fresh_seconds=fresh_seconds)
        self.session: SessionRow | None = None
        self._cookie = credential

    async def open(self) -> None:
        """Check the cookie, the session and its key, with one answer for whichever part of the cookie is wrong."""
        found = await self._store.people.find_session(self._cookie.id)
        stored = NO_SECRET if found is None else found.secret_hash
        if not hmac.compare_digest(stored, secret_hash(self._cookie.secret)) or found is None:
            raise NotAllowed("the session is not valid here. Sign in again: POST /session.", "session_invalid")
        key = await self._store.people.find_key(found.key)
        if key is None:
            raise NotAllowed(f"the key {found.key} of the session is gone. Sign in again.", "key_unknown", found.owner)
        self.session, self.tenant, self.actor, self.key = found, key.tenant, key.owner, key
        self._store = self._store.for_tenant(key.tenant)
        await self._refresh()

    async def _refresh(self) -> None:
        await super()._refresh()
        assert self._hand is not None, "a session has a key"
        self._hand = replace(self._hand, is_session=True)
        row = await self._store.people.find_session(self._cookie.id)
        if row is None or row.ended_at is not None:
            self._forget()
            raise NotAllowed("the session has ended. Sign in again: POST /session.", "session_ended", self.actor)
        if row.expires_at <= await self._store.now():
            self._forget()
            raise NotAllowed("the session has expired. Sign in again: POST /session.", "session_expired", self.actor)


async def sign_in(store: Store, key: ApiKey, *, lifetime: int = LIFETIME) -> tuple[Credential, SessionRow]:
    """Open a session for a key that was authenticated. The credential is for the cookie and is kept nowhere."""
    made = Credential(secrets.token_hex(8), secrets.token_urlsafe(32))
    KNOWN.remember({f"of session {made.id}": made.secret})

    async def decide(now: int) -> MakeAt:
        def signed_in(at: int) -> Change:
            ends = at + lifetime if key.expires_at is None else min(key.expires_at, at + lifetime)
            row = SessionRow(
                tenant=key.tenant,
                id=made.id,
                owner=key.owner,
                key=key.id,
                secret_hash=secret_hash(made.secret),
                created_at=at,
                expires_at=ends,
            )
            detail = {"session": made.id, "expires_at": ends}
            return Change(event="signed_in", subject=key.owner, detail=detail, sessions=(row,))

        return signed_in

    change, _ = await record(store, Caller(key.tenant, key.owner, key.id), decide)
    return made, change.sessions[0]


async def sign_out(store: Store, access: SessionAccess) -> None:
    """End a session, everywhere and for good; and its key, if that was made for it."""
    row = access.session
    assert row is not None, "the session was opened"

    async def decide(now: int) -> MakeAt:
        found = await store.people.find_session(row.id)
        if found is None or found.ended_at is not None:
            raise NotAllowed("the session has ended already.", "session_ended", row.owner)
        key = await store.people.find_key(row.key)
        own = () if key is None or key.secret_hash != NO_SECRET or key.revoked_at is not None else (key,)

        def signed_out(at: int) -> Change:
            ended, keys = replace(found, ended_at=at), tuple(revoked(one, at, row.owner) for one in own)
            detail = {"session": row.id, **({"ended": [one.id for one in keys]} if keys else {})}
            return Change(event="signed_out", subject=row.owner, detail=detail, keys=keys, sessions=(ended,))

        return signed_out

    await record(store, access.caller()._replace(tenant=row.tenant), decide)


class SessionView(Answer, kw_only=True):
    """Whose session it is, and what it may do."""

    principal: str
    tenant: str
    scopes: list[str]
    csrf: Annotated[str | None, says("The value of `X-CSRF-Token`; null for a caller with a key instead of a session.")]
    expires_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None


def session_view(access: Access, credential: Credential | None, row: SessionRow | None) -> SessionView:
    """What a page needs to know: whose session it is, what it may do, and its token against forged requests."""
    key = access.key
    assert key is not None, "a caller of the service has a key"
    return SessionView(
        principal=key.owner,
        tenant=key.tenant,
        scopes=list(key.scopes),
        csrf=None if credential is None else csrf_token(credential),
        expires_at=instant(key.expires_at if row is None else row.expires_at),
    )
