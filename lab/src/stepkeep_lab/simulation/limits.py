"""What must be true of execution slots: never more are held than a limit says, and each run is granted one once.

It reads the journals in the order of their commits, and no row of a slot. `verdict` calls it when a simulation has
ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stepkeep.kernel.machine.journal import RUN_ENTITY, Hop, open_entry
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep_lab.simulation.tables import Tables

ENDED = frozenset(map(str, RUN_TERMINAL))


def wrong_slots(tables: Tables) -> Iterator[str]:
    """Everything that is wrong with the slots of all runs."""
    held: dict[str, set[str]] = {}
    held_before: dict[str, set[str]] = {}
    grants: Counter[str] = Counter()
    awaits: set[str] = set()
    for tenant, run_id, seq in sorted(tables.positions, key=tables.positions.__getitem__):
        key = (tenant, run_id)
        if key not in tables.runs:
            continue
        workflow, entry = tables.details[key].workflow, open_entry(tables.journal[key][seq].body)
        mine = held.setdefault(workflow, set())
        for cause in entry.causes:
            detail = cause.detail or {}
            if cause.event == "run_created" and "awaits_slot" in detail:
                awaits.add(run_id)
            before = detail.get("continues") or {}
            if before.get("as") == "migrate" and before["run"] in held_before.get(workflow, ()):
                mine.add(run_id)
            if cause.event == "slot_granted":
                grants[run_id] += 1
                mine.add(run_id)
                most = [one["most"] for one in detail.get("scopes", ()) if one["scope"] == f"workflow {workflow}"]
                if most and len(mine) > most[0]:
                    yield f"slots: {len(mine)} runs of {workflow} hold one, and {most[0]} may"
        if run_id in awaits and not grants[run_id] and any(_begins(hop) for hop in entry.hops):
            yield f"slots: run {run_id} of {workflow} began without one"
        if any(hop.no == RUN_ENTITY and str(hop.target) in ENDED for hop in entry.hops):
            if run_id in mine:
                held_before.setdefault(workflow, set()).add(run_id)
            mine.discard(run_id)
    for run_id, count in grants.items():
        if count > 1:
            yield f"slots: run {run_id} was granted {count}"


def _begins(hop: Hop) -> bool:
    return hop.no == RUN_ENTITY and hop.trigger == "progressed"
