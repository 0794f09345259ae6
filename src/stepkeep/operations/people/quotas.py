"""Quotas of keys and tenants: unfinished runs and rows, counted in the database, and rates, counted in a process.

A place for a run is taken in a transaction of its own before the start, under a lock, and given back if no run was
created. So there are never more unfinished runs than a quota allows, also among processes; a process that is killed
between the two keeps its place for `PATIENCE`. Rows of a tenant are counted now and then, never by its commits: a
process counts what it added since, and looks again before that uses up a good part of the room (`Use`). So several
processes may go beyond a quota by a part of it. Calls without a key have no quota. `Starter` and the service call it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from stepkeep.kernel.errors import ConnectionLost, InvalidInput, QuotaExceeded
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.answers import Answer
from stepkeep.operations.pipeline.shared_reads import SharedReads
from stepkeep.operations.settings import SettingKind, change_setting, read_setting
from stepkeep.store.protocol import Store
from stepkeep.store.quotas import Scope

PATIENCE: Final = 60 * 1_000_000
"""How long a place is kept for a run that does not exist yet (microseconds)."""
FRESH_SECONDS: Final = 0.5
"""For how long a process goes by the quotas of a tenant that it has read."""
MOST_QUOTA: Final = 1_000_000_000
MOST_BYTES: Final = 1 << 50
Quota = Annotated[int, Meta(ge=1, le=MOST_QUOTA)]
FRESH_USE_SECONDS: Final = 60.0
"""For how long a process goes by the rows of a tenant that it has counted."""
LOOK_SECONDS: Final = 1.0
"""How often it counts at most, however much is added."""
MOST_KNOWN: Final = 10_000
MINUTE: Final = 60.0
TENANT: Final = "tenant"


class Quotas(Answer, kw_only=True):
    """What a key or a tenant may use at most; None: no limit of its own. Keys have the first two."""

    max_concurrent_runs: int | None = None
    max_requests_per_min: int | None = None
    max_kept_messages: int | None = None
    max_kept_message_bytes: int | None = None
    max_triggers: int | None = None
    max_definitions: int | None = None
    max_definition_bytes: int | None = None
    max_settings: int | None = None
    max_people: int | None = None
    max_stream_rows: int | None = None
    max_stream_bytes: int | None = None
    max_notes_per_hour: int | None = None
    max_bytes_per_hour: int | None = None


class TenantQuotas(Answer, kw_only=True):
    """The quotas of a tenant; null where nothing is set, and a default counts if there is one."""

    tenant: str
    quotas: Quotas


NONE: Final = Quotas()

DEFAULTS: Final = Quotas(
    max_kept_messages=100_000,
    max_kept_message_bytes=1 << 30,
    max_triggers=1_000,
    max_definitions=10_000,
    max_definition_bytes=1 << 30,
    max_settings=100_000,
    max_people=100_000,
    max_stream_rows=10_000_000,
    max_stream_bytes=8 << 30,
    max_notes_per_hour=10_000,
    max_bytes_per_hour=8 << 30,
)
"""What counts for a tenant without quotas of its own. Those that keys have, too, have no default here."""

ROWS: Final[dict[str, tuple[str, str | None, str]]] = {
    "messages": ("max_kept_messages", "max_kept_message_bytes", "Start the runs they are for, or drop some."),
    "triggers": ("max_triggers", None, "Remove some."),
    "definitions": ("max_definitions", "max_definition_bytes", "An operator can raise it: stepkeep tenants quotas."),
    "settings": ("max_settings", None, "An operator can raise it: stepkeep tenants quotas."),
    "people": ("max_people", None, "An operator can raise it: stepkeep tenants quotas."),
    "streams": ("max_stream_rows", "max_stream_bytes", "Delete ended runs, or let handlers write less."),
}
"""Rows that are counted: the quotas of their number and of their bytes, and what to do."""

ADDS: Final[dict[str, str]] = {
    **dict.fromkeys(("publish", "publish_schema"), "definitions"),
    "triggers.add": "triggers",
    **dict.fromkeys(("publish_policy", "hooks.add", "network.allow", "slots.set", "resources.set"), "settings"),
    **dict.fromkeys(("users.create", "users.grant", "users.delegate", "keys.create", "keys.rotate"), "people"),
}
"""Operations that add such rows. Messages are counted where they are kept."""


def read_quota(what: str, given: object) -> int | None:
    """A quota: a whole number from 1 on, or None."""
    if given is None:
        return None
    most = MOST_BYTES if "bytes" in what else MOST_QUOTA
    if type(given) is not int or not 1 <= given <= most:
        raise InvalidInput(f"{what} is a whole number from 1 to {most:,}, or None for no limit.")
    return given


async def set_tenant_quotas(store: Store, quotas: Quotas, *, caller: Caller) -> TenantQuotas:
    """Save the quotas of a tenant, which count for all its keys together."""
    content = {name: value for name, value in msgspec.structs.asdict(quotas).items() if value is not None} or None
    await change_setting(store, SettingKind.QUOTA, TENANT, lambda before: content, caller=caller)
    return TenantQuotas(tenant=caller.tenant, quotas=quotas)


async def tenant_quotas(store: Store, tenant: str) -> Quotas:
    found = await read_setting(store, tenant, SettingKind.QUOTA, TENANT)
    return NONE if found is None else msgspec.convert(found, Quotas)


class Use:
    """The rows of one kind that a tenant has, as of the last look, and what this process added since."""

    def __init__(self, count: int, size_bytes: int, at: float) -> None:
        self.count, self.size_bytes, self.at = count, size_bytes, at
        self.added = self.added_bytes = 0

    def is_fresh(self, most: int, most_bytes: int, now: float) -> bool:
        """Whether what was added is small beside the room that there was."""
        room, room_bytes = (most - self.count) // 8, (most_bytes - self.size_bytes) // 8
        is_little = self.added <= room and self.added_bytes <= room_bytes
        return now - self.at < (FRESH_USE_SECONDS if is_little else LOOK_SECONDS)


class QuotaKeeper:
    """The quotas that a process knows, and the places that its starts take."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self.default = NONE
        """What counts for keys without a quota of their own."""
        self._keys: OrderedDict[str, tuple[str, Quotas]] = OrderedDict()
        self._tenants: OrderedDict[str, tuple[float, Quotas]] = OrderedDict()
        self._reads: SharedReads[str, Quotas] = SharedReads(self._read_tenant)
        self._uses: OrderedDict[str, Use] = OrderedDict()
        self._looks: SharedReads[tuple[str, str], Use] = SharedReads(self._look)

    async def of_key(self, key_id: str) -> tuple[str, Quotas]:
        """The line of a key, whose keys count together, and its quotas; neither ever changes."""
        known = self._keys.get(key_id)
        if known is None:
            row = await self._store.people.find_key(key_id)
            known = (
                (key_id, NONE)
                if row is None
                else (
                    row.line,
                    Quotas(max_concurrent_runs=row.max_concurrent_runs, max_requests_per_min=row.max_requests_per_min),
                )
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

    async def add(self, tenant: str, kind: str, size_bytes: int = 0) -> None:
        """Count a row that a caller with a key is about to add; QuotaExceeded if there is no room for it."""
        name, name_bytes, advice = ROWS[kind]
        quotas, now = await self.of_tenant(tenant), self._monotonic()
        most = _limit(quotas, name)
        most_bytes = MOST_BYTES if name_bytes is None else _limit(quotas, name_bytes)
        use = self._uses.get(f"{tenant} {kind}")
        if use is None or not use.is_fresh(most, most_bytes, now):
            use = await self._looks.current((tenant, kind))
        for quota, used, added, allowed in (
            (name, use.count + use.added, 1, most),
            (name_bytes, use.size_bytes + use.added_bytes, size_bytes, most_bytes),
        ):
            if quota is not None and used + added > allowed:
                raise QuotaExceeded(
                    f"tenant {tenant} has used up its quota of {allowed:,} ({quota}). {advice}", quota, retry_after=60
                )
        use.added, use.added_bytes = use.added + 1, use.added_bytes + size_bytes

    async def _look(self, what: tuple[str, str]) -> Use:
        tenant, kind = what
        quotas, at = await self.of_tenant(tenant), self._monotonic()
        count, size_bytes = await self._store.measure_use(tenant, kind, _limit(quotas, ROWS[kind][0]) + 1)
        _remember(self._uses, f"{tenant} {kind}", use := Use(count, size_bytes, at))
        return use

    @asynccontextmanager
    async def reserve(self, caller: Caller, run_id: str) -> AsyncIterator[Callable[[str], None]]:
        """A place for a run while it is created. Tell the id of the run that there is now: if it is another one, or
        none is told, the place is given back."""
        tenant, scopes = caller.tenant, await self._scopes(caller)
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

    async def _scopes(self, caller: Caller) -> list[Scope]:
        if caller.key is None:
            return []
        line, quotas = await self.of_key(caller.key)
        own = quotas.max_concurrent_runs or self.default.max_concurrent_runs
        whole = (await self.of_tenant(caller.tenant)).max_concurrent_runs
        return [Scope(name, most) for name, most in ((f"key {line}", own), (TENANT, whole)) if most is not None]


def _limit(quotas: Quotas, name: str) -> int:
    found: int = getattr(quotas, name) or getattr(DEFAULTS, name)
    return found


def hourly_limits(quotas: Quotas, operation: str, size_bytes: int) -> list[tuple[str, int, int]]:
    """What a request counts for by the hour: the quota, how many there may be, and how many it uses."""
    found = [("max_bytes_per_hour", _limit(quotas, "max_bytes_per_hour"), size_bytes)] if size_bytes else []
    if operation == "interventions.annotate":
        found.append(("max_notes_per_hour", _limit(quotas, "max_notes_per_hour"), 1))
    return found


def _exceeded(full: str, scopes: list[Scope]) -> QuotaExceeded:
    most = next(scope.most for scope in scopes if scope.name == full)
    whose = "the tenant" if full == TENANT else full
    return QuotaExceeded(
        f"{whose} has {most} unfinished runs, which is its quota (max_concurrent_runs). Wait until one has ended.",
        "max_concurrent_runs",
        retry_after=1,
    )


class RequestBuckets:
    """Rates: a bucket for each key and tenant that holds what is allowed in a time and refills evenly."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, per_minute: int) -> int:
        """Take one request; returns how many are left at once. Raises QuotaExceeded with the seconds to wait."""
        return self._take(name, name, per_minute, 1, MINUTE, "max_requests_per_min", "requests a minute")

    def take_hourly(self, tenant: str, quota: str, per_hour: int, used: int) -> None:
        """Take some of what a tenant may use in an hour."""
        said = quota.removeprefix("max_").replace("_per_", " per ")
        self._take(f"{tenant} {quota}", f"tenant {tenant}", per_hour, used, 60 * MINUTE, quota, said)

    def _take(self, name: str, whose: str, most: int, used: int, seconds: float, quota: str, said: str) -> int:
        now = self._monotonic()
        left, since = self._left.get(name, (float(most), now))
        left = min(float(most), left + (now - since) * most / seconds)
        if left < used:
            wait = int((used - left) * seconds / most) + 1
            raise QuotaExceeded(
                f"{whose} has used its quota of {most} {said} ({quota}). Wait {wait} s.", quota, retry_after=wait
            )
        _remember(self._left, name, (left - used, now))
        return int(left - used)


def _remember(known: OrderedDict[str, Any], name: str, value: Any) -> None:
    known[name] = value
    known.move_to_end(name)
    while len(known) > MOST_KNOWN:
        known.popitem(last=False)
