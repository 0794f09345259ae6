"""The person behind a decision, as a value: memberships with their times, delegations, and the key that was used.

`operations` reads it in the deciding transaction, after the run is locked. The kernel decides from it alone: it asks
which roles the person held when a gate opened, and which they hold now. It knows nothing of tables or directories.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import NotAllowed

VOUCH = "vouch"
"""The scope of a key that may name another person than its owner."""

WORK = "work"
"""The scope of a key that may be limited to queues and handlers."""

ADMIN = "admin"
"""The scope of a key that may make keys for others."""


class Caller(NamedTuple):
    """The one that asks: the actor in a tenant, the id of the key that was used, and the actor of the program that
    named another one (`vouched_by`), if it did. Authorities are read by the `bearer`."""

    tenant: str
    actor: str
    key: str | None = None
    vouched_by: str | None = None

    @property
    def bearer(self) -> Caller:
        """The same without the program: what an actor may do does not depend on it."""
        return self if self.vouched_by is None else self._replace(vouched_by=None)


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


HANDLER_KINDS = ("python", "agent")
"""The executors whose queues have the name of a handler."""


class WorkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The queues and the handlers that a key may work on; None: any. The default queue is ``""``."""

    queues: tuple[str, ...] | None = None
    handlers: tuple[str, ...] | None = None

    def allow(self, spec: QueueSpec) -> bool:
        """Whether steps of this queue may be worked on. Commands, requests and rules have no handler."""
        if self.queues is not None and spec.group not in self.queues:
            return False
        return self.handlers is None or (spec.kind in HANDLER_KINDS and spec.name in self.handlers)

    def cover(self, other: WorkLimits) -> bool:
        """Whether everything that `other` allows is allowed here."""
        pairs = ((self.queues, other.queues), (self.handlers, other.handlers))
        return all(own is None or (theirs is not None and set(theirs) <= set(own)) for own, theirs in pairs)

    def __str__(self) -> str:
        named = (("queue", self.queues), ("handler", self.handlers))
        return ", ".join(f"{what} {one or repr(one)}" for what, names in named for one in names or ())


ANY_WORK = WorkLimits()


class KeyUsed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The API key that authenticated the caller."""

    id: str
    owner: str
    scopes: frozenset[str] = frozenset()
    expires_at: int | None = None
    revoked_at: int | None = None
    is_session: bool = False
    """Whether it belongs to the session of a browser, or is used through one."""

    limits: WorkLimits = ANY_WORK


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
        return Authority(person=caller.actor)


def admit(authority: Authority, caller: Caller, now: int) -> None:
    """Refuse a caller that may decide nothing: its key does not count, or the person may not act.

    >>> admit(Authority(person="ann", registered=True, disabled=True), Caller("acme", "ann"), 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    stepkeep.kernel.errors.NotAllowed: ann is disabled and may not act. Enable the account first, ...
    """
    person, key = caller.actor, authority.key
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


def is_administrator(hand: KeyUsed | None) -> bool:
    """Whether a caller may make keys for others: a program without a key, or a key with the scope admin."""
    return hand is None or ADMIN in hand.scopes


def hand_out(hand: KeyUsed | None, wanted: KeyUsed) -> None:
    """Refuse to give a caller a key that is worth more than the one in its hand. `wanted` is the key to be given, under
    the id of the key that it replaces, if it replaces one.

    >>> hand_out(KeyUsed(id="k1", owner="ann"), KeyUsed(id="k2", owner="bea"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    stepkeep.kernel.errors.NotAllowed: key k1 of ann hands out no key worth more: key k2 belongs to bea. ...
    """
    if wanted.is_session:
        said = f"key {wanted.id} of {wanted.owner} belongs to a session of a browser, and ends with it."
        raise NotAllowed(f"{said} Sign in again, or make a key: keys create.", "key_of_session", wanted.owner)
    if hand is None or is_administrator(hand):
        return
    lacking = sorted(wanted.scopes - hand.scopes)
    outlives = hand.expires_at is not None and (wanted.expires_at is None or wanted.expires_at > hand.expires_at)
    reasons = (
        (hand.is_session, "it is used through a session, which gets no keys"),
        (wanted.owner != hand.owner, f"key {wanted.id} belongs to {wanted.owner}"),
        (bool(lacking), f"key {wanted.id} has the scope {' and '.join(lacking)}"),
        (WORK in wanted.scopes and not hand.limits.cover(wanted.limits), f"key {wanted.id} works on more"),
        (outlives, f"key {wanted.id} would end later"),
    )
    if why := next((reason for is_worth_more, reason in reasons if is_worth_more), None):
        said = f"key {hand.id} of {hand.owner} hands out no key worth more: {why}."
        raise NotAllowed(f"{said} Use an admin key.", "key_worth_more", hand.owner)


def has_at(memberships: tuple[Membership, ...], kind: MembershipKind, name: str, at: int) -> bool:
    """Whether one of these memberships gives the named role or group at this moment."""
    return any(one.kind is kind and one.name == name and one.holds(at) for one in memberships)
