"""What must be true of resources: no two steps hold what excludes one another, and no pool gives out more than it has.

It reads the journals in the order of their commits, and no row of a held resource. `verdict` calls it when a simulation
has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.kernel.journal import Hop, open_entry
from stepkeep.kernel.plan import Plan
from stepkeep_lab.simulation.tables import Tables

HELD_IN = frozenset({"running", "validating"})
POOLS = {"cpu": 2}
"""The pools of a simulation, and their sizes."""

Held = dict[tuple[str, int], Mapping[str, Any]]


def wrong_resources(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """Everything that is wrong with the resources of all steps."""
    held: Held = {}
    for tenant, run_id, seq in sorted(tables.positions, key=tables.positions.__getitem__):
        key = (tenant, run_id)
        if key not in tables.runs:
            continue
        entry, plan = open_entry(tables.journal[key][seq].body), plans[tables.runs[key].definition_id]
        for hop in entry.hops:
            if hop.trigger != "claimed":
                _leave(held, run_id, hop)
                continue
            needed = plan.at(hop.no).definition.resources if hop.no < plan.size or plan.is_element(hop.no) else None
            given = (entry.causes[hop.by].detail or {}).get("resources", [])
            if {one["name"]: one["amount"] for one in given} != (needed or {}):
                yield f"resources: step {hop.no} of run {run_id} was claimed without those that it needs"
            held[run_id, hop.no] = needed or {}
            yield from _conflicts(held)


def _leave(held: Held, run_id: str, hop: Hop) -> None:
    """A worker keeps a step only while its rules are to run. A lease that is lost then leaves the step in its state."""
    if hop.trigger != "completed" or str(hop.target) not in HELD_IN:
        held.pop((run_id, hop.no), None)


def _conflicts(held: Held) -> Iterator[str]:
    for name in sorted({name for needs in held.values() for name in needs}):
        amounts = [needs[name] for needs in held.values() if name in needs]
        if "exclusive" in amounts and len(amounts) > 1:
            yield f"resources: {name} is held alone, and by {len(amounts)} steps"
        units = sum(amount for amount in amounts if isinstance(amount, int))
        if units > POOLS.get(name, units):
            yield f"resources: {units} units of {name} are held, and there are {POOLS[name]}"
