"""What must be true of steps that are set aside: of their resources, and of the owners that execute them.

No two steps hold what excludes one another, no pool gives out more than it has, and no owner executes two steps that
are incompatible. It reads the journals in the order of their commits, and no row of a held resource. `verdict` calls it
when a simulation has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from stepkeep.kernel.definition import Incompatible
from stepkeep.kernel.machine.journal import Hop, open_entry
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


def wrong_executors(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """Every owner of workers that executed two steps of a run which duties keep apart."""
    owners = {worker.no: worker.owner for worker in tables.workers.values()}
    for key, attempts in tables.attempts.items():
        if key not in tables.runs:
            continue
        plan = plans[tables.runs[key].definition_id]
        done: dict[str, set[str | None]] = {}
        for attempt in attempts.values():
            if not plan.is_undo(attempt.no) and (attempt.no < plan.size or plan.is_element(attempt.no)):
                planned = plan.at(attempt.no)
                name = planned.name if planned.owner is None else plan.steps[planned.owner].name
                done.setdefault(name, set()).add(owners.get(attempt.worker))
        for duty in plan.definition.duties or ():
            for one, other in combinations(duty.steps if isinstance(duty, Incompatible) else (), 2):
                for owner in (done.get(one, set()) & done.get(other, set())) - {None}:
                    yield f"duties: {owner} executed {one} and {other} of run {key[1]}, which are incompatible"


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
