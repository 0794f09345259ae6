"""The tables of people for both stores, whose statements have the same names: reads, and what a decision loads.

A store adds how a statement reaches its database. Nothing here decides or knows SQL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

from stepkeep.kernel.people.authority import Authority, Caller, MembershipKind
from stepkeep.store.columns import person_reader
from stepkeep.store.part import Part
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MakeChange,
    MembershipRow,
    Principal,
    SealedPeopleEntry,
    SessionRow,
    Standing,
    SubjectKind,
    TenantRow,
    authorities_from,
)
from stepkeep.store.reading import first

T = TypeVar("T")
Pairs = Iterable[tuple[str, str]]
Rows = list[Any]

SAVES: dict[type, str] = {
    TenantRow: "save_tenant",
    Principal: "save_principal",
    MembershipRow: "save_membership",
    DelegationRow: "save_delegation",
    ApiKey: "save_key",
    SessionRow: "save_session",
}

tenant_from = person_reader(TenantRow)
principal_from = person_reader(Principal)
membership_from = person_reader(MembershipRow)
delegation_from = person_reader(DelegationRow)
key_from = person_reader(ApiKey)
session_from = person_reader(SessionRow)
entry_from = person_reader(SealedPeopleEntry)


def loading(callers: Sequence[Caller]) -> Generator[tuple[str, Pairs], Rows, dict[Caller, Authority]]:
    """The statements that read what callers bring to a decision, one after the other, and the result.

    Each statement takes pairs of a tenant and a name, and is answered with its rows.
    """
    if not callers:
        return {}
    persons = dict.fromkeys((caller.tenant, caller.actor) for caller in callers)
    delegations = [delegation_from(row) for row in (yield "load_delegations", persons)]
    persons |= dict.fromkeys((one.tenant, one.delegator) for one in delegations)
    standing = {
        (tenant, name): Standing(bool(is_registered), bool(is_disabled), bool(is_service), vouching)
        for tenant, name, is_registered, is_disabled, is_service, vouching in (yield "load_standing", persons)
    }
    memberships = [membership_from(row) for row in (yield "load_memberships", persons)]
    used = dict.fromkeys((caller.tenant, caller.key) for caller in callers if caller.key is not None)
    keys = [key_from(row) for row in (yield "load_keys", used)] if used else []
    return authorities_from(callers, standing, memberships, delegations, keys)


class PeopleStore(Part):
    """The tables of people. Lists are in the order of names, or of time."""

    def __init__(
        self,
        *part: Any,
        write: Callable[[str, MakeChange], Awaitable[None]],
        read_authorities: Callable[[Sequence[Caller]], Awaitable[dict[Caller, Authority]]],
    ) -> None:
        super().__init__(*part)
        self._write, self._authorities = write, read_authorities

    async def write(self, tenant: str, make: MakeChange) -> None:
        """Lock the people of a tenant, read the clock, and write what `make` returns for that time.

        Decisions that read people share the lock until they commit. So no decision that counts a right is later than
        the end of that right. Raises Contended if another entry has the sequence number: read and decide again.
        """
        await self._write(tenant, make)

    async def read_authorities(self, callers: Sequence[Caller]) -> dict[Caller, Authority]:
        """What these callers bring to a decision, read outside of one: for explanations, never for a decision."""
        return await self._authorities(callers)

    async def read_head(self, tenant: str) -> SealedPeopleEntry | None:
        return first(await self._read(entry_from, self._sql.read_people_head, tenant))

    async def read_journal(
        self, tenant: str, subject: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[SealedPeopleEntry]:
        if subject is None:
            return await self._read(entry_from, self._sql.read_people_journal, tenant, after, limit)
        return await self._read(entry_from, self._sql.read_people_journal_of, tenant, after, limit, subject)

    async def read_journal_before(
        self, tenant: str, at: int, seq: int, since: int = 0, limit: int = 1000
    ) -> list[SealedPeopleEntry]:
        """Entries before a moment, and before this one of that moment; newest first."""
        given = (tenant, at, seq, since, limit)
        return await self._read(entry_from, self._sql.read_people_journal_before, *given)

    async def list_tenants(self, after: str = "", limit: int = 1000) -> list[TenantRow]:
        return await self._read(tenant_from, self._sql.list_tenants, after, limit)

    async def list_tenant_names(self, limit: int = 1000) -> list[str]:
        return [tenant.name for tenant in await self.list_tenants(limit=limit)]

    async def read_tenant(self, name: str) -> TenantRow | None:
        return first(await self._read(tenant_from, self._sql.read_tenant, name))

    async def list_principals(self, tenant: str, after: str = "", limit: int = 1000) -> list[Principal]:
        return await self._read(principal_from, self._sql.list_principals, tenant, after, limit)

    async def find_principal(self, tenant: str, name: str) -> Principal | None:
        return first(await self._read(principal_from, self._sql.find_principal, tenant, name))

    async def read_memberships(self, tenant: str, kind: SubjectKind, subject: str) -> list[MembershipRow]:
        return await self._read(membership_from, self._sql.read_memberships, tenant, kind.value, subject)

    async def read_members(self, tenant: str, kind: MembershipKind, name: str) -> list[MembershipRow]:
        return await self._read(membership_from, self._sql.read_members, tenant, kind.value, name)

    async def read_delegations(self, tenant: str, person: str) -> list[DelegationRow]:
        return await self._read(delegation_from, self._sql.read_delegations, tenant, person)

    async def list_memberships(self, tenant: str) -> list[MembershipRow]:
        return await self._read(membership_from, self._sql.list_memberships, tenant)

    async def list_delegations(self, tenant: str, *, ended: bool = False) -> list[DelegationRow]:
        """Delegations that are not revoked; with `ended`, those too that are."""
        statement = self._sql.list_all_delegations if ended else self._sql.list_delegations
        return await self._read(delegation_from, statement, tenant)

    async def list_keys(self, tenant: str) -> list[ApiKey]:
        return await self._read(key_from, self._sql.list_keys, tenant)

    async def find_key(self, key_id: str) -> ApiKey | None:
        return first(await self._read(key_from, self._sql.find_key, key_id))

    async def find_session(self, session_id: str) -> SessionRow | None:
        return first(await self._read(session_from, self._sql.find_session, session_id))

    async def list_sessions(self, tenant: str, key_id: str) -> list[SessionRow]:
        """The sessions of a key that were not ended, by id; those that have expired among them."""
        return await self._read(session_from, self._sql.list_sessions, tenant, key_id)
