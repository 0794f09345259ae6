"""The sinks of the tenant, where events go: `engine.sinks`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stepkeep.definition import arguments
from stepkeep.edges.safe_text import exception_text, inert_line, type_name
from stepkeep.engine.base import AsyncBase, AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import InvalidInput, NotAllowed, NotFound
from stepkeep.operations.access import ADMINISTER, READ
from stepkeep.operations.answers import says
from stepkeep.operations.delivery import sinks
from stepkeep.operations.delivery.sinks import RemovedSink, SinkList, SinkView, TestedSink
from stepkeep.operations.operation import Actor, Name, Words, group, operation
from stepkeep.operations.typed import InPython
from stepkeep.sinks.event import EventSource, OutgoingEvent
from stepkeep.sinks.interface import MAX_REASON, SEND_SECONDS, SinkContext
from stepkeep.sinks.registry import kind_of
from stepkeep.store.rows import SinkRow
from stepkeep.worker.attempts.secrets import Given, SecretReader, Secrets, as_secrets
from stepkeep.worker.executors.http import HttpPolicy

OPERATOR_KINDS = {"jsonl": "writes to the disk of a worker", "command": "runs a program on the machine of a worker"}
"""Kinds of sinks that reach what belongs to the operator, and not to a tenant, and what they do."""
NO_RUN = "00000000-0000-0000-0000-000000000000"

SinkName = Annotated[str, Meta(min_length=1, max_length=255, description="The name of a sink.", examples=["orders"])]
Kind = Annotated[
    str, Meta(min_length=1, max_length=255, description="webhook, message, handler, host, redis, nats or kafka.")
]
Patterns = Annotated[
    Iterable[str],
    InPython(
        Annotated[
            list[Annotated[str, Meta(max_length=255)]], Meta(max_length=100, description="Patterns of types of events.")
        ]
    ),
]
Options = Annotated[
    Mapping[str, Any] | None,
    InPython(Annotated[dict[str, Any], says("The options of the kind. Secrets are named, never given.")]),
]
Sources = Annotated[
    Iterable[str],
    InPython(
        Annotated[
            list[Literal["emitted", "dialect", "transitions", "endings", "workers"]],
            Meta(min_length=1, max_length=5, description="Which events there are."),
        ]
    ),
]
EXAMPLE = {"kind": "webhook", "on": ["order.*"], "options": {"url": "https://example.com/in", "secrets": ["HOOK"]}}


@group("sinks", "Sinks")
class AsyncSinks(AsyncGroup):
    """The sinks of the tenant: where events go.

    >>> engine.sinks.list().sinks
    []
    """

    def __init__(self, engine: AsyncBase) -> None:
        super().__init__(engine)
        self._policies = engine.policies

    @operation(
        ADMINISTER,
        "POST /sinks",
        "add_sink",
        "Add a sink",
        status=201,
        done="Added",
        repeatable=False,
        example={"name": "orders", **EXAMPLE},
    )
    async def add(
        self,
        name: Name,
        kind: Kind,
        *,
        on: Patterns = ("*",),
        options: Options = None,
        events: Sources = (EventSource.EMITTED.value,),
        replace: Annotated[bool, says("Change the sink of this name, if there is one.")] = False,
        by: Actor = None,
    ) -> SinkView:
        """Add a sink for events whose type matches one of the patterns; `replace` changes one that exists.

        `kind` is `webhook`, `jsonl`, `handler`, `host` or one that another distribution adds; `options` are its own.
        `events` says what they are derived from: `emitted`, `dialect`, `transitions`, `endings`, `workers`. A sink
        gets what is emitted after it was added; of the other sources, events of runs that start after it. One of kind
        jsonl or command is the operator's, without a key.

        >>> added = engine.sinks.add("orders", "jsonl", on=["order.*"], options={"path": "/var/log/orders.jsonl"})
        >>> added.on, added.events
        (['order.*'], ['emitted'])
        """
        return await self._save(name, kind, by, on=on, options=options, events=events, replace=replace)

    @operation(
        ADMINISTER,
        "PUT /sinks/{name}",
        "replace_sink",
        "Add a sink or replace it, as when a secret is rotated",
        example=EXAMPLE,
    )
    async def replace(
        self,
        name: SinkName,
        kind: Kind,
        *,
        on: Patterns = ("*",),
        options: Options = None,
        events: Sources = (EventSource.EMITTED.value,),
        by: Actor = None,
    ) -> SinkView:
        """Add a sink, or change the one of this name. Events that are not delivered stay, and go to the new place.
        While a secret is rotated, name the new one and the old one: deliveries are signed with both.

        >>> _ = engine.sinks.add("orders", "host")
        >>> engine.sinks.replace("orders", "host", on=["order.*"]).on
        ['order.*']
        """
        return await self._save(name, kind, by, on=on, options=options, events=events, replace=True)

    async def _save(
        self, name: str, kind: str, by: str | None, *, options: Mapping[str, Any] | None, replace: bool, **more: Any
    ) -> SinkView:
        self._require_operator(kind)
        if replace:
            await self._require_operator_of(name)
        plain = arguments.mapping("options", {} if options is None else options)
        return await sinks.add_sink(
            self._transactor, name, kind, options=plain, replace=replace, caller=self._caller(by), **more
        )

    @operation(ADMINISTER, "DELETE /sinks/{name}", "remove_sink", "Remove a sink")
    async def remove(
        self,
        name: SinkName,
        *,
        discard: Annotated[bool, says("Lose the events that are not delivered; needs a reason.")] = False,
        reason: Words = "",
        by: Actor = None,
    ) -> RemovedSink:
        """Remove a sink. If events for it are not delivered, it needs `discard=True` and a reason.

        >>> _ = engine.sinks.add("orders", "host")
        >>> engine.sinks.remove("orders")
        RemovedSink(removed='orders', discarded_runs=0)
        """
        await self._require_operator_of(name)
        return await sinks.remove_sink(self._transactor, name, discard=discard, reason=reason, caller=self._caller(by))

    @operation(READ, "GET /sinks", "list_sinks", "List sinks", pages="sinks", page_key="name", agents="reads")
    async def list(self) -> SinkList:
        """All sinks, with how many runs wait for each.

        >>> engine.sinks.list().sinks
        []
        """
        return await sinks.list_sinks(self._transactor, tenant=self._tenant)

    @operation(
        ADMINISTER,
        "POST /sinks/{name}/test",
        "test_sink",
        "Send a test event to a sink",
        here=("http", "secrets"),
        repeatable=False,
    )
    async def test(
        self,
        name: SinkName,
        *,
        http: Annotated[HttpPolicy | None, InPython(Any)] = None,
        secrets: Annotated[Secrets | Given | None, InPython(Any)] = None,
    ) -> TestedSink:
        """Send one event of type `stepkeep.test` to a sink, from this process and with its secrets, and say what became
        of it. What is not given is as for workers of this engine.

        >>> _ = engine.sinks.add("orders", "jsonl", options={"path": "/nowhere/orders.jsonl"})
        >>> engine.sinks.test("orders").delivered
        False
        """
        row = await self._row(name)
        self._require_operator(row.kind)
        kind = kind_of(row.kind)
        given = self._policies.get("secrets", Secrets()) if secrets is None else secrets
        reader = SecretReader(as_secrets(given))

        async def secret(wanted: str) -> str:
            return (await reader.read([wanted]))[wanted]

        if http is not None and not isinstance(http, HttpPolicy):
            raise InvalidInput(f"test: http takes a stepkeep.HttpPolicy, and not {type_name(http)}.")
        reach = (http or self._policies.get("http") or HttpPolicy()).reach()
        context = SinkContext(name=row.name, tenant=self._tenant, secret=secret, reach=reach)
        event = OutgoingEvent(
            tenant=self._tenant,
            run_id=NO_RUN,
            seq=0,
            number=0,
            type="stepkeep.test",
            source=EventSource.EMITTED,
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
            return TestedSink(sink=row.name, delivered=False, error=said)
        return TestedSink(sink=row.name, delivered=True, error=None)

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
    add, replace, remove = blocking(AsyncSinks.add), blocking(AsyncSinks.replace), blocking(AsyncSinks.remove)
    list, test = blocking(AsyncSinks.list), blocking(AsyncSinks.test)
