"""Messages as the engine offers them: `engine.send` by run, business key or correlation id, and `engine.mailbox`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.definition import arguments
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations import mailbox
from stepkeep.operations.access import guarded


def one_target(run_id: object, key: object, correlation_id: object) -> None:
    """Refuse a message that names no run, or names it in two ways."""
    if sum(one is not None for one in (run_id, key, correlation_id)) != 1:
        raise InvalidInput("send to one of these: a run id, a business key (key=), a correlation id (correlation_id=).")


def goes_with_key(key: object, **others: object) -> None:
    """Refuse arguments that have no meaning without a business key."""
    given = [name for name, value in others.items() if value is not None]
    if key is None and given:
        raise InvalidInput(f"send: {given[0]} goes with key=, the business key of the run.")


@guarded("mailbox.")
class AsyncMailbox(AsyncGroup):
    """Messages that are kept for a business key that no live run has.

    >>> _ = engine.send(key="parcel-7", name="arrived", payload={"door": 3}, message_id="m-1")
    >>> [message["id"] for message in engine.mailbox.list("parcel-7")["messages"]]
    ['m-1']
    """

    async def list(self, key: str | None = None, *, limit: int = 100) -> dict[str, Any]:
        """The kept messages, or those for one business key.

        >>> engine.mailbox.list()["messages"]
        []
        """
        return await mailbox.list_mailbox(
            self._transactor,
            tenant=self._tenant,
            key=key,
            limit=arguments.whole("mailbox.list: limit", limit, 1, mailbox.MOST_LISTED),
        )

    async def drop(self, key: str, message_id: str | None = None) -> dict[str, Any]:
        """Drop what is kept for a business key, or one message of it. A duplicate of it is not kept again.

        >>> _ = engine.send(key="parcel-8", name="arrived", message_id="m-1")
        >>> engine.mailbox.drop("parcel-8")["dropped"]
        ['m-1']
        """
        return await mailbox.drop(self._transactor.store, key, message_id, tenant=self._tenant)


class Mailbox(Blocking[AsyncMailbox]):
    list = blocking(AsyncMailbox.list)
    drop = blocking(AsyncMailbox.drop)
