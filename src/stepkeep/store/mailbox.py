"""The values of messages by business key: what is kept for a key, what a change asks about keys, and what it finds.

Plain values, like those of `change.py`: a store converts them to columns and interprets none. `operations/by_key.py`
and `operations/start.py` build them.
"""

from __future__ import annotations

import msgspec

BusinessKey = tuple[str, str]
"""(tenant, business key)."""

NO_RUN = ""
"""The run id of a want that names no run: it loads what does not belong to one."""


class MailboxMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was sent by business key.

    It is kept while it has a payload: for the next run with this key, until `expires_at`. A delivered one names its
    run. Its row stays until `forget_at`, so that the same id is recognised. `number` orders the kept ones of a key.
    `key_id` is the API key of the sender.
    """

    tenant: str
    key: str
    id: str
    number: int
    name: str
    payload: bytes | None
    sender: str
    vouched_by: str | None
    key_id: str | None
    arrived_at: int
    expires_at: int
    forget_at: int
    run_id: str | None = None

    def is_kept(self, now: int) -> bool:
        """Whether it may still be delivered."""
        return self.payload is not None and self.expires_at > now


class KeyWant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One business key to lock, and what to read under the lock: the messages with these ids, and, if `kept`, every
    message that is kept for it."""

    tenant: str
    key: str
    ids: tuple[str, ...] = ()
    kept: bool = False

    @property
    def business_key(self) -> BusinessKey:
        return (self.tenant, self.key)


class Mailbox(msgspec.Struct, kw_only=True):
    """What is known about a locked business key. `holder` is the live run that has it. `known` are the messages asked
    for by id. `kept` are those kept for it, in order, if they were asked for; `count`, `size_bytes` and `last_number`
    describe all that have a payload, expired ones too."""

    holder: str | None = None
    known: dict[str, MailboxMessage] = {}
    kept: tuple[MailboxMessage, ...] = ()
    count: int = 0
    size_bytes: int = 0
    last_number: int = 0
