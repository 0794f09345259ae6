"""The tables of people of the model database: the same reads and the same changes as those of the real stores.

Rows are frozen values under their keys. A change is one round trip, because it is one transaction. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from stepkeep.kernel.errors import Contended, InvariantBroken
from stepkeep.kernel.people.authority import Authority, Caller, MembershipKind
from stepkeep.store.audit import AuditStore, chained
from stepkeep.store.bounds import check_audit, check_people
from stepkeep.store.people import PeopleStore
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MakeChange,
    MembershipRow,
    PeopleChange,
    PeopleEntry,
    Principal,
    PrincipalKind,
    SealedPeopleEntry,
    SessionRow,
    Standing,
    SubjectKind,
    TenantRow,
    authorities_from,
    seal_people_entry,
)
from stepkeep.store.quotas import QuotaStore, Scope
from stepkeep.store.rows import (
    AuditFilter,
    AuditHead,
    AuditRow,
    ChainedRow,
)

T = TypeVar("T")
Key = tuple[str, str]

WriteNow = Callable[[str, Callable[[int], None]], Awaitable[None]]
"""Locks the people of a tenant in a transaction of its own, and calls the function with the time."""


class Wire(Protocol):
    """The way to the database and back."""

    async def ask(self, statement: str, work: Callable[[], T]) -> T: ...


class PeopleRows:
    """Every committed row of people."""

    def __init__(self) -> None:
        self._disabled: dict[Key, list[tuple[int, bool]]] = {}
        self.tenants: dict[str, TenantRow] = {}
        self.principals: dict[Key, Principal] = {}
        self.memberships: dict[Key, MembershipRow] = {}
        self.delegations: dict[Key, DelegationRow] = {}
        self.keys: dict[Key, ApiKey] = {}
        self.sessions: dict[Key, SessionRow] = {}
        self.journal: dict[str, list[SealedPeopleEntry]] = {}
        self.audit: list[ChainedRow] = []
        self.audit_heads: dict[str, AuditHead] = {}
        self.quotas: dict[tuple[str, str, str], int] = {}

    def begin(self, tenant: str, at: int, event: str, subject: str, detail: dict[str, Any], **rows: Any) -> None:
        """Write what is there before anything happens, with its entry."""
        entries = self.journal.get(tenant, [])
        entry = PeopleEntry(tenant, len(entries) + 1, at, event, subject, "root", detail)
        self.write(PeopleChange(entry=seal_people_entry(entry, entries[-1] if entries else None), **rows))

    def register(self, tenant: str, name: str, kind: PrincipalKind, at: int) -> None:
        """The account of a person or a service that is there before anything happens."""
        row = Principal(tenant=tenant, name=name, kind=kind, display="", folded=name, created_at=at, created_by="root")
        self.begin(tenant, at, "user_created", name, {"kind": kind}, principals=(row,))

    def write(self, change: PeopleChange) -> None:
        """Write a change as a whole, or refuse it as the schemas do."""
        check_people(change)
        entries = self.journal.setdefault(change.entry.tenant, [])
        if change.entry.seq <= len(entries):
            raise Contended("another change of people came first: run the whole again")
        for one in change.principals:
            same = [old for old in self.principals.values() if (old.tenant, old.folded) == (one.tenant, one.folded)]
            if any(old.name != one.name for old in same):
                raise Contended("there is a principal with a name that looks the same")
        ended = {
            *((type(row), row.tenant, row.id) for row in self.memberships.values() if row.revoked_at is not None),
            *((type(row), row.tenant, row.id) for row in self.delegations.values() if row.revoked_at is not None),
            *((type(row), row.tenant, row.id) for row in self.keys.values() if row.revoked_at is not None),
        }
        new: list[MembershipRow | DelegationRow | ApiKey] = [*change.memberships, *change.delegations, *change.keys]
        if any((type(row), row.tenant, row.id) in ended for row in new):
            raise InvariantBroken("what was revoked never changes")
        if any(one.delegator == one.delegate for one in change.delegations):
            raise InvariantBroken("a delegation is to another person")
        if any(_ends_later(one, self.keys.get((one.tenant, one.id))) for one in change.keys):
            raise InvariantBroken("a key never gets a later end")
        if any(_is_ended(self.sessions.get((one.tenant, one.id))) for one in change.sessions):
            raise InvariantBroken("a session ends once")
        entries.append(change.entry)
        for row in change.tenants:
            self.tenants[row.name] = replace(self.tenants.get(row.name, row), vouching=row.vouching)
        for who in change.principals:
            old = self.principals.get((who.tenant, who.name), who)
            self.principals[who.tenant, who.name] = replace(
                old, display=who.display, disabled_at=who.disabled_at, disabled_by=who.disabled_by
            )
        self.memberships |= {(one.tenant, one.id): one for one in change.memberships}
        self.delegations |= {(one.tenant, one.id): one for one in change.delegations}
        self.keys |= {(one.tenant, one.id): one for one in change.keys}
        self.sessions |= {(one.tenant, one.id): one for one in change.sessions}
        self._note_disabled(change)

    def _note_disabled(self, change: PeopleChange) -> None:
        for who in change.principals:
            told = self._disabled.setdefault((who.tenant, who.name), [])
            told.append((change.entry.at, who.disabled_at is not None))

    def disabled_at(self, tenant: str, name: str, at: int) -> bool:
        """Whether an account was disabled on record throughout this moment."""
        before = [is_disabled for moment, is_disabled in self._disabled.get((tenant, name), ()) if moment < at]
        at_once = any(moment == at for moment, _ in self._disabled.get((tenant, name), ()))
        return bool(before) and before[-1] and not at_once

    def authorities(self, callers: Sequence[Caller]) -> dict[Caller, Authority]:
        """What callers bring to a decision."""
        standing: dict[Key, Standing] = {}
        for tenant in {caller.tenant for caller in callers}:
            vouching = self.tenants[tenant].vouching if tenant in self.tenants else None
            names = {name for owner, name in self.principals if owner == tenant}
            for name in names | {caller.actor for caller in callers if caller.tenant == tenant}:
                row = self.principals.get((tenant, name))
                disabled = row is not None and row.disabled_at is not None
                is_service = row is not None and row.kind is PrincipalKind.SERVICE
                standing[tenant, name] = Standing(row is not None, disabled, is_service, vouching)
        return authorities_from(
            callers,
            standing,
            sorted(self.memberships.values(), key=lambda one: (one.granted_at, one.id)),
            sorted(self.delegations.values(), key=lambda one: (one.granted_at, one.id)),
            self.keys.values(),
        )


def _is_ended(old: SessionRow | None) -> bool:
    return old is not None and old.ended_at is not None


def _ends_later(new: ApiKey, old: ApiKey | None) -> bool:
    if old is None or old.expires_at is None:
        return False
    return new.expires_at is None or new.expires_at > old.expires_at


class ModelAudit(AuditStore):
    """`AuditStore` on a list of rows, and the ends of their chains."""

    def __init__(self, rows: list[ChainedRow], heads: dict[str, AuditHead], wire: Wire) -> None:
        self._rows, self._heads, self._wire = rows, heads, wire

    async def append(self, rows: Sequence[AuditRow]) -> None:
        check_audit(rows)

        def work() -> None:
            sealed, ends = chained(rows, self._heads)
            self._rows.extend(sealed)
            self._heads.update({end.tenant: end for end in ends})

        await self._wire.ask("append audit", work)

    async def read_head(self, tenant: str) -> AuditHead | None:
        return await self._wire.ask("read audit", lambda: self._heads.get(tenant))

    async def read_chain(self, tenant: str, after: int, limit: int) -> list[ChainedRow]:
        def look() -> list[ChainedRow]:
            return [row for row in self._rows if row.tenant == tenant and (row.seq or 0) > after][:limit]

        return await self._wire.ask("read audit", look)

    async def count_unchained(self, tenant: str, since: int, limit: int) -> int:
        return 0

    async def read(self, wanted: AuditFilter) -> list[AuditRow]:
        def fits(one: AuditRow) -> bool:
            named = ("actor", "target", "operation", "outcome", "key")
            asked = [(getattr(wanted, name), getattr(one, name)) for name in named]
            before = (one.at, one.id) < (wanted.before, wanted.before_id)
            return (
                one.tenant == wanted.tenant
                and before
                and one.at >= wanted.since
                and all(want is None or want == has for want, has in asked)
            )

        def look() -> list[AuditRow]:
            found = sorted(filter(fits, self._rows), key=lambda one: (one.at, one.id), reverse=True)
            names = AuditRow.__struct_fields__
            return [AuditRow(**{name: getattr(one, name) for name in names}) for one in found[: wanted.limit]]

        return await self._wire.ask("read audit", look)

    async def forget(self, tenant: str, before: int, limit: int) -> int:
        def work() -> int:
            own = [one for one in self._rows if one.tenant == tenant]
            gone = list(takewhile(lambda one: one.at < before, own))[:limit]
            for one in gone:
                self._rows.remove(one)
                self._heads[tenant] = replace(self._heads[tenant], forgotten=one.seq or 0, anchor=one.hash or "")
            return len(gone)

        return await self._wire.ask("forget audit", work)


class ModelQuotas(QuotaStore):
    """`QuotaStore` on a dict of places. `is_live` tells whether a run exists, and has not ended."""

    def __init__(
        self, places: dict[tuple[str, str, str], int], wire: Wire, is_live: Callable[[str, str], bool | None]
    ) -> None:
        self._places, self._wire, self._is_live = places, wire, is_live

    async def take(self, tenant: str, run_id: str, scopes: Sequence[Scope], now: int, patience: int) -> str | None:
        def work() -> str | None:
            for name, most in sorted(scopes):
                held = [place for place in self._places if place[:2] == (tenant, name)]
                for place in held:
                    live = self._is_live(tenant, place[2])
                    if live is False or (live is None and self._places[place] < now - patience):
                        del self._places[place]
                if sum(place[:2] == (tenant, name) for place in self._places) >= most:
                    return name
            self._places.update({(tenant, name, run_id): now for name, _ in scopes})
            return None

        return await self._wire.ask("take quota", work)

    async def drop(self, tenant: str, run_id: str, scopes: Sequence[Scope]) -> None:
        def work() -> None:
            for name, _ in scopes:
                self._places.pop((tenant, name, run_id), None)

        await self._wire.ask("drop quota", work)


class ModelPeople(PeopleStore):
    """`PeopleStore` on the rows of a model database."""

    def __init__(self, rows: PeopleRows, wire: Wire, write_now: WriteNow) -> None:
        self._rows, self._wire, self._write_now = rows, wire, write_now

    async def write(self, tenant: str, make: MakeChange) -> None:
        await self._write_now(tenant, lambda now: self._rows.write(make(now)))

    async def read_authorities(self, callers: Sequence[Caller]) -> dict[Caller, Authority]:
        return await self._look(lambda: self._rows.authorities(callers))

    async def read_head(self, tenant: str) -> SealedPeopleEntry | None:
        return await self._look(lambda: next(reversed(self._rows.journal.get(tenant, [])), None))

    async def read_journal(
        self, tenant: str, subject: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[SealedPeopleEntry]:
        def look() -> list[SealedPeopleEntry]:
            entries = [one for one in self._rows.journal.get(tenant, []) if one.seq > after]
            return [one for one in entries if subject is None or one.subject == subject][:limit]

        return await self._look(look)

    async def read_journal_before(
        self, tenant: str, at: int, seq: int, since: int = 0, limit: int = 1000
    ) -> list[SealedPeopleEntry]:
        def look() -> list[SealedPeopleEntry]:
            entries = [one for one in self._rows.journal.get(tenant, []) if since <= one.at]
            older = [one for one in entries if (one.at, one.seq) < (at, seq)]
            return sorted(older, key=lambda one: (one.at, one.seq), reverse=True)[:limit]

        return await self._look(look)

    async def list_tenants(self, after: str = "", limit: int = 1000) -> list[TenantRow]:
        return await self._look(
            lambda: [row for name, row in sorted(self._rows.tenants.items()) if name > after][:limit]
        )

    async def list_tenant_names(self, limit: int = 1000) -> list[str]:
        return await self._look(lambda: sorted(self._rows.tenants)[:limit])

    async def read_tenant(self, name: str) -> TenantRow | None:
        return await self._look(lambda: self._rows.tenants.get(name))

    async def list_principals(self, tenant: str, after: str = "", limit: int = 1000) -> list[Principal]:
        def look() -> list[Principal]:
            rows = sorted(self._rows.principals.items())
            return [row for (owner, name), row in rows if owner == tenant and name > after][:limit]

        return await self._look(look)

    async def find_principal(self, tenant: str, name: str) -> Principal | None:
        return await self._look(lambda: self._rows.principals.get((tenant, name)))

    async def read_memberships(self, tenant: str, kind: SubjectKind, subject: str) -> list[MembershipRow]:
        wanted = (tenant, kind, subject)
        return await self._memberships(lambda one: (one.tenant, one.subject_kind, one.subject) == wanted)

    async def read_members(self, tenant: str, kind: MembershipKind, name: str) -> list[MembershipRow]:
        return await self._memberships(lambda one: (one.tenant, one.kind, one.name) == (tenant, kind, name))

    async def read_delegations(self, tenant: str, person: str) -> list[DelegationRow]:
        return await self._delegations(lambda one: one.tenant == tenant and person in (one.delegator, one.delegate))

    async def list_memberships(self, tenant: str) -> list[MembershipRow]:
        return await self._memberships(lambda one: one.tenant == tenant)

    async def list_delegations(self, tenant: str, *, ended: bool = False) -> list[DelegationRow]:
        return await self._delegations(lambda one: one.tenant == tenant and (ended or one.revoked_at is None))

    async def list_keys(self, tenant: str) -> list[ApiKey]:
        def look() -> list[ApiKey]:
            mine = [one for one in self._rows.keys.values() if one.tenant == tenant]
            return sorted(mine, key=lambda one: (-one.created_at, one.id))

        return await self._look(look)

    async def find_key(self, key_id: str) -> ApiKey | None:
        return await self._look(lambda: next((one for one in self._rows.keys.values() if one.id == key_id), None))

    async def find_session(self, session_id: str) -> SessionRow | None:
        return await self._look(
            lambda: next((one for one in self._rows.sessions.values() if one.id == session_id), None)
        )

    async def list_sessions(self, tenant: str, key_id: str) -> list[SessionRow]:
        def look() -> list[SessionRow]:
            mine = [one for one in self._rows.sessions.values() if (one.tenant, one.key) == (tenant, key_id)]
            return sorted((one for one in mine if one.ended_at is None), key=lambda one: one.id)

        return await self._look(look)

    async def _memberships(self, fits: Callable[[MembershipRow], bool]) -> list[MembershipRow]:
        rows = self._rows.memberships
        return await self._look(
            lambda: sorted(filter(fits, rows.values()), key=lambda one: (one.granted_at, one.id)),
        )

    async def _delegations(self, fits: Callable[[DelegationRow], bool]) -> list[DelegationRow]:
        rows = self._rows.delegations
        return await self._look(
            lambda: sorted(filter(fits, rows.values()), key=lambda one: (one.granted_at, one.id)),
        )

    async def _look(self, look: Callable[[], T]) -> T:
        return await self._wire.ask("read people", look)
