"""API keys: create, rotate with an overlap, revoke, list. A key has a public id and a secret of 256 random bits.

The secret is part of one answer, when the key is made; only its hash is kept. Every key has an owner, which is the
actor of everything done with it. The engine's `keys` calls it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from stepkeep.errors import Conflict, InvalidInput, NotFound
from stepkeep.operations import validate
from stepkeep.operations.access import SCOPES, Access, Acting, Scope, key_text, secret_hash
from stepkeep.operations.instants import instant
from stepkeep.operations.people_journal import Change, MakeAt, record
from stepkeep.operations.principals import is_live, registered
from stepkeep.operations.quotas import NONE as NO_QUOTAS
from stepkeep.operations.quotas import Quotas
from stepkeep.secret_values import KNOWN
from stepkeep.store.principals import ApiKey
from stepkeep.store.protocol import Store


async def create_key(
    store: Store,
    tenant: str,
    owner: str,
    *,
    scopes: Iterable[str],
    expires_at: int | None,
    expires_in: int | None,
    quotas: Quotas = NO_QUOTAS,
    acting: Acting,
) -> dict[str, Any]:
    """Make a key for a principal. `secret` of the answer is the whole key; it is shown once and kept nowhere."""
    chosen = read_scopes(scopes)
    if expires_at is not None and expires_in is not None:
        raise InvalidInput("a key expires at a time or after a duration, not both.")
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)

    async def decide(now: int) -> MakeAt:
        row = await registered(store, tenant, owner)
        if row.disabled_at is not None:
            raise Conflict(f"{row.name} is disabled and gets no key.")
        ends = expires_at if expires_in is None else now + expires_in
        if ends is not None and ends <= now:
            raise InvalidInput("the key would have expired already: name a time in the future.")

        def made(at: int) -> Change:
            ends = expires_at if expires_in is None else at + expires_in
            key = _made(tenant, key_id, row.name, secret, chosen, at, ends, acting, quotas)
            detail = {"id": key_id, "scopes": list(chosen), **({} if ends is None else {"expires_at": ends})}
            detail |= {name: value for name, value in structs.asdict(quotas).items() if value is not None}
            return Change(event="key_created", subject=row.name, detail=detail, keys=(key,))

        return made

    change, now = await record(store, tenant, acting, decide)
    return _answer(change.keys[0], secret, now)


async def rotate_key(
    store: Store, tenant: str, access: Access, key_id: str, *, overlap: int, acting: Acting
) -> dict[str, Any]:
    """Replace a key by a new one with the same owner, scopes and lifetime; the old one ends after `overlap`."""
    name, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    wanted = validate.key("the id of the key", key_id)

    async def decide(now: int) -> MakeAt:
        old = await _find(store, tenant, wanted)
        _require_own(access, old, "keys.rotate")
        if not is_live(old, now):
            raise Conflict(f"key {old.id} has ended; create a new one for {old.owner}.")
        lifetime = None if old.expires_at is None else old.expires_at - old.created_at

        def made(at: int) -> Change:
            new_ends = None if lifetime is None else at + lifetime
            quotas = Quotas(max_concurrent_runs=old.max_concurrent_runs, max_requests_per_min=old.max_requests_per_min)
            new = _made(tenant, name, old.owner, secret, old.scopes, at, new_ends, acting, quotas)
            ends = at + overlap if old.expires_at is None else min(old.expires_at, at + overlap)
            return Change(
                event="key_rotated",
                subject=old.owner,
                detail={"id": name, "replaces": old.id, "old_ends_at": ends},
                keys=(replace(new, replaces=old.id), replace(old, expires_at=ends)),
            )

        return made

    change, now = await record(store, tenant, acting, decide)
    return {**_answer(change.keys[0], secret, now), "replaced": key_view(change.keys[1], now)}


async def revoke_key(store: Store, tenant: str, access: Access, key_id: str, *, acting: Acting) -> dict[str, Any]:
    """End a key now. Decisions refuse it from this moment on."""
    wanted = validate.key("the id of the key", key_id)

    async def decide(now: int) -> MakeAt:
        old = await _find(store, tenant, wanted)
        _require_own(access, old, "keys.revoke")
        if old.revoked_at is not None:
            raise Conflict(f"key {old.id} was revoked already, by {old.revoked_by}.")

        def made(at: int) -> Change:
            ended = replace(old, revoked_at=at, revoked_by=acting["actor"])
            return Change(event="key_revoked", subject=old.owner, detail={"id": old.id}, keys=(ended,))

        return made

    change, now = await record(store, tenant, acting, decide)
    return {"key": key_view(change.keys[0], now)}


async def list_keys(store: Store, tenant: str, owner: str | None = None) -> dict[str, Any]:
    """Keys without their secrets, newest first."""
    now = await store.now()
    found = await store.people.list_keys(tenant)
    return {"keys": [key_view(one, now) for one in found if owner in (None, one.owner)]}


def key_view(row: ApiKey, now: int) -> dict[str, Any]:
    state = "revoked" if row.revoked_at is not None else "live" if is_live(row, now) else "expired"
    return {
        "id": row.id,
        "owner": row.owner,
        "state": state,
        "scopes": list(row.scopes),
        "created_at": instant(row.created_at),
        "created_by": row.created_by,
        "expires_at": instant(row.expires_at),
        "revoked_at": instant(row.revoked_at),
        "revoked_by": row.revoked_by,
        "replaces": row.replaces,
        "max_concurrent_runs": row.max_concurrent_runs,
        "max_requests_per_min": row.max_requests_per_min,
    }


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
    tenant: str,
    key_id: str,
    owner: str,
    secret: str,
    scopes: tuple[str, ...],
    now: int,
    ends: int | None,
    acting: Acting,
    quotas: Quotas,
) -> ApiKey:
    KNOWN.remember({f"of key {key_id}": secret})
    return ApiKey(
        tenant=tenant,
        id=key_id,
        owner=owner,
        secret_hash=secret_hash(secret),
        scopes=scopes,
        created_at=now,
        created_by=acting["actor"],
        expires_at=ends,
        max_concurrent_runs=quotas.max_concurrent_runs,
        max_requests_per_min=quotas.max_requests_per_min,
    )


def _answer(row: ApiKey, secret: str, now: int) -> dict[str, Any]:
    return {"key": key_view(row, now), "secret": key_text(row.id, secret)}


async def _find(store: Store, tenant: str, key_id: str) -> ApiKey:
    found = await store.people.find_key(key_id)
    if found is None or found.tenant != tenant:
        raise NotFound(f"there is no key {key_id!a:.40} in tenant {tenant}.")
    return found


def _require_own(access: Access, key: ApiKey, operation: str) -> None:
    """A key without the scope admin changes keys of its own owner alone."""
    if access.owner != key.owner:
        access.require(Scope.ADMIN, operation=operation)
