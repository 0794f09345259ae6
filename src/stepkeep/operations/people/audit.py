"""The audit log: what was asked for with API keys and through the service, what came of it, and every refusal.

Entries are added in batches beside the operations, so that a worker or a start waits for none of them. What the journal
of people records is not written again: `read_audit` merges it in. The journals of runs stay the record of what was
decided; an entry here says who asked, by which key and request, and from where. Engines call it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from uuid_utils import uuid7

from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import InvalidInput, NotAllowed, StepkeepError
from stepkeep.kernel.machine.bounds import LAST_SEQ
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.answers import Answer, Moment, Next, says
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.store.audit import link
from stepkeep.store.principals import PeopleEntry, SealedPeopleEntry, open_people_entry
from stepkeep.store.protocol import Store
from stepkeep.store.rows import (
    LAST_ENTRY,
    LAST_TIME,
    AuditFilter,
    AuditRow,
    Outcome,
)

log = logging.getLogger("stepkeep.audit")

FLUSH_SECONDS: Final = 0.1
"""How long an entry waits for others, if nothing waits for it."""
RETRY_SECONDS: Final = 1.0
MOST_AT_ONCE: Final = 1_000
MOST_WAITING: Final = 20_000
"""Entries that wait for a database that is away. Beyond this number the oldest are given up."""
LONGEST: Final = 255
PAGE: Final = 1_000
CHECKED: Final = 5_000
"""How many of the newest entries a look at the log compares with their hashes; `db status` compares all."""

FREQUENT: Final = frozenset({"start", "send", "run", "rerun", "triggers.emit", "hooks.receive"})
"""Operations of programs, which come in numbers: their entries are written behind them."""

TIMES: Final = frozenset({"valid_from", "valid_to", "expires_at", "old_ends_at"})
"""Details of changes of people that are times; the body has them as numbers."""

OWN_RECORD: Final = ("users.", "keys.", "tenants.")
"""Operations that write the journal of people in their own transaction; only their refusals are written here."""


class AuditedRequest(msgspec.Struct, frozen=True):
    """The HTTP request that an operation is asked for by."""

    request_id: str
    address: str | None


REQUEST: ContextVar[AuditedRequest | None] = ContextVar("stepkeep_request", default=None)


class AuditEntry(Answer, kw_only=True):
    """An operation that was asked for, or a change of people (`source`)."""

    id: str
    at: Moment
    actor: str
    key: str | None
    vouched_by: str | None
    operation: str
    target: str
    outcome: Outcome
    code: str | None
    request_id: str | None
    address: str | None
    source: Literal["audit", "people"]
    detail: Annotated[dict[str, Any] | UnsetType, says("What a change of people was: the role, the delegate.")] = UNSET


class AuditChain(Answer, kw_only=True):
    """Whether the newest entries of the audit log are whole."""

    checked: int
    is_intact: bool
    broken_at: Annotated[int | None, says("The first entry that is missing or was changed.")]
    beside: Annotated[int, says("Entries outside of the chain that are not older than it.")]


class AuditPage(Answer, kw_only=True):
    """Entries, newest first."""

    audit: list[AuditEntry]
    next: Next
    chain: AuditChain


class AuditLog:
    """Entries on their way to the database. One for all engines that share a store."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self.most_waiting = MOST_WAITING
        self._waiting: list[tuple[AuditRow, float, asyncio.Future[None] | None]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._urgent = asyncio.Event()
        self._is_away = False

    def add(self, row: AuditRow) -> None:
        """Write an entry soon. Its time is now."""
        self._put(row, None)

    async def write(self, row: AuditRow) -> None:
        """Write an entry and wait until it is stored, or until the database has refused it once."""
        loop = _running_loop()
        if loop is None:
            self._put(row, None)
            return
        stored: asyncio.Future[None] = loop.create_future()
        self._put(row, stored)
        self._urgent.set()
        await asyncio.shield(stored)

    async def close(self) -> None:
        """Store what waits, with one try."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
            self._flushing = None
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
            self._writing = None
        if self._waiting:
            await self._flush()

    def _put(self, row: AuditRow, stored: asyncio.Future[None] | None) -> None:
        self._waiting.append((row, self._monotonic(), stored))
        if len(self._waiting) > self.most_waiting:
            given_up = self._waiting.pop(0)
            _settle([given_up])
            log.error("an entry of the audit log is given up: %d entries wait for the database", self.most_waiting)
        # A start in the transaction of a synchronous program has no loop: its entry goes with the next one.
        loop = _running_loop()
        if loop is not None and (self._flushing is None or self._flushing.done()):
            self._flushing = loop.create_task(self._keep_flushing())

    async def _keep_flushing(self) -> None:
        while self._waiting:
            if not self._urgent.is_set():
                try:
                    async with asyncio.timeout(RETRY_SECONDS if self._is_away else FLUSH_SECONDS):
                        await self._urgent.wait()
                except TimeoutError:
                    pass  # the time is over: what has gathered is written
            self._urgent.clear()
            # A batch that is being written is no longer among those that wait: `close` lets it end.
            self._writing = asyncio.ensure_future(self._flush())
            await asyncio.shield(self._writing)

    async def _flush(self) -> None:
        batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        if self._waiting:
            self._urgent.set()
        try:
            now, own = await self._store.now(), self._monotonic()
            rows = [replace(row, at=max(0, now - int((own - since) * 1_000_000))) for row, since, _ in batch]
            await again_if_contended(lambda: self._store.audit.append(rows))
        except StepkeepError as problem:
            self._waiting = [*((row, since, None) for row, since, _ in batch), *self._waiting]
            if not self._is_away:
                log.warning("the audit log waits for the database: %s", problem)
            self._is_away = True
            self._urgent.clear()
        else:
            self._is_away = False
        finally:
            _settle(batch)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _settle(batch: Sequence[tuple[AuditRow, float, asyncio.Future[None] | None]]) -> None:
    for _, _, stored in batch:
        if stored is not None and not stored.done():
            stored.set_result(None)


def entry(
    *,
    caller: Caller,
    operation: str,
    target: str = "",
    error: BaseException | None = None,
    code: str | None = None,
) -> AuditRow:
    """An entry about an operation that was done, or that ended in this error. Its time is set when it is added."""
    asked = REQUEST.get()
    refused = isinstance(error, NotAllowed)
    outcome = Outcome.DONE if error is None and code is None else Outcome.FAILED
    return AuditRow(
        tenant=caller.tenant,
        id=str(uuid7()),
        at=0,
        actor=_short(caller.actor),
        key=caller.key,
        vouched_by=None if caller.vouched_by is None else _short(caller.vouched_by),
        operation=operation,
        target=_short(KNOWN.hide(target)),
        outcome=Outcome.REFUSED if refused or code is not None else outcome,
        code=code if error is None else code_of(error),
        request_id=None if asked is None else asked.request_id,
        address=None if asked is None else asked.address,
    )


def code_of(error: BaseException) -> str:
    """The rule that refused, or the class of the error.

    >>> code_of(InvalidInput("no"))
    'invalid_input'
    """
    if isinstance(error, NotAllowed):
        return error.rule
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def target_of(arguments: Sequence[Any], named: Mapping[str, Any], result: Any = None) -> str:
    """What an operation is about: the run that it made, or the first thing that it was given by name."""
    made = getattr(result, "run_id", None)
    if isinstance(made, str):
        return made
    for value in (*arguments[:1], *(named.get(name) for name in ("run_id", "name", "key_id", "workflow", "owner"))):
        if isinstance(value, str):
            return value
        if isinstance(said := getattr(value, "name", None), str):
            return said
    return ""


async def verify_chain(store: Store, tenant: str, newest: int | None = None) -> AuditChain:
    """Whether the chain over the audit log of a tenant holds: all that is kept of it, or its newest entries."""
    head = await store.audit.read_head(tenant)
    if head is None:
        return AuditChain(checked=0, is_intact=True, broken_at=None, beside=0)
    seq, seal, since = head.forgotten, head.anchor, None
    if newest is not None and head.seq - seq > newest:
        begin = await store.audit.read_chain(tenant, head.seq - newest - 1, 1)
        seq, seal = head.seq - newest, (begin[0].hash or "") if begin else ""
    begun, broken_at = seq, None
    while broken_at is None and (page := await store.audit.read_chain(tenant, seq, PAGE)):
        for row in page:
            since = row.at if since is None else min(since, row.at)
            expected = link(seal, row, seq + 1)
            if (row.seq, row.hash) != (seq + 1, expected):
                broken_at = seq + 1
                break
            seq, seal = seq + 1, expected
    if broken_at is None and seq < head.seq:
        broken_at = seq + 1
    if broken_at is None and seq == head.seq and seal != head.hash:
        broken_at = seq
    beside = await store.audit.count_unchained(tenant, LAST_TIME if since is None else since, PAGE)
    is_intact = broken_at is None and not beside
    return AuditChain(checked=seq - begun, is_intact=is_intact, broken_at=broken_at, beside=beside)


def told_of_chain(chain: AuditChain) -> str:
    """What is wrong with a chain, in words."""
    beside = f"{chain.beside} entries are outside of its chain" if chain.beside else ""
    broken = f"entry {chain.broken_at} is missing or was changed" if chain.broken_at is not None else ""
    return " and ".join(filter(None, (broken, beside)))


async def read_audit(store: Store, wanted: AuditFilter, cursor: str | None, *, until: int | None = None) -> AuditPage:
    """A page of entries, newest first, those of the journal of people among them; `next` continues after it."""
    before, name = _read_cursor(cursor)
    if until is not None and until < before:
        before, name = until, ""
    asked = replace(wanted, before=before, before_id=name, limit=wanted.limit + 1)
    found = [(row.at, row.id, _view(row)) for row in await store.audit.read(asked)]
    found += await _of_people(store, asked)
    found.sort(key=lambda one: one[:2], reverse=True)
    shown = found[: wanted.limit]
    more = len(found) > wanted.limit
    return AuditPage(
        audit=[view for _, _, view in shown],
        next=f"{shown[-1][0]}:{shown[-1][1]}" if more else None,
        chain=await verify_chain(store, wanted.tenant, CHECKED),
    )


async def _of_people(store: Store, wanted: AuditFilter) -> list[tuple[int, str, AuditEntry]]:
    """Changes of people as entries. They are few, so that they are filtered here."""
    # At one moment, entries of people come before those of the log: their ids are higher.
    at, seq = wanted.before, LAST_SEQ if wanted.before_id == LAST_ENTRY else 0
    if wanted.before_id.startswith("p"):
        seq = int(wanted.before_id[1:])
    found: list[tuple[int, str, AuditEntry]] = []
    while len(found) < wanted.limit:
        page = await store.people.read_journal_before(wanted.tenant, at, seq, wanted.since, PAGE)
        for one in page:
            view = _people_view(one)
            named = ("actor", "target", "operation", "outcome", "key")
            if all(getattr(wanted, name) in (None, getattr(view, name)) for name in named):
                found.append((one.at, view.id, view))
        if len(page) < PAGE:
            break
        at, seq = page[-1].at, page[-1].seq
    return found[: wanted.limit]


def _view(row: AuditRow) -> AuditEntry:
    return AuditEntry(
        id=row.id,
        at=instant(row.at),
        actor=row.actor,
        key=row.key,
        vouched_by=row.vouched_by,
        operation=row.operation,
        target=row.target,
        outcome=row.outcome,
        code=row.code,
        request_id=row.request_id,
        address=row.address,
        source="audit",
    )


def _people_view(one: SealedPeopleEntry) -> AuditEntry:
    try:
        entry = open_people_entry(one)
    except msgspec.MsgspecError:
        entry = PeopleEntry(one.tenant, one.seq, one.at, "(unreadable)", one.subject, "")
    return AuditEntry(
        id=f"p{one.seq:015d}",
        at=instant(one.at),
        actor=entry.actor,
        key=entry.detail.get("key"),
        vouched_by=entry.vouched_by,
        operation=entry.event,
        target=entry.subject,
        outcome=Outcome.DONE,
        code=None,
        request_id=entry.detail.get("request"),
        address=entry.detail.get("address"),
        source="people",
        detail=detail_of(entry),
    )


def detail_of(entry: PeopleEntry) -> dict[str, Any]:
    """What a change of people was, as answers tell it."""
    told = {name: value for name, value in entry.detail.items() if name != "secret"}
    return {name: instant(value) if name in TIMES else value for name, value in told.items()}


def _read_cursor(cursor: str | None) -> tuple[int, str]:
    if cursor is None:
        return LAST_TIME, LAST_ENTRY
    found = re.fullmatch(r"([0-9]{1,18}):(p[0-9]{15}|[0-9a-f-]{36})", cursor)
    if found is None:
        raise InvalidInput("the cursor is `next` of a page of the audit log.")
    return int(found[1]), found[2]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
