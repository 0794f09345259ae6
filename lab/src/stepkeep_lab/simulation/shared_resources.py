"""What must be true of steps that are set aside: of their resources, and of the owners that execute them.

No two steps hold what excludes one another, no pool gives out more than it has, and no owner executes two steps that
are incompatible. It reads the journals in the order of their commits, and no row of a held resource. `verdict` calls it
when a simulation has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from stepkeep.conformance.limits import Claimed, Grant, replay
from stepkeep.kernel.decide.resources import is_parked
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


def wrong_places(tables: Tables) -> Iterator[str]:
    """Everything that is wrong with the places of claims under limits: the judge replays each key by its numbers, and
    the rows at the end say what is held."""
    grants, ended = list[Grant](), set[Claimed]()
    for key, entries in tables.journal.items():
        held: dict[int, int] = {}
        for _, sealed in sorted(entries.items()):
            entry = open_entry(sealed.body)
            for hop in entry.hops:
                if hop.trigger == "claimed":
                    held[hop.no] = hop.fence or 0
                    told = (entry.causes[hop.by].detail or {}).get("limits", [])
                    grants += [Grant((key[1], hop.no, held[hop.no]), entry.at, one) for one in told]
                elif hop.no in held and (hop.trigger != "completed" or str(hop.target) not in HELD_IN):
                    ended.add((key[1], hop.no, held.pop(hop.no)))
    yield from (f"limits: {said}" for said in replay(grants, ended))
    rows = tables.limits
    live = {grant.claim for grant in grants} - ended
    for hold in rows.holds.values():
        if (hold.run_id, hold.no, hold.fence) not in live:
            yield f"limits: step {hold.no} of run {hold.run_id} has a place under {hold.name} and no claim"
    for place, row in rows.keys.items():
        weight = sum(hold.weight for hold in rows.holds.values() if (hold.tenant, hold.name, hold.key) == place)
        if weight != row.held:
            yield f"limits: {row.held} are counted under {place}, and {weight} are held"
    for wait in rows.waits.values():
        spot = (wait.tenant, wait.name, wait.key, wait.queue)
        step = tables.steps.get((wait.tenant, wait.run_id), {}).get(wait.no)
        is_asleep = rows.lines.get(spot) is None and not rows.keys[spot[:3]].held
        if step is not None and step.ready_at is not None and is_asleep:
            yield f"limits: step {wait.no} of run {wait.run_id} waits under a free key, and nothing looks at its line"
    for key, steps in tables.steps.items():
        for step in steps.values():
            if is_parked(step.ready_at) and (*key, step.no) not in rows.waits:
                yield f"limits: step {step.no} of run {key[1]} is parked, and stands in no line"


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
