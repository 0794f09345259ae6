"""Sinks and the outbox, as the engine offers them: `engine.sinks` and `engine.outbox`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.definition import arguments
from stepkeep.edges.safe_text import exception_text, inert_line, type_name
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import InvalidInput, NotAllowed, NotFound
from stepkeep.operations import outbox, sinks, validate
from stepkeep.operations.access import guarded
from stepkeep.operations.declared_hooks import Selection
from stepkeep.operations.outgoing import pending
from stepkeep.sinks.event import OutgoingEvent, Source
from stepkeep.sinks.interface import MAX_REASON, SEND_SECONDS, SinkContext
from stepkeep.sinks.registry import kind_of
from stepkeep.store.deliveries import Report
from stepkeep.store.delivery_rows import SinkRow
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.relay import MAX_ATTEMPTS, backoff_us
from stepkeep.worker.secrets import Given, SecretReader, Secrets, as_secrets

MOST_TAKEN = 1000
LONGEST_LEASE = 3600.0
OPERATOR_KINDS = {
    "jsonl": "writes to the disk of a worker",
    "command": "runs a program on the machine of a worker",
}
"""Kinds of sinks that reach what belongs to the operator, and not to a tenant, and what they do."""
NO_RUN = "00000000-0000-0000-0000-000000000000"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one run that a host program has taken, in order, and until when it holds them.

    Nobody else gets them while the lease lasts. Acknowledge them, or they are given out again.
    """

    run_id: str
    sink: str
    events: tuple[OutgoingEvent, ...]
    fence: int
    attempts: int
    from_: tuple[int, int]
    upto: tuple[int, int]


@guarded("sinks.")
class AsyncSinks(AsyncGroup):
    """The sinks of the tenant: where events go.

    >>> engine.sinks.list()["sinks"]
    []
    """

    async def add(
        self,
        name: str,
        kind: str,
        *,
        on: Iterable[str] = ("*",),
        options: Mapping[str, Any] | None = None,
        events: Iterable[str] = (Source.EMITTED.value,),
        replace: bool = False,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Add a sink for events whose type matches one of the patterns; `replace` changes one that exists.

        `kind` is `webhook`, `jsonl`, `handler`, `host` or one that another distribution adds; `options` are its own.
        `events` says what they are derived from: `emitted`, `dialect`, `transitions`, `endings`, `workers`. A sink
        gets what is emitted after it was added; of the other sources, events of runs that start after it.

        >>> added = engine.sinks.add("orders", "jsonl", on=["order.*"], options={"path": "/var/log/orders.jsonl"})
        >>> added["on"], added["events"]
        (['order.*'], ['emitted'])
        """
        self._require_operator(kind)
        if is_replaced := arguments.flag("add: replace", replace):
            await self._require_operator_of(name)
        return await sinks.add_sink(
            self._transactor,
            name,
            kind,
            on=on,
            options=arguments.mapping("options", {} if options is None else options),
            events=events,
            replace=is_replaced,
            tenant=self._tenant,
            actor=self._actor(by),
        )

    async def remove(
        self, name: str, *, discard: bool = False, reason: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """Remove a sink. If events for it are not delivered, it needs `discard=True` and a reason.

        >>> _ = engine.sinks.add("orders", "host")
        >>> engine.sinks.remove("orders")
        {'removed': 'orders', 'discarded_runs': 0}
        """
        await self._require_operator_of(name)
        return await sinks.remove_sink(
            self._transactor,
            name,
            discard=arguments.flag("remove: discard", discard),
            reason=reason,
            tenant=self._tenant,
            actor=self._actor(by),
        )

    async def list(self) -> dict[str, Any]:
        """All sinks, with how many runs wait for each.

        >>> engine.sinks.list()
        {'sinks': []}
        """
        return await sinks.list_sinks(self._transactor, tenant=self._tenant)

    async def test(
        self, name: str, *, http: HttpPolicy | None = None, secrets: Secrets | Given | None = None
    ) -> dict[str, Any]:
        """Send one event of type `stepkeep.test` to a sink, from this process, and say what became of it.

        >>> _ = engine.sinks.add("orders", "jsonl", options={"path": "/nowhere/orders.jsonl"})
        >>> engine.sinks.test("orders")["delivered"]
        False
        """
        row = await self._row(name)
        self._require_operator(row.kind)
        kind = kind_of(row.kind)
        reader = SecretReader(Secrets() if secrets is None else as_secrets(secrets))

        async def secret(wanted: str) -> str:
            return (await reader.read([wanted]))[wanted]

        if http is not None and not isinstance(http, HttpPolicy):
            raise InvalidInput(f"test: http takes a stepkeep.HttpPolicy, and not {type_name(http)}.")
        reach = (http or HttpPolicy()).reach()
        context = SinkContext(name=row.name, tenant=self._tenant, secret=secret, reach=reach)
        event = OutgoingEvent(
            tenant=self._tenant,
            run_id=NO_RUN,
            seq=0,
            number=0,
            type="stepkeep.test",
            source=Source.EMITTED,
            at=await self._transactor.store.now(),
            data=b'{"test":true}',
            workflow="stepkeep",
            version=1,
            correlation_id=NO_RUN,
        )
        try:
            sink = await kind.open(kind.read(msgspec.json.decode(row.options)), context)
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await sink.send(event)
            finally:
                await sink.close()
        except Exception as problem:  # noqa: BLE001 - sinks and their libraries may raise anything
            said = inert_line(str(problem) or exception_text(problem))[:MAX_REASON]
            return {"sink": row.name, "delivered": False, "error": said}
        return {"sink": row.name, "delivered": True, "error": None}

    def _require_operator(self, kind: str) -> None:
        if self.access.key is not None and kind in OPERATOR_KINDS:
            raise NotAllowed(
                f"a sink of kind {kind} {OPERATOR_KINDS[kind]}. The operator adds, tests and removes it, who opens the "
                "database without a key, and not the key of a tenant.",
                "operator_only",
                self.access.actor,
            )

    async def _require_operator_of(self, name: object) -> None:
        """The same for the sink that is there."""
        if self.access.key is not None and (row := await self._found(name)) is not None:
            self._require_operator(row.kind)

    async def _found(self, name: object) -> SinkRow | None:
        wanted = sinks.sink_name(name)
        there = await self._transactor.store.deliveries.list_sinks(self._tenant)
        return next((row for row in there if row.name == wanted), None)

    async def _row(self, name: object) -> SinkRow:
        if (row := await self._found(name)) is None:
            raise NotFound(f"there is no sink {sinks.sink_name(name)}. `stepkeep sinks list` shows them.")
        return row


class Sinks(Blocking[AsyncSinks]):
    add = blocking(AsyncSinks.add)
    remove = blocking(AsyncSinks.remove)
    list = blocking(AsyncSinks.list)
    test = blocking(AsyncSinks.test)


@guarded("outbox.")
class AsyncOutbox(AsyncGroup):
    """What was not delivered yet: to look at, to send again, to give up; and to take, for a host that relays itself.

    >>> engine.outbox.status()
    {'sinks': []}
    """

    async def list(
        self,
        *,
        state: str | None = None,
        sink: str | None = None,
        run_id: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> dict[str, Any]:
        """Runs with events that are not delivered, by sink and run. `state` is `ready`, `sending` or `dead`.

        >>> engine.outbox.list(state="dead")
        {'deliveries': [], 'next': None}
        """
        return await outbox.list_deliveries(
            self._transactor, tenant=self._tenant, state=state, sink=sink, run_id=run_id, after=after, limit=limit
        )

    async def show(self, run_id: str, sink: str) -> dict[str, Any]:
        """What one run has for one sink: the events that are not delivered, and what people did.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> engine.outbox.show(ended.run_id, "ends")["events"][0]["type"]
        'run.succeeded'
        """
        return await outbox.show_delivery(self._transactor, run_id, sink, tenant=self._tenant)

    async def redrive(
        self, *, run_id: str | None = None, sink: str | None = None, reason: str, by: str | None = None
    ) -> dict[str, Any]:
        """Send dead events again: of one run, of one sink, or of both.

        >>> try:
        ...     engine.outbox.redrive(sink="orders", reason="the receiver is back")
        ... except sk.NotFound as problem:
        ...     print(str(problem).partition(".")[0])
        no delivery of these is dead
        """
        return await outbox.redrive(
            self._transactor, tenant=self._tenant, actor=self._actor(by), reason=reason, run_id=run_id, sink=sink
        )

    async def drop(self, run_id: str, sink: str, event: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Give up the dead event of a run and sink for good; the ones after it are sent.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> try:
        ...     engine.outbox.drop(ended.run_id, "ends", f"{ended.run_id}/9/0", reason="not needed")
        ... except sk.Conflict as problem:
        ...     print(str(problem).rpartition("; ")[2])
        only a dead event can be dropped.
        """
        return await outbox.drop(
            self._transactor, run_id, sink, event, tenant=self._tenant, actor=self._actor(by), reason=reason
        )

    async def status(self) -> dict[str, Any]:
        """How far each sink is behind.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> engine.outbox.status()["sinks"]
        [{'sink': 'ends', 'waiting': 0, 'dead': 0, 'lag_seconds': 0.0}]
        """
        return await outbox.status(self._transactor, tenant=self._tenant)

    async def history(self, *, limit: int = 100) -> dict[str, Any]:
        """What people did to sinks and deliveries, newest first.

        >>> _ = engine.sinks.add("ends", "host")
        >>> engine.outbox.history()["actions"][0]["action"]
        'sink_added'
        """
        return await outbox.history(self._transactor, tenant=self._tenant, limit=limit)

    async def take(self, sink: str, *, limit: int = 100, lease: float = 60.0) -> tuple[Taken, ...]:
        """Take due events of a sink of kind `host`, of up to `limit` runs, for `lease` seconds.

        Nobody else gets them meanwhile. What is not acknowledged by then is given out again, in the same order.
        `engine.outbox("ends")` does the same.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> _ = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox.take("ends")
        >>> taken.events[0].type, engine.outbox.ack(taken)
        ('run.succeeded', True)
        """
        limit = arguments.whole("take: limit", limit, 1, MOST_TAKEN)
        lease_us = int(arguments.number("take: lease", lease, 1, LONGEST_LEASE) * 1_000_000)
        store, name = self._transactor.store.deliveries, sinks.sink_name(sink)
        row = next((one for one in await store.list_sinks(self._tenant) if one.name == name), None)
        if row is None:
            raise NotFound(f"there is no sink {name}. Add it: engine.sinks.add({name!r}, 'host')")
        if kind_of(row.kind).is_relayed:
            raise InvalidInput(f"the sink {name} is relayed by workers; only one of kind host is taken from.")
        taken = []
        for cursor in await store.claim(self._tenant, [(name, limit)], self.access.actor, lease_us):
            found = await pending(self._transactor, cursor, Selection(row.patterns))
            one = Taken(
                run_id=cursor.run_id,
                sink=name,
                events=tuple(found.events),
                fence=cursor.fence,
                attempts=cursor.attempts,
                from_=(cursor.sent, cursor.sent_number),
                upto=found.upto,
            )
            if one.events:
                taken.append(one)
            else:
                await store.report([_report(self._tenant, one, found.upto)])
        return tuple(taken)

    async def ack(self, taken: Taken, event: OutgoingEvent | None = None) -> bool:
        """Acknowledge all events that were taken, or those up to `event`; the rest is due again.

        Returns False if the lease ended and another program has taken them: they may be delivered twice.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> _ = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox("ends")
        >>> engine.outbox.ack(taken, taken.events[0])
        True
        """
        place = _checked(taken).upto if event is None else _place_in(taken, event)
        [accepted] = await self._transactor.store.deliveries.report([_report(self._tenant, taken, place)])
        return accepted

    async def fail(self, taken: Taken, error: str, event: OutgoingEvent | None = None) -> bool:
        """Say that an event could not be delivered: the first one, or `event`; those before it are acknowledged.

        It is due again after a pause that doubles, and dead after ten attempts.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox("ends")
        >>> engine.outbox.fail(taken, "the receiver is down")
        True
        >>> engine.outbox.show(ended.run_id, "ends")["delivery"]["attempts"]
        1
        """
        failed = _checked(taken).events[0] if event is None else _event(event)
        at = next((place for place, one in enumerate(taken.events) if one.id == failed.id), None)
        if at is None:
            raise InvalidInput("fail: the event is not one of those that were taken.")
        before = taken.from_ if at == 0 else (taken.events[at - 1].seq, taken.events[at - 1].number)
        attempts = (taken.attempts if at == 0 else 0) + 1
        report = msgspec.structs.replace(
            _report(self._tenant, taken, before),
            attempts=attempts,
            retry_us=backoff_us(attempts),
            is_dead=attempts >= MAX_ATTEMPTS,
            error=inert_line(validate.words("fail: error", error))[:MAX_REASON],
        )
        [accepted] = await self._transactor.store.deliveries.report([report])
        return accepted

    async def __call__(self, sink: str, *, limit: int = 100, lease: float = 60.0) -> tuple[Taken, ...]:
        """The same as `take`."""
        return await self.take(sink, limit=limit, lease=lease)


class Outbox(Blocking[AsyncOutbox]):
    list = blocking(AsyncOutbox.list)
    show = blocking(AsyncOutbox.show)
    redrive = blocking(AsyncOutbox.redrive)
    drop = blocking(AsyncOutbox.drop)
    status = blocking(AsyncOutbox.status)
    history = blocking(AsyncOutbox.history)
    take = blocking(AsyncOutbox.take)
    ack = blocking(AsyncOutbox.ack)
    fail = blocking(AsyncOutbox.fail)
    __call__ = blocking(AsyncOutbox.__call__)


def _checked(taken: object) -> Taken:
    if not isinstance(taken, Taken):
        raise InvalidInput("ack and fail take what `take` returned.")
    return taken


def _event(event: object) -> OutgoingEvent:
    if not isinstance(event, OutgoingEvent):
        raise InvalidInput(f"ack and fail take an event of what was taken, and not {type_name(event)}.")
    return event


def _place_in(taken: Taken, event: OutgoingEvent) -> tuple[int, int]:
    if _event(event).id not in [one.id for one in _checked(taken).events]:
        raise InvalidInput("ack: the event is not one of those that were taken.")
    is_last = event.id == taken.events[-1].id
    return taken.upto if is_last else (event.seq, event.number)


def _report(tenant: str, taken: Taken, place: tuple[int, int]) -> Report:
    return Report(
        tenant=tenant,
        run_id=taken.run_id,
        sink=taken.sink,
        fence=taken.fence,
        sent=place[0],
        sent_number=place[1],
    )
