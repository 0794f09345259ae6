"""The mailbox as operators see it: list what is kept for runs that do not exist yet, drop it, forget what is over.

It delivers nothing: `by_key.py` and `start.py` do. `correlated_run` names the one live run with a
correlation id. The engine calls it, and workers call `forget` once an hour.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stepkeep.kernel.errors import Conflict, NotFound, PayloadSealed
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_MESSAGE, RunFilter
from stepkeep.store.rows import MailboxMessage

FORGET_AT_ONCE = 1000
FORGET_ROUNDS = 1000
"""A sweep forgets at most this many times `FORGET_AT_ONCE` messages."""


class KeptMessage(Answer, kw_only=True):
    """A message that is kept for the next run with its business key."""

    key: str
    id: str
    name: str
    payload: Annotated[Any, says("null also where it is encrypted, and this process has no key for it.")]
    sender: str
    arrived_at: str
    expires_at: str
    expired: bool


class MessageList(Answer, kw_only=True):
    """Messages that wait for a run."""

    messages: list[KeptMessage]
    more: Annotated[bool, says("Whether there are others.")]


class DroppedMessages(Answer, kw_only=True):
    """The ids of the messages that were dropped."""

    key: str
    dropped: list[str]


async def list_mailbox(transactor: Transactor, *, tenant: str, key: str | None, limit: int) -> MessageList:
    """The messages that are kept (for one business key), in order. `more` tells that there are others."""
    wanted = None if key is None else validate.key("the business key", key)
    now = await transactor.store.now()
    found = await transactor.store.list_mailbox(tenant, wanted, FIRST_MESSAGE, limit + 1)
    listed = [_record(transactor, one, now) for one in found[:limit]]
    return MessageList(messages=listed, more=len(found) > limit)


async def drop(store: Store, key: str, message_id: str | None, *, tenant: str) -> DroppedMessages:
    """Drop what is kept for a business key, or one message of it. A duplicate of it is not kept again."""
    wanted = validate.key("the business key", key)
    one = None if message_id is None else validate.key("the message id", message_id)
    dropped = await again_if_contended(lambda: store.drop_mailbox(tenant, wanted, one))
    if not dropped:
        what = "no message is" if one is None else f"the message {one!r} is not"
        raise NotFound(f"{what} kept for the business key {wanted!r}. `stepkeep mailbox list` shows what is.")
    return DroppedMessages(key=wanted, dropped=dropped)


async def forget(store: Store) -> int:
    """Delete rows of messages by key whose time has come. Returns how many."""
    forgotten = 0
    for _ in range(FORGET_ROUNDS):
        found = await again_if_contended(lambda: store.forget_mailbox(FORGET_AT_ONCE))
        forgotten += found
        if found < FORGET_AT_ONCE:
            break
    return forgotten


def _record(transactor: Transactor, one: MailboxMessage, now: int) -> KeptMessage:
    return KeptMessage(
        key=one.key,
        id=one.id,
        name=one.name,
        payload=_payload(transactor, one),
        sender=one.sender,
        arrived_at=instant(one.arrived_at),
        expires_at=instant(one.expires_at),
        expired=not one.is_kept(now),
    )


def _payload(transactor: Transactor, one: MailboxMessage) -> Any:
    try:
        return msgspec.json.decode(transactor.payloads.seal.opened(one.payload or b"null"))
    except PayloadSealed:
        return None


LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)
MOST_NAMED = 20


async def correlated_run(store: Store, correlation_id: str, *, tenant: str) -> str:
    """The id of the only live run with this correlation id; otherwise the sender is told which there are."""
    wanted = validate.key("the correlation id", correlation_id)
    which = RunFilter(tenant=tenant, states=LIVE, correlation_id=wanted, limit=MOST_NAMED + 1)
    found = [record.run.id for record in await store.list_runs(which)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"no live run has the correlation id {wanted!r}; a message by correlation id is not kept.")
    named = ", ".join(found[:MOST_NAMED]) + (", ..." if len(found) > MOST_NAMED else "")
    raise Conflict(
        f"{len(found)} live runs have the correlation id {wanted!r}: {named}. Send to one of them by its run id.",
        {"run_ids": found[:MOST_NAMED]},
    )
