"""The mailbox for programs without an event loop: the methods of `messages`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from typing import Any

from stepkeep.messages import AsyncMailbox
from stepkeep.sync_administration import Call


class Mailbox:
    """Messages that are kept for a business key that no live run has.

    >>> _ = engine.send(key="parcel-7", name="arrived", payload={"door": 3}, message_id="m-1")
    >>> [message["id"] for message in engine.mailbox.list("parcel-7")["messages"]]
    ['m-1']
    """

    def __init__(self, core: AsyncMailbox, call: Call) -> None:
        self._core, self._call = core, call

    def list(self, key: str | None = None, *, limit: int = 100) -> dict[str, Any]:
        """The kept messages, or those for one business key.

        >>> engine.mailbox.list()["messages"]
        []
        """
        return self._call(self._core.list(key, limit=limit))

    def drop(self, key: str, message_id: str | None = None) -> dict[str, Any]:
        """Drop what is kept for a business key, or one message of it. A duplicate of it is not kept again.

        >>> _ = engine.send(key="parcel-8", name="arrived", message_id="m-1")
        >>> engine.mailbox.drop("parcel-8")["dropped"]
        ['m-1']
        """
        return self._call(self._core.drop(key, message_id))
