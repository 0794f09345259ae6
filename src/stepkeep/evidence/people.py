"""Compares the rows of people with their journal: tenants, principals, memberships, delegations and keys.

A row that no entry tells of, that says something else than its entries, or that is gone is a finding; so is a broken
chain. It only reads. Certificates ask about the people of one run, `db status` and `users history` about all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Required, TypedDict

import msgspec

from stepkeep.evidence.register import Register
from stepkeep.evidence.verifier import sha256
from stepkeep.kernel.errors import Contended
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.operations.people.audit import told_of_chain, verify_chain
from stepkeep.operations.people.people_journal import History, PeopleChain, entry_view
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.store.principals import SealedPeopleEntry
from stepkeep.store.protocol import Store

PAGE = 1000
NAMES = {
    "tenants": "the settings of tenant",
    "principals": "principal",
    "memberships": "membership",
    "delegations": "delegation",
    "keys": "key",
}
OWNERS = {"memberships": "subject", "delegations": "delegate", "keys": "owner"}
"""The column that names the person or the group that a row is about."""

Rows = dict[str, dict[str, msgspec.Struct]]


class PeopleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of people of a tenant, the rows beside it, and everything in which they differ.

    `findings` are pairs of the name of a person or group and a sentence; what concerns all people has no name.
    """

    journal: Sequence[SealedPeopleEntry]
    findings: Sequence[tuple[str, str]]
    broken_at: int | None = None
    authorities: Mapping[str, Authority] = {}

    def about(self, names: Collection[str]) -> list[str]:
        """What concerns these people and their groups; a broken chain concerns all."""
        groups = {one.name for name in names if name in self.authorities for one in self.authorities[name].memberships}
        wanted = {"", *names, *groups}
        return [said for name, said in self.findings if name in wanted]


async def read_record(store: Store, tenant: str, names: Collection[str] = ()) -> PeopleRecord:
    """Read the journal and the rows of one state, with the authorities of these people."""
    callers = [Caller(tenant, name) for name in sorted(names)]

    async def once() -> PeopleRecord:
        journal, rows = await _journal(store, tenant), await _rows(store, tenant)
        found = await store.people.read_authorities(callers) if callers else {}
        head = await store.people.read_head(tenant)
        if (0 if head is None else head.seq) != (journal[-1].seq if journal else 0):
            raise Contended(f"the people of tenant {tenant} changed while they were compared. Try again.")
        return PeopleRecord(
            journal=journal,
            **_compared(journal, rows, tenant),
            authorities={caller.actor: found[caller] for caller in callers},
        )

    return await again_if_contended(once)


async def history(store: Store, tenant: str, subject: str | None, *, after: int, limit: int) -> History:
    """Entries of the journal of people, whether the whole chain holds, and where the rows differ from it."""
    record = await read_record(store, tenant)
    found = [one for one in record.journal if one.seq > after and subject in (None, one.subject)]
    broken_at = record.broken_at
    return History(
        history=[entry_view(one) for one in found[:limit]],
        chain=PeopleChain(
            entries=len(record.journal) if broken_at is None else broken_at,
            is_intact=broken_at is None,
            broken_at=broken_at,
            differences=[said for _, said in record.findings] if broken_at is None else [],
        ),
        next=str(found[limit - 1].seq) if len(found) > limit else None,
    )


async def differences(store: Store, tenant: str) -> list[str]:
    """Everything in which the record of people or the audit log is not whole: of this tenant, and of all that have
    settings."""
    tenants = dict.fromkeys((tenant, *([] if store.is_confined else await store.people.list_tenant_names())))
    found = []
    for one in tenants:
        found += [f"tenant {one}: {said}" for _, said in (await read_record(store, one)).findings]
        chain = await verify_chain(store, one)
        found += [] if chain.is_intact else [f"tenant {one}: audit log: {told_of_chain(chain)}"]
    return found


async def _journal(store: Store, tenant: str) -> list[SealedPeopleEntry]:
    found: list[SealedPeopleEntry] = []
    while page := await store.people.read_journal(tenant, after=found[-1].seq if found else 0, limit=PAGE):
        found += page
    return found


async def _rows(store: Store, tenant: str) -> Rows:
    people = store.people
    own = await people.read_tenant(tenant)
    principals = list(await people.list_principals(tenant, "", PAGE))
    while len(principals) % PAGE == 0 and principals:
        page = await people.list_principals(tenant, principals[-1].name, PAGE)
        if not page:
            break
        principals += page
    return {
        "tenants": {} if own is None else {own.name: own},
        "principals": {row.name: row for row in principals},
        "memberships": {row.id: row for row in await people.list_memberships(tenant)},
        "delegations": {row.id: row for row in await people.list_delegations(tenant, ended=True)},
        "keys": {row.id: row for row in await people.list_keys(tenant)},
    }


class Compared(TypedDict, total=False):
    """Where the rows differ from the journal, or the entry at which its chain is broken."""

    findings: Required[list[tuple[str, str]]]
    broken_at: int


def _compared(journal: Iterable[SealedPeopleEntry], rows: Rows, tenant: str) -> Compared:
    register = Register()
    for one in journal:
        try:
            entry = msgspec.json.decode(one.body)
            wrong = register.add(one.seq, one.body, one.hash.hex())
            fits = (entry["tenant"], entry["at"], entry["subject"]) == (tenant, one.at, one.subject)
        except (ValueError, KeyError, TypeError):
            wrong, fits = None, False
        if wrong is not None or not fits:
            said = wrong or f"entry {one.seq} of the journal of people does not fit its columns, or what came before"
            return {"findings": [("", said)], "broken_at": one.seq}
    return {
        "findings": [
            found
            for table, told in register.tables.items()
            for name in sorted(told.keys() | rows[table].keys())
            for found in _difference(table, name, told.get(name), rows[table].get(name))
        ]
    }


def _difference(table: str, name: str, told: Mapping[str, Any] | None, row: Any) -> Iterator[tuple[str, str]]:
    columns = _columns(row)
    known, said = columns or told or {}, f"{NAMES[table]} {name}"
    of = "" if table == "tenants" else str(known[OWNERS.get(table, "name")])
    said += f" of {of}" if of not in ("", name) else ""
    if told is None:
        yield of, f"{said} is in the tables, and the journal of people does not tell of it"
    elif row is None:
        yield of, f"{said} is in the journal of people, and its row is gone"
    elif wrong := _unlike(told, columns):
        yield of, f"{said} has another {' and '.join(wrong)} than the journal of people tells"


def _unlike(told: Mapping[str, Any], columns: Mapping[str, Any]) -> list[str]:
    """The columns that differ. An entry about a key that tells of its secret tells of everything that is set."""
    names = {*told, *(columns.keys() - {"tenant", "secret_hash"} if "secret" in told else ())}
    return sorted(name for name in names if columns.get(name) != told.get(name))


def _columns(row: msgspec.Struct | None) -> Mapping[str, Any]:
    """A row as the journal has it: of a secret, a hash of its stored hash."""
    found: dict[str, Any] = {} if row is None else msgspec.json.decode(msgspec.json.encode(row))
    return found | ({"secret": sha256(found["secret_hash"].encode())} if "secret_hash" in found else {})
