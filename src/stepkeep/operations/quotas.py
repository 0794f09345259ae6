"""Quotas of keys and tenants: unfinished runs, counted in the database, and requests a minute, counted in a process.

A place for a run is taken in a transaction of its own before the start, under a lock, and given back if no run was
created. So there are never more unfinished runs than a quota allows, also among processes; a process that is killed
between the two keeps its place for `PATIENCE`. Starts without a key have no quota. `Starter` and the service call it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from stepkeep.errors import ConnectionLost, InvalidInput, QuotaExceeded
from stepkeep.operations.settings import SettingKind, change_setting, read_setting
from stepkeep.operations.shared_reads import SharedReads
from stepkeep.store.protocol import Store
from stepkeep.store.quotas import Scope

PATIENCE: Final = 60 * 1_000_000
"""How long a place is kept for a run that does not exist yet (microseconds)."""
FRESH_SECONDS: Final = 0.5
"""For how long a process goes by the quotas of a tenant that it has read."""
MOST_QUOTA: Final = 1_000_000_000
MOST_KNOWN: Final = 10_000
MINUTE: Final = 60.0
TENANT: Final = "tenant"


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """What a key or a tenant may use at most; None: no limit."""

    max_concurrent_runs: int | None = None
    max_requests_per_min: int | None = None


NONE: Final = Quotas()


def read_quota(what: str, given: object) -> int | None:
    """A quota: a whole number from 1 on, or None."""
    if given is None:
        return None
    if type(given) is not int or not 1 <= given <= MOST_QUOTA:
        raise InvalidInput(f"{what} is a whole number from 1 to {MOST_QUOTA:,}, or None for no limit.")
    return given


async def set_tenant_quotas(store: Store, tenant: str, quotas: Quotas, *, actor: str) -> dict[str, Any]:
    """Save the quotas of a tenant, which count for all its keys together."""
    content = {name: value for name, value in msgspec.structs.asdict(quotas).items() if value is not None} or None
    await change_setting(store, tenant, SettingKind.QUOTA, TENANT, lambda before: content, actor=actor)
    return {"tenant": tenant, "quotas": msgspec.structs.asdict(quotas)}


async def tenant_quotas(store: Store, tenant: str) -> Quotas:
    found = await read_setting(store, tenant, SettingKind.QUOTA, TENANT)
    return NONE if found is None else msgspec.convert(found, Quotas)


class QuotaKeeper:
    """The quotas that a process knows, and the places that its starts take."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self.default = NONE
        """What counts for keys without a quota of their own."""
        self._keys: OrderedDict[str, Quotas] = OrderedDict()
        self._tenants: OrderedDict[str, tuple[float, Quotas]] = OrderedDict()
        self._reads: SharedReads[str, Quotas] = SharedReads(self._read_tenant)

    async def of_key(self, key_id: str) -> Quotas:
        """The quotas of a key, which never change."""
        known = self._keys.get(key_id)
        if known is None:
            row = await self._store.people.find_key(key_id)
            known = (
                NONE
                if row is None
                else Quotas(max_concurrent_runs=row.max_concurrent_runs, max_requests_per_min=row.max_requests_per_min)
            )
            _remember(self._keys, key_id, known)
        return known

    async def of_tenant(self, tenant: str) -> Quotas:
        """The quotas of a tenant, as of at most `FRESH_SECONDS` ago."""
        read_at, known = self._tenants.get(tenant, (float("-inf"), NONE))
        return known if self._monotonic() - read_at < FRESH_SECONDS else await self._reads.current(tenant)

    async def _read_tenant(self, tenant: str) -> Quotas:
        now = self._monotonic()
        known = await tenant_quotas(self._store, tenant)
        _remember(self._tenants, tenant, (now, known))
        return known

    @asynccontextmanager
    async def place(self, tenant: str, key: str | None, run_id: str) -> AsyncIterator[Callable[[str], None]]:
        """A place for a run while it is created. Tell the id of the run that there is now: if it is another one, or
        none is told, the place is given back."""
        scopes = [] if key is None else await self._scopes(tenant, key)
        made: list[str] = []
        if scopes:
            full = await self._store.quotas.take(tenant, run_id, scopes, await self._store.now(), PATIENCE)
            if full is not None:
                raise _exceeded(full, scopes)
        try:
            yield made.append
        except (ConnectionLost, asyncio.CancelledError):
            made.append(run_id)  # it may have been created: the next start looks
            raise
        finally:
            if scopes and made != [run_id]:
                await self._store.quotas.drop(tenant, run_id, scopes)

    async def _scopes(self, tenant: str, key: str) -> list[Scope]:
        own = (await self.of_key(key)).max_concurrent_runs or self.default.max_concurrent_runs
        whole = (await self.of_tenant(tenant)).max_concurrent_runs
        return [Scope(name, most) for name, most in ((f"key {key}", own), (TENANT, whole)) if most is not None]


def _exceeded(full: str, scopes: list[Scope]) -> QuotaExceeded:
    most = next(scope.most for scope in scopes if scope.name == full)
    whose = "the tenant" if full == TENANT else full
    return QuotaExceeded(
        f"{whose} has {most} unfinished runs, which is its quota (max_concurrent_runs). Wait until one has ended.",
        "max_concurrent_runs",
        retry_after=1,
    )


class RequestBuckets:
    """Requests a minute: a bucket for each key and tenant that holds a minute's worth and refills evenly."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, per_minute: int) -> int:
        """Take one request; returns how many are left at once. Raises QuotaExceeded with the seconds to wait."""
        now = self._monotonic()
        left, since = self._left.get(name, (float(per_minute), now))
        left = min(float(per_minute), left + (now - since) * per_minute / MINUTE)
        if left < 1:
            wait = int((1 - left) * MINUTE / per_minute) + 1
            raise QuotaExceeded(
                f"{name} has used its quota of {per_minute} requests a minute (max_requests_per_min). Wait {wait} s.",
                "max_requests_per_min",
                retry_after=wait,
            )
        _remember(self._left, name, (left - 1, now))
        return int(left - 1)


def _remember(known: OrderedDict[str, Any], name: str, value: Any) -> None:
    known[name] = value
    known.move_to_end(name)
    while len(known) > MOST_KNOWN:
        known.popitem(last=False)
