"""Signs the ends of the journals of finished runs, after their end: no commit of a run waits for a signature.

It finds what a key has not signed, in the order of the ids, and keeps each signature in a table of its own. A run that
ends late is found again, because every look begins at the oldest run. The engine calls it, by command or on a timer.
"""

from __future__ import annotations

from typing import Any

from stepkeep.evidence.signing import SigningKey
from stepkeep.evidence.verifier import head_message
from stepkeep.operations.transact import Transactor
from stepkeep.store.records import FIRST_ID, SignedHead, UnsignedHead

BATCH = 100
"""How many heads are signed between two writes."""


async def sign_heads(transactor: Transactor, key: SigningKey, *, tenant: str, limit: int) -> dict[str, Any]:
    """Sign the heads of at most `limit` finished runs of a tenant that this key has not signed."""
    store, after, signed = transactor.store, FIRST_ID, 0
    while signed < limit:
        found = await store.find_unsigned(tenant, key.id, after, min(BATCH, limit - signed))
        if not found:
            return {"signed": signed, "key_id": key.id, "is_complete": True}
        now = await store.now()
        await store.add_signed_heads([signed_head(key, tenant, one, now) for one in found])
        after, signed = found[-1].run_id, signed + len(found)
    return {"signed": signed, "key_id": key.id, "is_complete": False}


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


def pack_line(one: SignedHead) -> dict[str, Any]:
    """A kept signature as a pack has it."""
    return {
        "over": "head",
        "key_id": one.key_id,
        "public_key": one.public_key,
        "signature": one.signature,
        "signed_at": one.signed_at,
    }
