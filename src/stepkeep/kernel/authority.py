"""The person behind a decision, as a value: memberships with their times, delegations, and the key that was used.

`operations` reads it in the deciding transaction, after the run is locked. The kernel decides from it alone: it asks
which roles the person held when a gate opened, and which they hold now. It knows nothing of tables or directories.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


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
    """Whether the delegator is a registered person who is not disabled."""


class KeyUsed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The API key that authenticated the caller."""

    id: str
    owner: str
    scopes: frozenset[str] = frozenset()
    expires_at: int | None = None
    revoked_at: int | None = None


class Authority(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a person may bring to a decision. `registered` is false for a name that only the host vouches for."""

    person: str
    registered: bool = False
    disabled: bool = False
    vouching_allowed: bool = True
    memberships: tuple[Membership, ...] = ()
    delegations: tuple[Delegation, ...] = ()
    key: KeyUsed | None = None

    def has(self, kind: MembershipKind, name: str, at: int) -> bool:
        return has_at(self.memberships, kind, name, at)


def has_at(memberships: tuple[Membership, ...], kind: MembershipKind, name: str, at: int) -> bool:
    """Whether one of these memberships gives the named role or group at this moment."""
    return any(one.kind is kind and one.name == name and one.holds(at) for one in memberships)
