"""Replays the grants of all limits of a tenant from the journals of its runs, by the judge's own code."""

from __future__ import annotations

from collections.abc import AsyncIterator

from stepkeep.conformance.limits import Claimed, Grant, replay
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter


async def judge(store: Store, tenant: str) -> int:
    """Raises AssertionError with everything that is wrong; returns how many grants there were."""
    grants: list[Grant] = []
    ended: set[Claimed] = set()
    async for run in _runs(store, tenant):
        held: dict[int, int] = {}
        for row in await store.read_journal(tenant, run):
            entry = open_entry(row.body)
            for hop in entry.hops:
                if hop.trigger == "claimed":
                    held[hop.no] = hop.fence or 0
                    detail = entry.causes[hop.by].detail or {}
                    claim = (run, hop.no, held[hop.no])
                    grants += [Grant(claim, entry.at, told) for told in detail.get("limits", ())]
                elif hop.no in held and str(hop.target) not in ("running", "validating"):
                    ended.add((run, hop.no, held.pop(hop.no)))
    assert list(replay(grants, ended)) == []
    return len(grants)


async def _runs(store: Store, tenant: str) -> AsyncIterator[str]:
    before = None
    while page := await store.list_runs(RunFilter(tenant=tenant, limit=200, before=before)):
        for found in page:
            yield found.run.id
        before = page[-1].run.id
