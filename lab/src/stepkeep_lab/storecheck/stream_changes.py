"""Streams in a differential life: what attempts append and what readers read, drawn from a seed of its own.

The same calls go to the model and to the real store, and every answer must be the same. The life itself claims steps,
lets leases run out, and deletes runs. `differential` calls it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.rows import StreamPart
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.store.protocol import Store
from stepkeep.store.streams import Holder

AT_ONCE = 6
MOST_READ = 20
MOST_BYTES = 12
"""How many bytes the streams of a run may have here: some appends are beyond it."""


class StreamChanges:
    """What is written to streams in one life."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"streams:{seed}")  # noqa: S311 - chance that must come out the same again
        self._written: dict[str, dict[str, None]] = {}

    async def go_on(
        self, stores: Sequence[Store], tenant: str, claims: Sequence[Sequence[Claim]]
    ) -> AsyncIterator[tuple[str, list[Any]]]:
        """A few appends of attempts that hold their steps or did, each with what both stores answered; then what these
        runs have."""
        for _ in range(AT_ONCE if claims else 0):
            chosen, [wrong] = self._random.choice(claims[-8:]), self._random.choices((0, -1, 1), (6, 1, 1))
            late = self._random.random() < 0.1
            start, name = self._random.choice((0, 0, 0, 1, 1, 2)), self._random.choice(("log", "tokens"))
            goes_on = start == 0 and self._random.random() < 0.3
            said = []
            for store, claim in zip(stores, chosen, strict=True):
                fence = claim.step.fence
                worker = (claim.step.worker or 0) + (1_000 if late else 0)
                holder = Holder(tenant, claim.run_id, claim.step.no, fence + wrong, worker)
                after = (fence - 1, 0) if goes_on and fence > 1 else None
                part = StreamPart(
                    tenant=tenant,
                    run_id=claim.run_id,
                    no=claim.step.no,
                    name=name,
                    fence=fence,
                    start=start,
                    count=1,
                    at=0,
                    body=b'["a"]',
                    after=after,
                )
                said.append(await _answered(store, holder, part))
            self._written.setdefault(tenant, {})[chosen[0].run_id] = None
            yield f"append to {name}", said
        written = self._written.setdefault(tenant, {})
        # Those of deleted runs must be gone.
        for run in list(written)[-MOST_READ:]:
            yield "streams", [await _read(store, tenant, run) for store in stores]


async def _answered(store: Store, holder: Holder, part: StreamPart) -> Any:
    try:
        return await store.streams.append(holder, [part], MOST_BYTES)
    except StepkeepError as problem:
        return type(problem).__name__


async def _read(store: Store, tenant: str, run: str) -> dict[str, Any]:
    rows = await store.streams.read(tenant, run)
    return {
        "rows": rows,
        "later rows": await store.streams.read(tenant, run, 1, 3),
        "new": await store.streams.read_new(tenant, {run: 1}, 2),
        "sizes": await store.streams.list_sizes(tenant, run),
        "bytes": await store.streams.measure(tenant, run),
        "attempts": [await store.streams.read_attempt(tenant, run, one.no, one.fence) for one in rows[:3]],
    }
