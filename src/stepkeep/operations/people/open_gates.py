"""What an open gate asks of whom, and what was counted so far, for people who look at a run.

It reads rows that were loaded and decides nothing. Views and `explain` call it.
"""

from __future__ import annotations

from typing import TypedDict, cast

from msgspec import UNSET

from stepkeep.kernel.definition import Approval
from stepkeep.kernel.machine.rows import Opening, Step
from stepkeep.kernel.people.gates import open_levels
from stepkeep.kernel.people.votes import ballot_record
from stepkeep.operations.instants import instant
from stepkeep.operations.runs.run_answers import Ballot


class GatePeople(TypedDict, total=False):
    """The people and the terms of an open gate, fields of `Waiting`."""

    prompt: str
    roles: list[str]
    groups: list[str]
    approvers: list[str]
    of: str
    not_: list[str]
    level: int
    quorum: int
    votes: list[Ballot]


def asked_people(gate: Approval, step: Step) -> GatePeople:
    """Of whom an open gate asks what. Empty parts are left out."""
    opening = None if step.note is None else step.note.opening
    levels = open_levels(gate, opening)
    roles = list(dict.fromkeys(role for level in levels for role in level.roles))
    groups = list(dict.fromkeys(group for level in levels for group in level.groups))
    approvers = list(dict.fromkeys(person for level in levels for person in level.approvers))
    found = {
        "prompt": gate.prompt,
        "roles": roles,
        "groups": groups,
        "approvers": approvers,
        "of": " or ".join([*roles, *(f"group {name}" for name in groups), *approvers]),
        "not_": list(gate.excluded),
        "level": 0 if opening is None else opening.level,
        "quorum": gate.quorum if gate.quorum > 1 else None,
        "votes": [] if opening is None else ballots(opening),
    }
    return cast("GatePeople", {name: value for name, value in found.items() if value})


def ballots(opening: Opening) -> list[Ballot]:
    """The decisions that an open gate has counted."""
    return [
        Ballot(by=one["by"], decision=one["decision"], at=instant(one["at"]), for_=one.get("for", UNSET))
        for one in map(ballot_record, opening.ballots)
    ]
