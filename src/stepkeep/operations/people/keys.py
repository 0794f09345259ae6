"""API keys and sessions: create, rotate with an overlap, revoke, list.

A key has a public id and a secret of 256 random bits. A session of a browser is a key that was opened once; its cookie
has a secret of its own.

The secret of a key is part of one answer, when the key is made; only its hash is kept. Every key has an owner, which is
the actor of everything done with it. No caller gets a key that is worth more than its own
(`kernel.people.authority.hand_out`). The engine's `keys` calls it; sign-in by OIDC makes the key of a session here,
which has no secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType, structs
from msgspec.structs import replace

from stepkeep.definition import arguments
from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import Conflict, InvalidInput, NotAllowed, NotFound
from stepkeep.kernel.people.authority import ANY_WORK, Caller, WorkLimits, hand_out, is_administrator
from stepkeep.operations import validate
from stepkeep.operations.access import SCOPES, Access, Credential, Scope, key_text, secret_hash
from stepkeep.operations.answers import Answer, Moment, Next, says
from stepkeep.operations.instants import instant
from stepkeep.operations.people.people_journal import Change, MakeAt, record
from stepkeep.operations.people.principals import is_live, registered, revoked
from stepkeep.operations.people.quotas import NONE as NO_QUOTAS
from stepkeep.operations.people.quotas import Quotas
from stepkeep.store.principals import NO_SECRET, ApiKey, SessionRow, key_used
from stepkeep.store.protocol import Store


class Key(Answer, kw_only=True):
    """A key without its secret. `replaces`: the key that it was rotated from; `of_session`: made by a sign-in."""

    id: str
    owner: str
    state: Literal["live", "expired", "revoked"]
    scopes: list[str]
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    revoked_at: Moment | None
    revoked_by: str | None
    replaces: str | None
    of_session: bool
    max_concurrent_runs: int | None
    max_requests_per_min: int | None
    queues: list[str] | None
    handlers: list[str] | None


class MadeKey(Answer, kw_only=True):
    """A key with its secret, which is shown once, and the key that it replaces."""

    key: Key
    secret: str
    replaced: Key | UnsetType = UNSET


class RevokedKey(Answer, kw_only=True):
    """A key that was ended, the ids of those that replaced it and ended with it, and how many sessions did."""

    key: Key
    successors: list[str]
    sessions: int


class KeyList(Answer, kw_only=True):
    """Keys without their secrets, newest first."""

    keys: list[Key]  # type: ignore[assignment]  # the method of mappings ends with 1.0
    next: Next = UNSET


async def create_key(
    store: Store,
    owner: str,
    *,
    scopes: Iterable[str],
    expires_at: int | None,
    expires_in: int | None,
    quotas: Quotas = NO_QUOTAS,
    limits: WorkLimits = ANY_WORK,
    access: Access | None = None,
    caller: Caller,
) -> MadeKey:
    """Make a key for a principal. `secret` of the answer is the whole key; it is shown once and kept nowhere."""
    if expires_at is not None and expires_in is not None:
        raise InvalidInput("a key expires at a time or after a duration, not both.")
    secret = secrets.token_urlsafe(32)
    ends = expires_at, expires_in
    row, now = await _create(store, owner, secret, scopes, ends, quotas, limits, access, caller)
    return MadeKey(key=_view(row, now), secret=key_text(row.id, secret))


async def create_session_key(
    store: Store, owner: str, *, scopes: Iterable[str], lifetime: int, caller: Caller
) -> ApiKey:
    """Make a key for one session of a browser. It has no secret, so that it is used through its session alone."""
    row, _ = await _create(store, owner, None, scopes, (None, lifetime), NO_QUOTAS, ANY_WORK, None, caller)
    return row


async def _create(
    store: Store,
    owner: str,
    secret: str | None,
    scopes: Iterable[str],
    ends: tuple[int | None, int | None],
    quotas: Quotas,
    limits: WorkLimits,
    access: Access | None,
    caller: Caller,
) -> tuple[ApiKey, int]:
    chosen, key_id = read_scopes(scopes), secrets.token_hex(8)
    expires_at, expires_in = ends
    if limits != ANY_WORK and Scope.WORK not in chosen:
        raise InvalidInput("queues and handlers limit the scope work, which this key would not have.")

    async def decide(now: int) -> MakeAt:
        row = await registered(store, caller.tenant, owner)
        if row.disabled_at is not None:
            raise Conflict(f"{row.name} is disabled and gets no key.")
        ends = expires_at if expires_in is None else now + expires_in
        if ends is not None and ends <= now:
            raise InvalidInput("the key would have expired already: name a time in the future.")
        hand = None if access is None else await access.in_hand()

        def made(at: int) -> Change:
            ends = expires_at if expires_in is None else at + expires_in
            key = _made(key_id, row.name, secret, chosen, at, ends, caller, quotas, limits)
            if secret is not None:
                hand_out(hand, key_used(key))
            detail = {**_key_fields(key), **({"of_session": True} if secret is None else {})}
            return Change(event="key_created", subject=row.name, detail=detail, keys=(key,))

        return made

    change, now = await record(store, caller, decide)
    return change.keys[0], now


async def rotate_key(store: Store, access: Access, key_id: str, *, overlap: int, caller: Caller) -> MadeKey:
    """Replace a key by a new one with the same owner and scopes; the old one ends after `overlap`.

    The new one ends when the old one would have; one that an administrator makes has the same lifetime anew."""
    name, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    wanted = validate.key("the id of the key", key_id)

    async def decide(now: int) -> MakeAt:
        old, hand = await _find(store, caller.tenant, wanted), await access.in_hand()
        hand_out(hand, key_used(old))
        if not is_live(old, now):
            raise Conflict(f"key {old.id} has ended; create a new one for {old.owner}.")
        lifetime = None if old.expires_at is None else old.expires_at - old.created_at

        def made(at: int) -> Change:
            new_ends = old.expires_at if lifetime is None or not is_administrator(hand) else at + lifetime
            quotas = Quotas(max_concurrent_runs=old.max_concurrent_runs, max_requests_per_min=old.max_requests_per_min)
            new = _made(name, old.owner, secret, old.scopes, at, new_ends, caller, quotas, key_used(old).limits)
            new = replace(new, replaces=old.id, lineage=old.line)
            ends = at + overlap if old.expires_at is None else min(old.expires_at, at + overlap)
            return Change(
                event="key_rotated",
                subject=old.owner,
                detail={**_key_fields(new), "old_ends_at": ends},
                keys=(new, replace(old, expires_at=ends)),
            )

        return made

    change, now = await record(store, caller, decide)
    new, old = (_view(one, now) for one in change.keys)
    return MadeKey(key=new, secret=key_text(name, secret), replaced=old)


async def revoke_key(store: Store, access: Access, key_id: str, *, caller: Caller) -> RevokedKey:
    """End a key now, with the keys that replaced it and the sessions of all of them. Decisions refuse them from this
    moment on."""
    wanted = validate.key("the id of the key", key_id)

    async def decide(now: int) -> MakeAt:
        old = await _find(store, caller.tenant, wanted)
        if access.owner != old.owner:
            access.require(Scope.ADMIN, operation="keys.revoke")
        line = _line(old, await store.people.list_keys(caller.tenant))
        keys = [one for one in line if is_live(one, now) or (one is old and old.revoked_at is None)]
        if not keys:
            raise Conflict(f"key {old.id} was revoked already, by {old.revoked_by}.")
        sessions = [one for key in keys for one in await store.people.list_sessions(caller.tenant, key.id)]

        def made(at: int) -> Change:
            detail: dict[str, Any] = {"id": old.id}
            if later := [one.id for one in keys if one.id != old.id]:
                detail["ended"] = later
            if sessions:
                detail["sessions"] = [one.id for one in sessions]
            return Change(
                event="key_revoked",
                subject=old.owner,
                detail=detail,
                keys=tuple(revoked(one, at, caller.actor) for one in keys),
                sessions=tuple(replace(one, ended_at=at) for one in sessions),
            )

        return made

    change, now = await record(store, caller, decide)
    return RevokedKey(
        key=_view(await _find(store, caller.tenant, wanted), now),
        successors=[one.id for one in change.keys if one.id != wanted],
        sessions=sum(one.expires_at > now for one in change.sessions),
    )


def _line(first: ApiKey, keys: Iterable[ApiKey]) -> list[ApiKey]:
    """A key, and those that replaced it, through others too."""
    replaced: dict[str | None, list[ApiKey]] = {}
    for key in keys:
        replaced.setdefault(key.replaces, []).append(key)
    line = [first]
    for one in line:
        line += replaced.get(one.id, ())
    return line


async def list_keys(store: Store, tenant: str, owner: str | None = None) -> KeyList:
    """Keys without their secrets, newest first."""
    now = await store.now()
    found = await store.people.list_keys(tenant)
    return KeyList(keys=[_view(one, now) for one in found if owner in (None, one.owner)])


def _view(row: ApiKey, now: int) -> Key:
    return Key(
        id=row.id,
        owner=row.owner,
        state="revoked" if row.revoked_at is not None else "live" if is_live(row, now) else "expired",
        scopes=list(row.scopes),
        created_at=instant(row.created_at),
        created_by=row.created_by,
        expires_at=instant(row.expires_at),
        revoked_at=instant(row.revoked_at),
        revoked_by=row.revoked_by,
        replaces=row.replaces,
        of_session=row.secret_hash == NO_SECRET,
        max_concurrent_runs=row.max_concurrent_runs,
        max_requests_per_min=row.max_requests_per_min,
        queues=None if row.queues is None else list(row.queues),
        handlers=None if row.handlers is None else list(row.handlers),
    )


def read_limits(queues: Iterable[str] | None, handlers: Iterable[str] | None) -> WorkLimits:
    """The queues and handlers that a key is limited to; None: any."""
    return WorkLimits(queues=_limit("queue", queues), handlers=_limit("handler", handlers))


def _limit(what: str, given: Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    named = arguments.items(f"{what}s", given)
    if not named:
        raise InvalidInput(f"a key that is limited to {what}s names at least one. Leave it out for any {what}.")
    read = validate.queues if what == "queue" else validate.names
    return tuple(sorted(set(read(f"{what}s", named))))


def read_scopes(given: Iterable[str]) -> tuple[str, ...]:
    """Scopes of the closed list, in its order."""
    named = validate.names("scopes", given)
    for one in named:
        if one not in list(Scope):
            listed = ", ".join(f"{scope} ({meaning})" for scope, meaning in SCOPES.items())
            raise InvalidInput(f"{one!a:.40} is no scope. Choose from: {listed}.")
    if not named:
        raise InvalidInput(f"a key needs at least one scope: {', '.join(Scope)}.")
    return tuple(scope.value for scope in Scope if scope in named)


def _made(
    key_id: str,
    owner: str,
    secret: str | None,
    scopes: tuple[str, ...],
    now: int,
    ends: int | None,
    caller: Caller,
    quotas: Quotas,
    limits: WorkLimits,
) -> ApiKey:
    if secret is not None:
        KNOWN.remember({f"of key {key_id}": secret})
    return ApiKey(
        tenant=caller.tenant,
        id=key_id,
        owner=owner,
        secret_hash=NO_SECRET if secret is None else secret_hash(secret),
        lineage=f"sessions of {owner}" if secret is None else None,
        scopes=scopes,
        created_at=now,
        created_by=caller.actor,
        expires_at=ends,
        max_concurrent_runs=quotas.max_concurrent_runs,
        max_requests_per_min=quotas.max_requests_per_min,
        queues=limits.queues,
        handlers=limits.handlers,
    )


TOLD_OTHERWISE = frozenset({"tenant", "owner", "secret_hash", "created_at", "created_by"})


def _key_fields(row: ApiKey) -> Mapping[str, object]:
    """What the journal of people has about a new key. `secret` is a hash of the stored hash: it shows a changed one."""
    columns = structs.asdict(row).items()
    told = {name: value for name, value in columns if value is not None and name not in TOLD_OTHERWISE}
    return told | {"secret": hashlib.sha256(row.secret_hash.encode()).hexdigest()}


async def _find(store: Store, tenant: str, key_id: str) -> ApiKey:
    found = await store.people.find_key(key_id)
    if found is None or found.tenant != tenant:
        raise NotFound(f"there is no key {key_id!a:.40} in tenant {tenant}.")
    return found


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
