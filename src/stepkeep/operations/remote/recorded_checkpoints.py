"""Reads the checkpoints that earlier attempts of a step have recorded, page by page in the order of recording.

Pages end at a number of rows and, where values are given whole, at a number of bytes. It changes nothing. The worker
reads its own, and `remote_work` those of remote workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from stepkeep.operations.remote.recorded_calls import PAGE_BYTES
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_CHECKPOINT

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.transact import Claim

PAGE_CHECKPOINTS = 100

Place = tuple[int, str]
"""Where a checkpoint stands among those of its step: journal entry and name."""

Value = Callable[[bytes], Awaitable[bytes]]


class CheckpointPage(NamedTuple):
    """Values by name, and the place after which the next page begins; None after the last."""

    values: dict[str, bytes]
    following: Place | None


class CheckpointReader:
    """The checkpoints of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, claim: Claim, after: Place = FIRST_CHECKPOINT, value: Value | None = None) -> CheckpointPage:
        """Those of a claimed step after a place: as they are stored, or what `value` makes of them."""
        asked = (claim.tenant, claim.run_id, claim.step.no, after, PAGE_CHECKPOINTS)
        rows = await self._store.read_checkpoints(*asked)
        found: dict[str, bytes] = {}
        size = 0
        for one in rows:
            found[one.name] = one.value if value is None else await value(one.value)
            size += len(found[one.name])
            if size > PAGE_BYTES and value is not None:
                break
        is_last = len(found) == len(rows) < PAGE_CHECKPOINTS
        last = rows[len(found) - 1] if found else None
        return CheckpointPage(found, None if is_last or last is None else (last.seq, last.name))
