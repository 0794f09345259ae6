"""Messages to runs: `engine.send`, which a client writes anew, because it has two addresses; and `engine.mailbox`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from stepkeep.definition.bounds import MESSAGE_TTL
from stepkeep.definition.python.retry import Duration, microseconds
from stepkeep.engine.arguments import encode_payload, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.engine.definitions import AsyncDefinitions, Runnable, names_version
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.messages import mailbox
from stepkeep.operations.messages.mailbox import DroppedMessages, MessageList, correlated_run
from stepkeep.operations.operation import Limit, Name, group, operation
from stepkeep.operations.people import people
from stepkeep.operations.people.people import MessageSent
from stepkeep.operations.pipeline import plans
from stepkeep.operations.pipeline.start import StartRequest


class AsyncMessages(AsyncDefinitions):
    """Sending messages to runs."""

    async def send(
        self,
        run_id: str | None = None,
        name: str = "",
        payload: Any = None,
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        start: Runnable | None = None,
        input: Any = None,  # noqa: A002 - the word users know
        idempotency_key: str | None = None,
        ttl: Duration | None = None,
        message_id: str | None = None,
        by: str | None = None,
    ) -> MessageSent:
        """Send a message to a run: by its id, its business key or its correlation id. It is kept until a step waits
        for it; one by business key also until a run has the key. With `start`, a run is started if none has it.

        >>> waiting = engine.run(delivery)
        >>> engine.send(waiting.run_id, "arrived", {"door": 3}, message_id="parcel-1", by="courier").repeated
        False
        >>> engine.send(key="parcel-9", name="noted", payload={"door": 3}).run_id is None
        True
        >>> engine.send(key="parcel-9", name="arrived", start=delivery).started
        True
        """
        if sum(one is not None for one in (run_id, key, correlation_id)) != 1:
            raise InvalidInput(
                "send to one of these: a run id, a business key (key=), a correlation id (correlation_id=)."
            )
        if key is None and (start is not None or ttl is not None):
            name = "ttl" if start is None else "start"
            raise InvalidInput(f"send: {name} goes with key=, the business key of the run.")
        if start is None and (input is not None or idempotency_key is not None):
            raise InvalidInput("send: input and idempotency_key go with start=, the workflow to start.")
        if key is not None:
            return await self._send_by_key(key, name, payload, start, input, idempotency_key, ttl, message_id, by)
        if correlation_id is not None:
            run_id = await correlated_run(self.store, correlation_id, tenant=self.tenant)
        accepted = await people.send(
            self.transactor,
            validate.run_id(run_id),
            name,
            encode_payload(payload),
            caller=self._caller(by),
            message_id=message_id,
        )
        return await self._sent({**accepted.record, "repeated": accepted.repeated, "run_id": run_id})

    async def _send_by_key(
        self,
        key: str,
        name: str,
        payload: Any,
        start: Runnable | None,
        given: Any,
        idempotency_key: str | None,
        ttl: Duration | None,
        message_id: str | None,
        by: str | None,
    ) -> MessageSent:
        request = None
        caller = self._caller(by)
        if start is not None:
            self.access.require(Scope.START, operation="send with start")
            request = StartRequest(
                plan=await self._plan(start),
                names_version=names_version(start),
                caller=caller,
                input=encode_payload({} if given is None else given),
                business_key=validate.key("the business key", key),
                idempotency_key=optional_key("the idempotency key", idempotency_key),
                scope=self._scope(),
            )
        sent = await self._key_sender.send(
            key,
            name,
            encode_payload(payload),
            caller=caller,
            message_id=message_id,
            ttl=None if ttl is None else microseconds(ttl, what="send: ttl", bounds=MESSAGE_TTL),
            start=request,
        )
        return await self._sent(sent.record())

    async def _sent(self, record: Mapping[str, Any]) -> MessageSent:
        """What became of a message, with the name of the step that took it."""
        if record.get("consumed_by") is not None:
            plan = await plans.plan_of(self.transactor, self.tenant, record["run_id"])
            record = {**record, "consumed_by": plan.at(record["consumed_by"]).name}
        return MessageSent(**record)


Whose = Annotated[str, Meta(min_length=1, max_length=255, description="Whose messages.", examples=["order-7"])]


@group("mailbox", "Messages")
class AsyncMailbox(AsyncGroup):
    """Messages that are kept for a business key that no live run has.

    >>> _ = engine.send(key="parcel-7", name="arrived", payload={"door": 3}, message_id="m-1")
    >>> [message.id for message in engine.mailbox.list("parcel-7").messages]
    ['m-1']
    """

    @operation(
        READ,
        "GET /mailbox",
        "list_mailbox",
        "List messages that wait for a run",
        names={"key": "business_key"},
        pages="messages",
        page_size=100,
        agents="reads",
    )
    async def list(
        self, key: Annotated[Name | None, says("Of one business key.")] = None, *, limit: Limit = 100
    ) -> MessageList:
        """The kept messages, or those for one business key.

        >>> engine.mailbox.list().messages
        []
        """
        return await mailbox.list_mailbox(self._transactor, tenant=self._tenant, key=key, limit=limit)

    @operation(
        OPERATE,
        "DELETE /mailbox/{business_key:path}",
        "drop_mailbox",
        "Drop messages that wait for a run",
        names={"key": "business_key"},
    )
    async def drop(
        self, key: Whose, message_id: Annotated[Name | None, says("Only this one.")] = None
    ) -> DroppedMessages:
        """Drop what is kept for a business key, or one message of it. A duplicate of it is not kept again.

        >>> _ = engine.send(key="parcel-8", name="arrived", message_id="m-1")
        >>> engine.mailbox.drop("parcel-8").dropped
        ['m-1']
        """
        return await mailbox.drop(self._store, key, message_id, tenant=self._tenant)


class Mailbox(Blocking[AsyncMailbox]):
    list, drop = blocking(AsyncMailbox.list), blocking(AsyncMailbox.drop)
