"""What must be true when an operator names other approvers for a gate, or fails it: no person whom it asks may decide.

It reads the rows of people and of the run before they are replaced. It counts only people whose right has no break, so
that each finding is certain. `audit` calls it at each commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepkeep.kernel.definition import Approval, Level
from stepkeep.kernel.machine.journal import Entry
from stepkeep.kernel.machine.rows import Opening
from stepkeep.kernel.people.authority import MembershipKind
from stepkeep.kernel.people.gates import gate_terms
from stepkeep.kernel.plan import Plan
from stepkeep.store.change import RunKey
from stepkeep_lab.simulation.definitions import SERVICE
from stepkeep_lab.simulation.tables import Tables


def wrong_reassignments(tables: Tables, plan: Plan, entry: Entry) -> Iterator[str]:
    """Everything that is wrong with what an operator says in this entry."""
    cause, key = entry.causes[0], (entry.tenant, entry.run_id)
    no = plan.number((cause.detail or {})["step"]) if cause.event == "gate_reassigned" else None
    if no is None or len(entry.causes) > 1:
        return
    old = tables.steps[key][no]
    gate, opening = gate_terms(old, plan.of(old)), None if old.note is None else old.note.opening
    if gate is None or opening is None:
        return
    levels = (*gate.levels[: opening.level + 1], Level(approvers=opening.named))
    asked = {name for level in levels for name in level.approvers}
    asked |= _holders(tables, {role for level in levels for role in level.roles}, opening.at, entry.at)
    title = f"the gate {no} of run {entry.run_id} was reassigned"
    able = (name for name in asked - {SERVICE} if not _is_ruled_out(tables, key, gate, opening, name, entry.at))
    for name in sorted(able):
        yield f"{title}, and {name} may decide it"
    for name in (cause.detail or {}).get("to", ()):
        if _is_ruled_out(tables, key, gate, opening, name, entry.at):
            yield f"{title} to {name}, who may not decide it"


def _holders(tables: Tables, roles: set[str], opened_at: int, now: int) -> set[str]:
    """The people who had one of these roles from the opening until now, without a break."""
    return {
        row.subject
        for row in tables.people.memberships.values()
        if row.kind is MembershipKind.ROLE
        and row.name in roles
        and row.granted_at <= opened_at
        and row.revoked_at is None
        and (row.valid_to is None or row.valid_to > now)
    }


def _is_ruled_out(tables: Tables, key: RunKey, gate: Approval, opening: Opening, name: str, now: int) -> bool:
    has_asked = "requester" in gate.excluded and name in tables.requesters(key)
    has_decided = any(name in ballot.names for ballot in opening.ballots)
    return has_asked or has_decided or name in gate.excluded or tables.people.disabled_at(key[0], name, now)
