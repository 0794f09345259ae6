"""Signs the ends of the journals of finished runs, after their end: no commit of a run waits for a signature.

It finds what a key has not signed, in the order of the ids, and keeps each signature in a table of its own. A sweep
goes on from where nothing is left to sign; a run that ends late is found, because that place is never behind an
unfinished run. The engine calls it by command, `stepkeep worker` sweeps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TypedDict

from stepkeep.evidence.signing import SigningKey
from stepkeep.evidence.verifier import head_message
from stepkeep.kernel.errors import StepkeepError
from stepkeep.operations.answers import Answer
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.records import FIRST_ID, SignedHead, UnsignedHead

BATCH = 100
"""How many heads are signed between two writes."""

SWEEP_SECONDS = 5.0
MARGIN_SECONDS = 3600.0
"""How much older than the present a run must be before a sweep passes it for good: ids are made by clients whose clocks
may be late, and a start takes a while to commit."""

log = logging.getLogger(__name__)


class HeadsSigned(Answer, kw_only=True):
    """How many ends of journals were signed with which key, and whether these were all."""

    signed: int
    key_id: str
    is_complete: bool


async def sign_heads(
    transactor: Transactor, key: SigningKey, *, tenant: str, limit: int, after: str = FIRST_ID
) -> HeadsSigned:
    """Sign the heads of at most `limit` finished runs of a tenant after an id that this key has not signed."""
    store, signed = transactor.store, 0
    while signed < limit:
        found = await store.find_unsigned(tenant, key.id, after, min(BATCH, limit - signed))
        if not found:
            return HeadsSigned(signed=signed, key_id=key.id, is_complete=True)
        now = await store.now()
        await store.add_signed_heads([signed_head(key, tenant, one, now) for one in found])
        after, signed = found[-1].run_id, signed + len(found)
    return HeadsSigned(signed=signed, key_id=key.id, is_complete=False)


class HeadSweeper:
    """Signs what has ended since it looked last. Only its first sweep looks at every run."""

    def __init__(
        self, transactor: Transactor, key: SigningKey, *, tenant: str, margin_seconds: float = MARGIN_SECONDS
    ) -> None:
        self._transactor, self._key, self._tenant = transactor, key, tenant
        self._margin_us = round(margin_seconds * 1_000_000)
        self.after = FIRST_ID
        """Every run up to this id has ended and is signed."""

    async def sweep(self, limit: int = 10_000) -> int:
        """Sign at most `limit` heads; returns how many."""
        store = self._transactor.store
        # Before the look: a run that ends after this is not passed.
        oldest = await store.find_oldest_live(self._tenant)
        made_by = await store.now() - store.clock_offset - self._margin_us
        done = await sign_heads(self._transactor, self._key, tenant=self._tenant, limit=limit, after=self.after)
        if done.is_complete:
            signed = first_id_at(made_by)
            self.after = max(self.after, signed if oldest is None else min(signed, _id_before(oldest)))
        return done.signed

    async def follow(self, interval: float = SWEEP_SECONDS) -> AsyncIterator[int]:
        """Sweep again and again, and tell each sweep that signed something. An outage is waited out."""
        while True:
            try:
                if signed := await self.sweep():
                    yield signed
            except StepkeepError as problem:
                log.warning("the heads of finished runs are not signed now: %s", problem)
            await asyncio.sleep(interval)


def first_id_at(microseconds: int) -> str:
    """The smallest id of a run that is made at this time: ids begin with their time in milliseconds.

    >>> first_id_at(1_700_000_000_000_000)
    '018bcfe5-6800-0000-0000-000000000000'
    """
    text = f"{max(0, microseconds) // 1000:012x}"
    return f"{text[:8]}-{text[8:12]}-0000-0000-000000000000"


def _id_before(run_id: str) -> str:
    return f"{run_id[:13]}-0000-0000-000000000000"


def signed_head(key: SigningKey, tenant: str, head: UnsignedHead, now: int) -> SignedHead:
    """The signature over the end of one journal."""
    message = head_message(tenant, head.run_id, head.entries, head.head.hex())
    return SignedHead(
        tenant=tenant,
        run_id=head.run_id,
        key_id=key.id,
        entries=head.entries,
        head=head.head,
        public_key=key.public.hex(),
        signature=key.sign(message).hex(),
        signed_at=now,
    )


class SignatureLine(TypedDict):
    """A signature over a head as a pack has it."""

    over: str
    key_id: str
    public_key: str
    signature: str
    signed_at: int


def pack_line(one: SignedHead) -> SignatureLine:
    """A kept signature as a pack has it."""
    return {
        "over": "head",
        "key_id": one.key_id,
        "public_key": one.public_key,
        "signature": one.signature,
        "signed_at": one.signed_at,
    }
