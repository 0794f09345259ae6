"""The person behind a decision, as a value: memberships with their times, delegations, and the key that was used.

`operations` reads it in the deciding transaction, after the run is locked. The kernel decides from it alone: it asks
which roles the person held when a gate opened, and which they hold now. It knows nothing of tables or directories.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from stepkeep.errors import NotAllowed

VOUCH = "vouch"
"""The scope of a key that may name another person than its owner."""


class Caller(NamedTuple):
    """The actor of an event in its tenant, and the id of the key that was used, if any."""

    tenant: str
    person: str
    key: str | None = None


class MembershipKind(StrEnum):
    ROLE = "role"
    GROUP = "group"


class Membership(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A role or a group that a person has, in their own name or through a group, and from when until when.

    `granted_at` and `revoked_at` are the moments at which the change was recorded; `valid_from` and `valid_to` are the
    dates that were asked for. A membership counts at a moment that lies within both.
    """

    kind: MembershipKind
    name: str
    granted_at: int
    valid_from: int | None = None
    valid_to: int | None = None
    revoked_at: int | None = None

    def holds(self, at: int) -> bool:
        begins = self.granted_at if self.valid_from is None else max(self.granted_at, self.valid_from)
        ends = [end for end in (self.valid_to, self.revoked_at) if end is not None]
        return begins <= at and all(at < end for end in ends)


class Delegation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right of one person to decide on behalf of another for a time, with the memberships of the delegator."""

    id: str
    delegator: str
    granted_at: int
    valid_from: int | None = None
    valid_to: int | None = None
    revoked_at: int | None = None
    memberships: tuple[Membership, ...] = ()
    enabled: bool = True
    """Whether the delegator is a registered person, not a service, and not disabled."""


class KeyUsed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The API key that authenticated the caller."""

    id: str
    owner: str
    scopes: frozenset[str] = frozenset()
    expires_at: int | None = None
    revoked_at: int | None = None


class Authority(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a person may bring to a decision. `registered` is false for a name that only the host vouches for.

    A service is no person: it decides only a gate that names it, and acts on behalf of no other.
    """

    person: str
    registered: bool = False
    disabled: bool = False
    is_service: bool = False
    vouching_allowed: bool = True
    memberships: tuple[Membership, ...] = ()
    delegations: tuple[Delegation, ...] = ()
    key: KeyUsed | None = None

    def has(self, kind: MembershipKind, name: str, at: int) -> bool:
        return has_at(self.memberships, kind, name, at)


class OnlyVouched(dict[Caller, Authority]):
    """The authorities in a world without tables of people: the host vouches for every name."""

    def __missing__(self, caller: Caller) -> Authority:
        return Authority(person=caller.person)


def admit(authority: Authority, caller: Caller, now: int) -> None:
    """Refuse a caller that may decide nothing: its key does not count, or the person may not act.

    >>> admit(Authority(person="ann", registered=True, disabled=True), Caller("acme", "ann"), 0)
    Traceback (most recent call last):
    stepkeep.errors.NotAllowed: ann is disabled and may not act. Enable the account first, or act as another person.
    """
    person, key = caller.person, authority.key
    if caller.key is None:
        if not authority.vouching_allowed:
            raise NotAllowed(
                f"tenant {caller.tenant} refuses names without a key, and {person} was named without one. "
                "Open the database with the key of the person.",
                "vouching_refused",
                person,
            )
    elif key is None:
        raise NotAllowed(f"there is no key {caller.key} in tenant {caller.tenant}.", "key_unknown", person)
    elif key.revoked_at is not None:
        raise NotAllowed(f"key {key.id} of {key.owner} was revoked. Use another key.", "key_revoked", person)
    elif key.expires_at is not None and key.expires_at <= now:
        raise NotAllowed(f"key {key.id} of {key.owner} has expired. Use another key.", "key_expired", person)
    elif key.owner != person and VOUCH not in key.scopes:
        raise NotAllowed(
            f"key {key.id} belongs to {key.owner} and may not name {person}: it lacks the scope {VOUCH}.",
            "key_owner",
            person,
        )
    if authority.disabled:
        raise NotAllowed(
            f"{person} is disabled and may not act. Enable the account first, or act as another person.",
            "disabled",
            person,
        )


def has_at(memberships: tuple[Membership, ...], kind: MembershipKind, name: str, at: int) -> bool:
    """Whether one of these memberships gives the named role or group at this moment."""
    return any(one.kind is kind and one.name == name and one.holds(at) for one in memberships)
