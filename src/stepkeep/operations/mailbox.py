"""The mailbox as operators see it: list what is kept for runs that do not exist yet, drop it, forget what is over.

It delivers nothing: `by_key.py` and `start.py` do. The engine calls it, and workers call `forget` once an hour.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stepkeep.kernel.errors import InvalidInput, NotFound, PayloadSealed
from stepkeep.operations import validate
from stepkeep.operations.instants import instant
from stepkeep.operations.transact import Transactor, again_if_contended
from stepkeep.store.mailbox import MailboxMessage
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_MESSAGE

MOST_LISTED = 10_000
FORGET_AT_ONCE = 1000
FORGET_ROUNDS = 1000
"""A sweep forgets at most this many times `FORGET_AT_ONCE` messages."""


async def list_mailbox(transactor: Transactor, *, tenant: str, key: str | None, limit: int) -> dict[str, Any]:
    """The messages that are kept (for one business key), in order. `more` tells that there are others."""
    if not 0 < limit <= MOST_LISTED:
        raise InvalidInput(f"the limit must be from 1 to {MOST_LISTED}")
    wanted = None if key is None else validate.key("the business key", key)
    now = await transactor.store.now()
    found = await transactor.store.list_mailbox(tenant, wanted, FIRST_MESSAGE, limit + 1)
    listed = [_record(transactor, one, now) for one in found[:limit]]
    return {"messages": listed, "more": len(found) > limit}


async def drop(store: Store, key: str, message_id: str | None, *, tenant: str) -> dict[str, Any]:
    """Drop what is kept for a business key, or one message of it. A duplicate of it is not kept again."""
    wanted = validate.key("the business key", key)
    one = None if message_id is None else validate.key("the message id", message_id)
    dropped = await again_if_contended(lambda: store.drop_mailbox(tenant, wanted, one))
    if not dropped:
        what = "no message is" if one is None else f"the message {one!r} is not"
        raise NotFound(f"{what} kept for the business key {wanted!r}. `stepkeep mailbox list` shows what is.")
    return {"key": wanted, "dropped": dropped}


async def forget(store: Store) -> int:
    """Delete rows of messages by key whose time has come. Returns how many."""
    forgotten = 0
    for _ in range(FORGET_ROUNDS):
        found = await again_if_contended(lambda: store.forget_mailbox(FORGET_AT_ONCE))
        forgotten += found
        if found < FORGET_AT_ONCE:
            break
    return forgotten


def _record(transactor: Transactor, one: MailboxMessage, now: int) -> dict[str, Any]:
    return {
        "key": one.key,
        "id": one.id,
        "name": one.name,
        "payload": _payload(transactor, one),
        "sender": one.sender,
        "arrived_at": instant(one.arrived_at),
        "expires_at": instant(one.expires_at),
        "expired": not one.is_kept(now),
    }


def _payload(transactor: Transactor, one: MailboxMessage) -> Any:
    try:
        return msgspec.json.decode(transactor.payloads.seal.opened(one.payload or b"null"))
    except PayloadSealed:
        return None
