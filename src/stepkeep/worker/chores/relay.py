"""The relay: claims delivery cursors, sends their events in order, and reports with the fence of the claim.

    claim → read the events → send, one after the other → report

Every worker has one and none is a leader: a claim has a lease, and when it ends another relay takes the cursor. Events
are sent outside of any transaction. Each sink has a number of places, so that a slow one holds up only its own runs.
`RelayPace` says when a relay looks for due cursors. It decides nothing about runs. The worker's loop, the simulator and
tests call `turn`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stepkeep.edges.safe_text import exception_text, inert_line
from stepkeep.kernel.errors import Contended, InvalidInput, PayloadSealed, StepkeepError, StoreError
from stepkeep.operations.delivery.declared_hooks import Selection, hook_sink
from stepkeep.operations.delivery.dialect_folds import Folds
from stepkeep.operations.delivery.outgoing import Place, pending
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import MAX_REASON, SEND_SECONDS, Sink, SinkContext, SinkFailed, SinkKind
from stepkeep.sinks.registry import kind_of
from stepkeep.store.deliveries import HOOK, RUN_WEBHOOK, Report
from stepkeep.store.rows import Delivery, SinkRow
from stepkeep.worker.attempts.secrets import MissingSecret
from stepkeep.worker.runtime import Runtime

log = logging.getLogger("stepkeep.relay")

LEASE_US = 30_000_000
MAX_ATTEMPTS = 10
FIRST_BACKOFF_US, MAX_BACKOFF_US = 1_000_000, 300_000_000
PLACES = 32
"""How many cursors of one sink a relay holds at once."""
REFRESH_SECONDS = 5.0
"""A list of sinks older than this is read again."""
MOST_HOOKS_KNOWN = 1000
"""How many hooks of definitions are remembered; then they are read again."""
POSTPONE_US = 30_000_000
"""A run whose payloads are sealed, or a secret that is missing here, is left to other workers for so long."""
FLUSH_SECONDS = 5.0
REPORT_SECONDS = 20.0
"""For how long a report is tried again while the database does not answer; then the lease ends it."""


def backoff_us(attempts: int) -> int:
    """The pause after so many failed attempts: 1 s, doubled each time, up to 300 s.

    >>> [backoff_us(n) // 1_000_000 for n in (1, 2, 3, 9, 10)]
    [1, 2, 4, 256, 300]
    """
    return int(min(MAX_BACKOFF_US, FIRST_BACKOFF_US * 2 ** min(max(attempts - 1, 0), 30)))


class Tally(msgspec.Struct):
    """What a relay did since it began."""

    sent: int = 0
    failed: int = 0
    dead: int = 0
    refused: int = 0


MakeContext = Callable[[str], SinkContext]
"""Makes what a sink of this name is given."""


class Relay:
    """The relay of one worker. `can_call` says whether this program has a function with `@on` of that name,
    `can_run` whether it may run a program, and `has_secret` whether it can read a secret. `due_in` is told in how many
    seconds a cursor that it held may be due again."""

    def __init__(
        self,
        transactor: Transactor,
        tenant: str,
        *,
        holder: Callable[[], str],
        context: MakeContext,
        can_call: Callable[[str], bool] = lambda name: False,
        can_run: Callable[[str], bool] = lambda program: True,
        has_secret: Callable[[str], bool] = lambda name: True,
        runtime: Runtime | None = None,
        lease_us: int = LEASE_US,
        places: int = PLACES,
        due_in: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._transactor, self._tenant = transactor, tenant
        self._holder, self._context = holder, context
        self._can_call, self._can_run, self._has_secret = can_call, can_run, has_secret
        self._runtime = runtime or Runtime()
        self._lease_us, self._places, self._due_in = lease_us, places, due_in
        self._rows: dict[str, SinkRow] = {}
        self._hooks: dict[str, tuple[SinkRow, Selection] | None] = {}
        self._rows_read_at = float("-inf")
        self._folds = Folds()
        self._open: dict[str, tuple[bytes, Sink]] = {}
        self._busy: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._troubles: set[str] = set()
        self.tally = Tally()

    @property
    def in_flight(self) -> int:
        """How many cursors it holds."""
        return len(self._tasks)

    def forget_sinks(self) -> None:
        """Read the list of sinks at the next turn: this program has changed it."""
        self._rows_read_at = float("-inf")

    async def turn(self) -> int:
        """Claim what is due and begin to send it. Returns how many cursors were claimed."""
        if self._stopping:
            return 0
        store = self._transactor.store.deliveries
        due = [name for name in await store.find_due_sinks(self._tenant) if self._places > self._busy[name]]
        if not due:
            return 0
        await self._read_sinks(due)
        wanted = [(name, self._places - self._busy[name]) for name in due if self._serves(name)]
        if not wanted:
            return 0
        claimed = await store.claim(self._tenant, wanted, self._holder(), self._lease_us)
        if any(cursor.sink in self._rows for cursor in claimed):
            # A list from before the claim may lack a pattern for which an event was emitted, and would skip the event.
            self._rows |= {row.name: row for row in await store.list_sinks(self._tenant)}
        for cursor in claimed:
            self._busy[cursor.sink] += 1
            task = asyncio.get_running_loop().create_task(self._deliver(cursor), name=f"deliver to {cursor.sink}")
            self._tasks.add(task)
            task.add_done_callback(lambda done, sink=cursor.sink: self._ended(done, sink))  # type: ignore[misc]
        return len(claimed)

    async def settle(self) -> None:
        """Wait until all that was claimed is reported. For tests and hosts that call `turn` themselves."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def stop(self, grace_seconds: float = SEND_SECONDS, *, flush: bool = False) -> None:
        """Claim no more, let each send under way end, report what was acknowledged, and close the sinks.

        With `flush`, claim once more and send for `FLUSH_SECONDS`: a worker that lived for one run leaves nothing.
        """
        if flush and grace_seconds > 0:
            await self.turn()
            if self._tasks:
                await asyncio.wait(list(self._tasks), timeout=min(FLUSH_SECONDS, grace_seconds))
        self._stopping = True
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=max(grace_seconds, 0))
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for name in list(self._open):
            await self._close(name)

    # -- sinks -------------------------------------------------------------------------------------------------------
    async def _read_sinks(self, due: Sequence[str]) -> None:
        for name in due:
            if name.startswith(HOOK) and name not in self._hooks:
                if len(self._hooks) >= MOST_HOOKS_KNOWN:
                    self._hooks.clear()
                self._hooks[name] = await hook_sink(self._transactor, self._tenant, name)
        now = self._runtime.monotonic()
        is_known = all(name == RUN_WEBHOOK or name in self._rows or name.startswith(HOOK) for name in due)
        if is_known and now - self._rows_read_at < REFRESH_SECONDS:
            return
        rows = await self._transactor.store.deliveries.list_sinks(self._tenant)
        self._rows, self._rows_read_at = {row.name: row for row in rows}, now
        for name in [name for name in self._open if not name.startswith(HOOK) and name not in self._rows]:
            await self._close(name)

    def _row(self, name: str) -> SinkRow | None:
        """The row of a sink, or what a definition declares in its place."""
        if name.startswith(HOOK):
            found = self._hooks.get(name)
            return None if found is None else found[0]
        return self._rows.get(name)

    def _selection(self, name: str) -> Selection:
        """Which events go to a sink."""
        if name == RUN_WEBHOOK:
            return Selection()
        if (hook := self._hooks.get(name)) is not None:
            return hook[1]
        return Selection(self._rows[name].patterns)

    def _serves(self, name: str) -> bool:
        """Whether this program can send to a sink: it has the kind, the function and the secrets."""
        if name == RUN_WEBHOOK:
            return True
        row = self._row(name)
        if row is None:
            if name.startswith(HOOK):
                self._trouble(name, "its definition cannot be read here")
            return False
        try:
            kind = kind_of(row.kind)
            options = kind.read(msgspec.json.decode(row.options))
        except InvalidInput as problem:
            self._trouble(name, str(problem))
            return False
        if not kind.is_relayed or not all(map(self._has_secret, kind.secrets(options))):
            return False
        if row.kind == "command" and not self._can_run(options.argv[0]):
            return False
        called = getattr(options, "handler", None)
        return row.kind != "handler" or (isinstance(called, str) and self._can_call(called))

    def _trouble(self, name: str, said: str) -> None:
        if name not in self._troubles:
            self._troubles.add(name)
            log.warning("events for the sink %s are left to other workers: %s", name, inert_line(said))

    async def _sink(self, cursor: Delivery) -> Sink:
        """The open sink of a cursor; opened again where its options were replaced."""
        if cursor.sink == RUN_WEBHOOK:
            kind_name, options = "run_webhook", cursor.target or b"{}"
            kind: SinkKind[Any] = kind_of(kind_name)
            return await kind.open(kind.read(msgspec.json.decode(options)), self._context(cursor.sink))
        row = self._row(cursor.sink)
        assert row is not None, "a cursor is claimed only if its sink is served"
        opened = self._open.get(row.name)
        if opened is not None and opened[0] == row.options:
            return opened[1]
        kind = kind_of(row.kind)
        sink = await kind.open(kind.read(msgspec.json.decode(row.options)), self._context(row.name))
        # A sink that others still send with is left to them; it holds nothing between two sends.
        self._open[row.name] = (row.options, sink)
        return sink

    async def _close(self, name: str) -> None:
        _, sink = self._open.pop(name)
        try:
            await sink.close()
        except Exception as problem:  # noqa: BLE001 - a sink of another distribution may raise anything
            log.warning("closing the sink %s failed: %s", name, inert_line(exception_text(problem)))

    # -- one cursor --------------------------------------------------------------------------------------------------
    def _ended(self, task: asyncio.Task[None], sink: str) -> None:
        self._tasks.discard(task)
        self._busy[sink] -= 1
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("a delivery to %s ended early", sink, exc_info=problem)

    async def _deliver(self, cursor: Delivery) -> None:
        """Send what a cursor has, in order, until all is sent, one event fails, or the relay stops."""
        work = _Work(cursor)
        try:
            todo = await pending(self._transactor, cursor, self._selection(cursor.sink), folds=self._folds)
            sink = await self._sink(cursor)
            begun = self._runtime.monotonic()
            for place, event in enumerate(todo.events, 1):
                if self._runtime.monotonic() - begun > self._lease_us / 3_000_000:
                    if not await self._report(work.report(lease_us=self._lease_us)):
                        return
                    begun = self._runtime.monotonic()
                await self._send(sink, event)
                work.acknowledged((event.seq, event.number))
                self.tally.sent += 1
                if self._stopping and place < len(todo.events):
                    break
            else:
                work.acknowledged(todo.upto)
        except asyncio.CancelledError:
            await asyncio.shield(self._report(work.report()))
            raise
        except (PayloadSealed, MissingSecret) as problem:
            self._trouble(cursor.sink, str(problem))
            await self._report(work.report(retry_us=POSTPONE_US, error=str(problem)))
        except StoreError as problem:
            log.warning("a delivery to %s is put off: %s", cursor.sink, inert_line(str(problem)))
            await self._report(work.report(retry_us=FIRST_BACKOFF_US))
        except Exception as problem:  # noqa: BLE001 - sinks and their libraries may raise anything
            await self._failed(work, problem)
        else:
            await self._report(work.report())

    async def _send(self, sink: Sink, event: OutgoingEvent) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await sink.send(event)
        except TimeoutError:
            raise SinkFailed(f"no acknowledgement within {SEND_SECONDS:g} s") from None

    async def _failed(self, work: _Work, problem: Exception) -> None:
        said = str(problem) if isinstance(problem, StepkeepError) else exception_text(problem)
        attempts = work.attempts + 1
        is_dead = attempts >= MAX_ATTEMPTS or getattr(problem, "is_final", False) is True
        asked = getattr(problem, "retry_after", None)
        retry_us = backoff_us(attempts)
        if isinstance(asked, (int, float)):
            retry_us = min(MAX_BACKOFF_US, max(retry_us, int(asked * 1_000_000)))
        self.tally.failed += 1
        self.tally.dead += is_dead
        cursor, why = work.cursor, inert_line(said)[:MAX_REASON]
        level = logging.WARNING if is_dead else logging.INFO
        what = "is dead" if is_dead else f"is tried again in {retry_us / 1_000_000:g} s"
        log.log(level, "attempt %d for %s, run %s, failed and %s: %s", attempts, cursor.sink, cursor.run_id, what, why)
        await self._report(work.report(attempts=attempts, retry_us=retry_us, is_dead=is_dead, error=why))

    async def _report(self, report: Report) -> bool:
        """Write a report, again while the database does not answer: what was acknowledged must not be sent twice."""
        end = self._runtime.monotonic() + REPORT_SECONDS
        pause = 0.05
        while True:
            try:
                [accepted] = await self._transactor.store.deliveries.report([report])
            except (StoreError, Contended) as problem:
                if self._runtime.monotonic() >= end:
                    log.warning("a report on %s is given up: %s", report.sink, inert_line(str(problem)))
                    return False
                await self._runtime.sleep(pause)
                pause = min(2.0, pause * 2)
                continue
            if not accepted:
                self.tally.refused += 1
                log.info("another relay has claimed run %s for %s", report.run_id, report.sink)
            elif report.lease_us is None and not report.is_dead:
                self._due_in(report.retry_us / 1_000_000)
            return accepted


class _Work:
    """One claimed cursor: how far it got."""

    def __init__(self, cursor: Delivery) -> None:
        self.cursor = cursor
        self.attempts = cursor.attempts
        self._upto: Place = (cursor.sent, cursor.sent_number)

    def acknowledged(self, place: Place) -> None:
        self._upto = max(self._upto, place)
        self.attempts = 0

    def report(
        self,
        *,
        attempts: int | None = None,
        retry_us: int = 0,
        lease_us: int | None = None,
        is_dead: bool = False,
        error: str | None = None,
    ) -> Report:
        cursor = self.cursor
        return Report(
            tenant=cursor.tenant,
            run_id=cursor.run_id,
            sink=cursor.sink,
            fence=cursor.fence,
            sent=self._upto[0],
            sent_number=self._upto[1],
            attempts=self.attempts if attempts is None else attempts,
            retry_us=retry_us,
            lease_us=lease_us,
            is_dead=is_dead,
            error=error,
        )


SHORTEST = 0.02
"""Seconds between two looks while each of them finds something."""
RARELY = 5
"""While notifications arrive, looks that nothing asks for are rarer by this factor."""


class RelayPace:
    """The pause between two looks. `seconds` is the pause without notifications."""

    def __init__(self, seconds: float, runtime: Runtime, are_notified: Callable[[], bool] = lambda: False) -> None:
        self._seconds, self._runtime, self._are_notified = seconds, runtime, are_notified
        self._gap = min(SHORTEST, seconds)
        self._asked = asyncio.Event()

    def wake(self) -> None:
        """Something may be due now."""
        self._asked.set()

    def due_in(self, seconds: float) -> None:
        """A cursor of this relay will be due then."""
        asyncio.get_running_loop().call_later(seconds, self._asked.set)

    def looked(self, found: int) -> None:
        """A look found so many cursors."""
        shortest = min(SHORTEST, self._seconds)
        self._gap = shortest if found else min(self._seconds, max(self._gap, shortest) * 2)

    async def wait(self) -> None:
        """Wait until the next look: a short pause in any case, then until something asks for it."""
        longest = self._runtime.spread(self._seconds * (RARELY if self._are_notified() else 1))
        await self._runtime.sleep(min(self._gap, longest))
        await self._runtime.wait(self._asked, max(0.0, longest - self._gap))
        self._asked.clear()
