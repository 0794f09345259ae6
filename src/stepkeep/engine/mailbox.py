"""Messages that are kept for a business key that no live run has: `engine.mailbox`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import mailbox
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.mailbox import DroppedMessages, MessageList
from stepkeep.operations.operation import Limit, Name, group, operation

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
    list = blocking(AsyncMailbox.list)
    drop = blocking(AsyncMailbox.drop)
