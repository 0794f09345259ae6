"""Which key may call which route: one table, authentication by API key, and the engine of the key's tenant.

A route that names no operation cannot be made, so that nothing is open by mistake. The OpenAPI document, the route
matrix of the tests and the docs read the same table. `routing` calls `Callers.admit` once for each request, after the
key is known and before the body is read: it counts the request and asks for the scopes of its operation.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from stepkeep.api.problems import UNAUTHENTICATED, ApiError, kind_of
from stepkeep.engine import AsyncEngine
from stepkeep.engine.groups import ActingEngine, TenantEngine
from stepkeep.kernel.errors import InvalidInput, NotAllowed, QuotaExceeded, StepkeepError
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.access import OPERATIONS, Access, Credential, Scope, parse_key, secret_hash
from stepkeep.operations.operation import addressed
from stepkeep.operations.people.audit import code_of, entry
from stepkeep.operations.people.keys import SessionAccess
from stepkeep.operations.people.quotas import ADDS, ROWS, RequestBuckets, hourly_limits
from stepkeep.store.principals import NO_SECRET, ApiKey

OPEN: Final = "open"
"""In the table: anyone may call the route, without a key."""

ANY_KEY: Final = "any key"
"""In the table: any key or session will do; the route calls no operation of an engine."""

ROUTES: dict[str, str] = {f"{one.method} {one.path.replace(':path}', '}')}": one.name for one in addressed()}
"""Method and path of every route, and the operation whose scopes it needs. `handwritten` adds its own."""

FRESH_SECONDS = 0.5
"""For how long the service goes by a key that it has read: a revoked key is refused within a second everywhere."""

MOST_CALLERS = 10_000
"""How many keys are remembered. A forgotten one is read again."""

MOST_ENGINES: Final = 1_000
"""Tenants whose engines are kept. An engine that is let go finishes what it has begun."""

CHALLENGE = "Send an API key: `Authorization: Bearer sk_ID_SECRET`. `stepkeep keys create` makes one."


def operation_of(method: str, path: str) -> str:
    """The operation of a route. A route without a row stops the service from starting."""
    found = ROUTES.get(f"{method} {path}")
    if found is None:
        raise LookupError(f"{method} {path} has no row in the table of routes (api/access.py), and is refused.")
    if found not in (OPEN, ANY_KEY) and found not in OPERATIONS:
        raise LookupError(f"{method} {path} names the operation {found}, which has no row in the table of scopes.")
    return found


@cache
def scopes_of(operation: str) -> tuple[Scope, ...]:
    """The scopes that a key needs for an operation, in their usual order; empty where any key will do."""
    needed = frozenset() if operation == ANY_KEY else OPERATIONS[operation]
    return tuple(scope for scope in Scope if scope in needed)


class TenantEngines:
    """The engines of a service, by tenant. Where the database keeps its role to one tenant at a time, each has its own,
    so that no transaction has batches of two; where the role sees all tenants, one engine serves all of them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._made: OrderedDict[str, TenantEngine] = OrderedDict()

    def of(self, tenant: str, *, keep: bool = True) -> AsyncEngine | TenantEngine:
        """The engine of this tenant. Without `keep`, for a tenant that no key has authenticated: a new one is used once
        and takes the place of no other."""
        if (found := self._made.get(tenant)) is not None:
            self._made.move_to_end(tenant)
            return found
        store = self._engine.store.for_tenant(tenant)
        if store is self._engine.store:
            return self._engine
        found = TenantEngine(self._engine, store, tenant)
        if keep:
            self._made[tenant] = found
            while len(self._made) > MOST_ENGINES:
                self._made.popitem(last=False)
        return found

    async def close(self) -> None:
        """Finish what the engines have begun. The store and the first engine are closed by their owner."""
        made, self._made = self._made, OrderedDict()
        for engine in made.values():
            await engine._finish()


class KeyHolder:
    """A key that was authenticated, and the engine of its tenant."""

    def __init__(self, engine: AsyncEngine | TenantEngine, access: Access, secret: str) -> None:
        self.access, self.quotas, self.store = access, engine.quotas, engine.store
        self._engine, self._secret = engine, secret

    def engine(self, admitted: str | None = None) -> ActingEngine:
        """The engine in the name of this key, which was admitted to an operation."""
        return ActingEngine(self._engine, self.access, admitted=admitted)

    def has(self, secret: str) -> bool:
        """Whether this is the secret of the key, compared in constant time."""
        return hmac.compare_digest(self._secret, secret_hash(secret))

    async def check(self) -> None:
        """Refuse a key that has ended since. Requests that arrive together share one look."""
        await self.access.check()


class Callers:
    """The keys that this process knows. The database decides; what is remembered here is at most half a second old."""

    def __init__(self, engine: AsyncEngine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._monotonic = engine, monotonic
        self.engines = TenantEngines(engine)
        self._known: OrderedDict[str, KeyHolder] = OrderedDict()
        self._nobody = KeyHolder(engine, engine.access, NO_SECRET)
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._buckets = RequestBuckets(monotonic)

    def tenant_of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The tenant of the key that a request names, if this process knows the key; nothing is checked."""
        given = next((value for name, value in headers if name == b"authorization"), b"")
        parts = given.split(b"_", 2)
        known = self._known.get(parts[1].decode("latin-1")) if len(parts) == 3 else None
        return "callers without a known key" if known is None else known.access.tenant

    async def authenticate(self, authorization: str | None) -> KeyHolder:
        """The caller that an Authorization header names; 401 with one answer, whatever is wrong with it."""
        credential = credential_of(authorization)
        access = lambda: Access(  # noqa: E731 - made only for a key that is not known
            self._engine.store, "default", "", credential, self._monotonic, fresh_seconds=FRESH_SECONDS
        )
        return await self._caller(credential.id, credential, access)

    async def authenticate_session(self, credential: Credential) -> KeyHolder:
        """The caller of a session, by the parts of its cookie."""
        access = lambda: SessionAccess(  # noqa: E731
            self._engine.store, credential, self._monotonic, fresh_seconds=FRESH_SECONDS
        )
        return await self._caller(f"session {credential.id}", credential, access)

    async def _caller(self, name: str, credential: Credential, access: Callable[[], Access]) -> KeyHolder:
        caller = self._known.get(name, self._nobody)
        try:
            if not caller.has(credential.secret):
                caller = await self._learn(name, credential, access())
            await caller.check()
        except NotAllowed as problem:
            self._known.pop(name, None)
            # The owner of a disabled account is not authenticated either.
            if kind_of(problem) is UNAUTHENTICATED or problem.rule == "disabled":
                raise ApiError(UNAUTHENTICATED, str(problem)) from None
            raise
        return caller

    async def admit(self, caller: KeyHolder, operation: str) -> tuple[int, int] | None:
        """Refuse a key that lacks a scope of the operation, or that has used its quota of requests. Returns how many
        it has a minute, and how many are left."""
        rate = await self._count(caller)
        caller.access.require(*scopes_of(operation), operation=operation)
        if (kind := ADDS.get(operation)) is not None and ROWS[kind][1] is None and caller.access.key is not None:
            await caller.quotas.add(caller.access.tenant, kind)
        return rate

    async def charge(self, caller: KeyHolder, operation: str, size_bytes: int) -> None:
        """Count the body of a request, and what it adds by the hour, for the tenant of its key."""
        if caller.access.key is None:
            return
        quotas = await caller.quotas.of_tenant(caller.access.tenant)
        for quota, most, used in hourly_limits(quotas, operation, size_bytes):
            self._buckets.take_hourly(caller.access.tenant, quota, most, used)
        if (kind := ADDS.get(operation)) is not None and ROWS[kind][1] is not None:
            await caller.quotas.add(caller.access.tenant, kind, size_bytes)

    async def _count(self, caller: KeyHolder) -> tuple[int, int] | None:
        """Count a request for the key and for the tenant. The default of the service counts for keys without a quota of
        their own."""
        key = caller.access.key
        if key is None:
            return None
        keeper = caller.quotas
        own = key.max_requests_per_min or keeper.default.max_requests_per_min
        whole = (await keeper.of_tenant(key.tenant)).max_requests_per_min
        if whole is not None:
            self._buckets.take(f"tenant {key.tenant}", whole)
        return None if own is None else (own, self._buckets.take(f"key {key.line}", own))

    async def note_refusal(
        self, caller: KeyHolder | None, authorization: str | None, operation: str, target: str, problem: Exception
    ) -> None:
        """Add a refused request to the audit log of its tenant. A key that nobody has belongs to none, and a key that
        is tried again and again, or beyond its quota, is noted once a second.

        For an unknown key the same work is done but for the last step: the answer must not come earlier.
        """
        code = problem.kind.code if isinstance(problem, ApiError) else code_of(problem)
        if caller is not None:
            tenant, actor, key = caller.access.tenant, caller.access.actor, caller.access.key
            key_id = None if key is None else key.id
        else:
            key_id, key = await self._find_key(authorization)
            tenant, actor = ("", "") if key is None else (key.tenant, key.owner)
        if key_id is None:
            return
        row = entry(caller=Caller(tenant, actor, key=key_id), operation=operation, target=target, code=code)
        log = (self._engine if key is None else self.engines.of(tenant)).access.audit_log
        is_again = False
        if caller is None or isinstance(problem, QuotaExceeded):
            now = self._monotonic()
            is_again = now - self._noted.get(key_id, float("-inf")) < 1
            self._noted[key_id] = self._noted[key_id] if is_again else now
            while len(self._noted) > MOST_CALLERS:
                self._noted.popitem(last=False)
        if log is not None and key is not None and not is_again:
            log.add(row)

    async def _find_key(self, authorization: str | None) -> tuple[str | None, ApiKey | None]:
        """The id that a request names, and the key that has it, whether its secret is right or not."""
        try:
            named = credential_of(authorization).id
            return named, await self._engine.store.people.find_key(named)
        except (ApiError, StepkeepError):
            return None, None

    def forget(self) -> None:
        """Read every key again before its next use: a key or a person was changed through this process."""
        self._known.clear()

    async def _learn(self, name: str, credential: Credential, access: Access) -> KeyHolder:
        await access.open()
        engine = self.engines.of(access.tenant)
        access.audit_log = engine.access.audit_log
        caller = KeyHolder(engine, access, secret_hash(credential.secret))
        self._known[name] = caller
        while len(self._known) > MOST_CALLERS:
            self._known.popitem(last=False)
        return caller


def credential_of(authorization: str | None) -> Credential:
    """The key in an Authorization header."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() != "bearer":
        raise ApiError(UNAUTHENTICATED, CHALLENGE)
    try:
        return parse_key(key)
    except InvalidInput:
        raise ApiError(UNAUTHENTICATED, CHALLENGE) from None
