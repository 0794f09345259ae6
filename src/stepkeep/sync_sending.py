"""Sinks and the outbox for programs without an event loop: the methods of `sending`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepkeep.sending import AsyncOutbox, AsyncSinks, Taken
from stepkeep.sinks.event import OutgoingEvent, Source
from stepkeep.sync_administration import Call
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.secrets import Given, Secrets


class Sinks:
    """The sinks of the tenant: where events go.

    >>> engine.sinks.list()["sinks"]
    []
    """

    def __init__(self, core: AsyncSinks, call: Call) -> None:
        self._core, self._call = core, call

    def add(
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
        return self._call(self._core.add(name, kind, on=on, options=options, events=events, replace=replace, by=by))

    def remove(self, name: str, *, discard: bool = False, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Remove a sink. If events for it are not delivered, it needs `discard=True` and a reason.

        >>> _ = engine.sinks.add("orders", "host")
        >>> engine.sinks.remove("orders")
        {'removed': 'orders', 'discarded_runs': 0}
        """
        return self._call(self._core.remove(name, discard=discard, reason=reason, by=by))

    def list(self) -> dict[str, Any]:
        """All sinks, with how many runs wait for each.

        >>> engine.sinks.list()
        {'sinks': []}
        """
        return self._call(self._core.list())

    def test(
        self, name: str, *, http: HttpPolicy | None = None, secrets: Secrets | Given | None = None
    ) -> dict[str, Any]:
        """Send one event of type `stepkeep.test` to a sink, from this process, and say what became of it.

        >>> _ = engine.sinks.add("orders", "jsonl", options={"path": "/nowhere/orders.jsonl"})
        >>> engine.sinks.test("orders")["delivered"]
        False
        """
        return self._call(self._core.test(name, http=http, secrets=secrets))


class Outbox:
    """What was not delivered yet: to look at, to send again, to give up; and to take, for a host that relays itself.

    >>> engine.outbox.status()
    {'sinks': []}
    """

    def __init__(self, core: AsyncOutbox, call: Call) -> None:
        self._core, self._call = core, call

    def list(
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
        return self._call(self._core.list(state=state, sink=sink, run_id=run_id, after=after, limit=limit))

    def show(self, run_id: str, sink: str) -> dict[str, Any]:
        """What one run has for one sink: the events that are not delivered, and what people did.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> engine.outbox.show(ended.run_id, "ends")["events"][0]["type"]
        'run.succeeded'
        """
        return self._call(self._core.show(run_id, sink))

    def redrive(
        self, *, run_id: str | None = None, sink: str | None = None, reason: str, by: str | None = None
    ) -> dict[str, Any]:
        """Send dead events again: of one run, of one sink, or of both.

        >>> try:
        ...     engine.outbox.redrive(sink="orders", reason="the receiver is back")
        ... except sk.NotFound as problem:
        ...     print(str(problem).partition(".")[0])
        no delivery of these is dead
        """
        return self._call(self._core.redrive(run_id=run_id, sink=sink, reason=reason, by=by))

    def drop(self, run_id: str, sink: str, event: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Give up the dead event of a run and sink for good; the ones after it are sent.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> try:
        ...     engine.outbox.drop(ended.run_id, "ends", f"{ended.run_id}/9/0", reason="not needed")
        ... except sk.Conflict as problem:
        ...     print(str(problem).rpartition("; ")[2])
        only a dead event can be dropped.
        """
        return self._call(self._core.drop(run_id, sink, event, reason=reason, by=by))

    def status(self) -> dict[str, Any]:
        """How far each sink is behind.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> engine.outbox.status()["sinks"]
        [{'sink': 'ends', 'waiting': 0, 'dead': 0, 'lag_seconds': 0.0}]
        """
        return self._call(self._core.status())

    def history(self, *, limit: int = 100) -> dict[str, Any]:
        """What people did to sinks and deliveries, newest first.

        >>> _ = engine.sinks.add("ends", "host")
        >>> engine.outbox.history()["actions"][0]["action"]
        'sink_added'
        """
        return self._call(self._core.history(limit=limit))

    def take(self, sink: str, *, limit: int = 100, lease: float = 60.0) -> tuple[Taken, ...]:
        """Take due events of a sink of kind `host`, of up to `limit` runs, for `lease` seconds.

        Nobody else gets them meanwhile. What is not acknowledged by then is given out again, in the same order.
        `engine.outbox("ends")` does the same.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> _ = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox.take("ends")
        >>> taken.events[0].type, engine.outbox.ack(taken)
        ('run.succeeded', True)
        """
        return self._call(self._core.take(sink, limit=limit, lease=lease))

    def ack(self, taken: Taken, event: OutgoingEvent | None = None) -> bool:
        """Acknowledge all events that were taken, or those up to `event`; the rest is due again.

        Returns False if the lease ended and another program has taken them: they may be delivered twice.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> _ = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox("ends")
        >>> engine.outbox.ack(taken, taken.events[0])
        True
        """
        return self._call(self._core.ack(taken, event))

    def fail(self, taken: Taken, error: str, event: OutgoingEvent | None = None) -> bool:
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
        return self._call(self._core.fail(taken, error, event))

    def __call__(self, sink: str, *, limit: int = 100, lease: float = 60.0) -> tuple[Taken, ...]:
        """The same as `take`."""
        return self.take(sink, limit=limit, lease=lease)
