"""Which caller an engine acts for, and what its key may be used for: keys, scopes, and one table of operations.

A key authenticates its owner, who is the actor; its tenant is the engine's. Without a key the program names the actor.
The engine asks here before each operation. Decisions about steps are checked once more in their own transaction.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import wraps
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import InvalidInput, NotAllowed, StepkeepError
from stepkeep.kernel.people.authority import ADMIN, ANY_WORK, VOUCH, WORK, Caller, KeyUsed, WorkLimits, admit
from stepkeep.operations.people import audit
from stepkeep.operations.people.audit import AuditLog
from stepkeep.operations.pipeline.shared_reads import SharedReads
from stepkeep.store.principals import (
    NO_SECRET,
    ApiKey,
    Vouching,
    key_used,
)
from stepkeep.store.protocol import Store

T = TypeVar("T")
K = TypeVar("K", bound=type)
NOTHING: Mapping[str, Any] = MappingProxyType({})

FRESH_SECONDS = 0.5
"""For how long an engine goes by the key and the tenant's settings that it has read. A decision reads them anew."""

GRACE_SECONDS = 0.25
"""For how much longer other callers go by them while one caller reads them again. Together they are below a second."""

_KEY = re.compile(r"sk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


class Scope(StrEnum):
    """What a key may be used for."""

    READ = "read"
    START = "start"
    DECIDE = "decide"
    COMPLETE = "complete"
    OPERATE = "operate"
    WORK = WORK
    ADMIN = ADMIN
    VOUCH = VOUCH
    METRICS = "metrics"


SCOPES: dict[Scope, str] = {
    Scope.READ: "read runs, definitions, workers, logs and people",
    Scope.START: "start runs of published workflows, rerun, retry and fork them",
    Scope.DECIDE: "approve, reject, request changes, decide about held steps, add notes, delegate one's own authority",
    Scope.COMPLETE: "complete manual steps, reissue their tokens, send messages",
    Scope.OPERATE: "publish, cancel, pause, resume, quarantine, release, prune, drop messages, redrive and drop events",
    Scope.WORK: "be a worker, take events for a host program",
    Scope.ADMIN: "change tenants, users, roles, delegations, keys, policies and sinks",
    Scope.VOUCH: "name another person than the owner of the key",
    Scope.METRICS: "read the metrics of a process of the service; the key must belong to the tenant default",
}
"""Every scope, and what it allows."""

R, S, D, C, O, W, A = (frozenset({one}) for one in list(Scope)[:7])  # noqa: E741 - the columns of the table
READ, START, DECIDE, COMPLETE, OPERATE, WORKS, ADMINISTER = R, S, D, C, O, W, A
OWN: frozenset[Scope] = frozenset()
"""Any key will do: the operation itself asks whose it is."""

OPERATIONS: dict[str, frozenset[Scope]] = {
    **dict.fromkeys(("result", "wait", "log", "certify", "evidence"), R),
    "start": S,
    "send": C,
    **dict.fromkeys(("publish", "sign_heads", "prune"), O),
    **dict.fromkeys(("start_worker", "serve"), W),
    "work_on": W | R,
    **dict.fromkeys(("work.register", "work.beat", "work.drain", "work.leave", "work.queues", "work.listen"), W),
    **dict.fromkeys(("work.claim", "work.renew", "work.report", "work.evidence", "work.definition"), W),
    **dict.fromkeys(("work.checkpoint", "work.checkpoints", "work.calls", "work.write"), W),
    **dict.fromkeys(("work.details", "work.outputs", "work.states", "work.network"), W),
    "run": S | W | R,
    "metrics": frozenset({Scope.METRICS}),
}
"""The scopes that each operation of an engine needs. An operation without a row is refused."""

UNRECORDED = (R, W, W | R)
"""Scopes of operations that only look, or that belong to workers: the audit log has their refusals alone."""

LOOKS: set[str] = set()
"""Operations whose route is a GET: they change nothing, under any scope."""

UNNAMED = R | W
"""What may be done without a key where a tenant refuses vouching: nothing of it puts a person on record."""


NOT_LIMITED_WORK = ("outbox.take", "outbox.ack", "outbox.fail")
"""Operations of the scope work that concern no queue: a key that is limited to queues or handlers may not ask for
them."""


KEYLESS = "tenant"
"""The scope of idempotency keys of callers without an API key: they share those of the tenant."""


class Credential(msgspec.Struct, frozen=True):
    """The two parts of a key. Only the id may be shown."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"<key {self.id}>"

    __str__ = __repr__


def parse_key(text: object) -> Credential:
    """The parts of a key, which is never quoted. Its secret is hidden in the log of this process from now on."""
    found = _KEY.fullmatch(str.strip(text)) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(
            "the key is not one: it has the form sk_ID_SECRET. `stepkeep keys create` shows it once, when it is made."
        )
    KNOWN.remember({f"of key {found[1]}": found[2]})
    return Credential(*found.groups())


def key_text(key_id: str, secret: str) -> str:
    """The whole key, as it is shown once."""
    return f"sk_{key_id}_{secret}"


def secret_hash(secret: str) -> str:
    """What is stored of a secret. It has 256 random bits, so that a plain hash cannot be searched."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Access:
    """The caller of one engine. `open` it before use; `tenant` and `actor` are the key's from then on."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        actor: str,
        credential: Credential | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        fresh_seconds: float | None = None,
    ) -> None:
        self.tenant, self.actor = tenant, actor
        self.key: ApiKey | None = None
        self._hand: KeyUsed | None = None
        self._store, self._credential, self._monotonic = store, credential, monotonic
        self._vouching = Vouching.ALLOWED
        self._fresh_seconds, self._read_at = fresh_seconds, float("-inf")
        self._is_reading = False
        self._reads: SharedReads[None, None] = SharedReads(lambda _: self._refresh())
        self.audit_log: AuditLog | None = None

    async def open(self) -> None:
        """Check the key, if there is one. It is refused with one answer, whichever part of it is wrong."""
        given = self._credential
        if given is None:
            return
        found = await self._store.people.find_key(given.id)
        stored = NO_SECRET if found is None else found.secret_hash
        if not hmac.compare_digest(stored, secret_hash(given.secret)) or found is None:
            raise NotAllowed(f"the key {given.id} is not valid here: wrong key, or another database.", "key_invalid")
        if self.tenant not in ("default", found.tenant):
            raise NotAllowed(f"key {given.id} belongs to another tenant than {self.tenant}.", "key_tenant", found.owner)
        self.tenant, self.actor, self.key = found.tenant, found.owner, found
        self._store = self._store.for_tenant(found.tenant)
        await self._refresh()

    @property
    def owner(self) -> str | None:
        """The owner of the key."""
        return None if self.key is None else self.key.owner

    @property
    def limits(self) -> WorkLimits:
        """What the key may work on."""
        return ANY_WORK if self.key is None else key_used(self.key).limits

    @property
    def key_scope(self) -> str:
        """Whose idempotency keys this caller uses: those of its API key and of all that replace each other with it."""
        return KEYLESS if self.key is None else self.key.line

    def may(self, scope: Scope) -> bool:
        """Whether the key, if there is one, has this scope."""
        return self.key is None or scope in self.key.scopes

    async def admit(self, operation: str) -> None:
        """Refuse an operation that this caller may not ask for."""
        needed = OPERATIONS.get(operation)
        if needed is None:
            raise NotAllowed(f"{operation} has no row in the table of scopes, and is refused.", "scope", self.actor)
        await self.check()
        if self.key is not None:
            self.require(*needed, operation=operation)
            if operation in NOT_LIMITED_WORK and self.limits != ANY_WORK:
                said = f"key {self.key.id} is limited to {self.limits}, and {operation} concerns the whole tenant."
                raise NotAllowed(said, "work_limits", self.actor)
        elif self._vouching is Vouching.REFUSED and not OWN < needed <= UNNAMED:
            raise NotAllowed(
                f"tenant {self.tenant} refuses names without a key. Open the database with one: key=, STEPKEEP_KEY, "
                "--key-file.",
                "vouching_refused",
                self.actor,
            )

    async def in_hand(self) -> KeyUsed | None:
        """The key of this caller, read anew, as it counts for keys that are handed out. Refuses one that has ended."""
        await self._reads.new(None)
        return self._hand

    async def check(self) -> None:
        """Refuse a key that has ended, as of at most `fresh_seconds` ago (`FRESH_SECONDS` by default)."""
        fresh = FRESH_SECONDS if self._fresh_seconds is None else self._fresh_seconds
        age = self._monotonic() - self._read_at
        # While one caller reads, the others go by what is known a little longer: each would read the same.
        if age >= fresh and not (self._is_reading and age < fresh + GRACE_SECONDS):
            await self._reads.current(None)

    def require(self, *needed: Scope, operation: str) -> None:
        """Refuse a key that lacks one of these scopes."""
        if refusal := self.lacks(*needed, operation=operation):
            raise refusal

    def lacks(self, *needed: Scope, operation: str) -> NotAllowed | None:
        """The refusal of a key that lacks one of these scopes; None if it has them, or if there is no key."""
        lacking = sorted(scope for scope in needed if not self.may(scope))
        if not lacking or self.key is None:
            return None
        return NotAllowed(
            f"key {self.key.id} of {self.actor} lacks the scope {' and '.join(lacking)}, which {operation} needs.",
            "scope",
            self.actor,
        )

    def caller(self, by: str | None = None) -> Caller:
        """Who is on record: the owner of the key, or the person `by` for whom it vouches."""
        actor = self.actor if by is None else by
        if actor != self.actor and not self.may(Scope.VOUCH):
            assert self.key is not None
            raise NotAllowed(
                f"key {self.key.id} belongs to {self.actor} and may not name {actor}: it lacks the scope {VOUCH}.",
                "key_owner",
                actor,
            )
        return self._named(actor)

    def _named(self, actor: str) -> Caller:
        key = None if self.key is None else self.key.id
        return Caller(self.tenant, actor, key, None if actor == self.actor else self.actor)

    async def admitted(
        self,
        operation: str,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        work: Callable[[], Awaitable[T]],
        *,
        is_admitted: bool = False,
    ) -> T:
        """Do the work of an operation if this caller may ask for it, and add it to the audit log. `is_admitted`: the
        caller was admitted when the request arrived, and only its key may have ended since."""
        try:
            await (self.check() if is_admitted else self.admit(operation))
            result = await work()
        except StepkeepError as problem:
            await self.note(operation, arguments, named, error=problem)
            raise
        await self.note(operation, arguments, named, result=result)
        return result

    async def note(
        self,
        operation: str,
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] = NOTHING,
        *,
        result: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """Add an operation to the audit log: with a key or through the service all that change something, and else
        the refused ones."""
        refused = isinstance(error, NotAllowed)
        is_ours = self.key is not None or audit.REQUEST.get() is not None
        does_change = operation not in LOOKS and OPERATIONS.get(operation) not in UNRECORDED
        if self.audit_log is None or not (refused or (is_ours and does_change)):
            return
        if error is None and operation.startswith(audit.OWN_RECORD):
            return
        by = named.get("by")
        row = audit.entry(
            caller=self._named(by if isinstance(by, str) else self.actor),
            operation=operation,
            target=audit.target_of(arguments, named, result),
            error=error,
        )
        if operation in audit.FREQUENT:
            self.audit_log.add(row)
        else:
            await self.audit_log.write(row)

    async def _refresh(self) -> None:
        """Read the key, or the tenant's settings, again."""
        began, is_good, self._is_reading = self._monotonic(), False, True
        try:
            if self.key is None:
                row = await self._store.people.read_tenant(self.tenant)
                self._vouching = Vouching.ALLOWED if row is None else row.vouching
            else:
                caller = self._named(self.actor)
                authorities = await self._store.people.read_authorities([caller])
                admit(authorities[caller], caller, await self._store.now())
                self._hand = authorities[caller].key
            is_good = True
        finally:
            self._is_reading = False
            self._read_at = began if is_good else float("-inf")

    def _forget(self) -> None:
        """Read everything again before the next operation."""
        self._read_at = float("-inf")


def guarded(prefix: str = "", free: Collection[str] = ()) -> Callable[[K], K]:
    """A class whose public coroutine methods, inherited ones too, are operations: each asks `self.access` first. All
    but the `free` ones must have a row, of their own or in the table, or the class cannot be made."""

    def guard(kind: K) -> K:
        for name in dir(kind):
            method = getattr(kind, name)
            if not name.startswith("_") and name not in free and iscoroutinefunction(method):
                method.__qualname__ = f"{kind.__qualname__}.{name}"
                if prefix + name not in OPERATIONS:
                    raise LookupError(f"{prefix}{name} has no row in the table of operations")
                # One that asks already is not made to ask twice.
                setattr(kind, name, method if hasattr(method, "asks") else _admitted(prefix + name, method))
        return kind

    return guard


def _admitted(operation: str, method: Any) -> Any:
    @wraps(method)
    async def admitted(self: Any, *arguments: Any, **named: Any) -> Any:
        access: Access = self.access
        is_admitted = self.admitted == operation
        work = lambda: method(self, *arguments, **named)  # noqa: E731
        return await access.admitted(operation, arguments, named, work, is_admitted=is_admitted)

    admitted.asks = operation  # type: ignore[attr-defined]
    return admitted
