"""The planned steps of a run as its journal tells them: those of its definition, and the calls of its flows.

A definition does not know what a flow calls; the cause of each growth does. It follows hops in their order and changes
nothing. The scribe of a dialect asks it for what a step is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.kernel.definition import Flow
from stepkeep.kernel.journal import RUN_ENTITY, Cause, Hop
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.kernel.rows import Called, Step
from stepkeep.kernel.states import Phase
from stepkeep.kernel.tables import StepTrigger

_encode = msgspec.json.Encoder(order="sorted").encode


class JournaledCalls:
    """The planned steps of one run, with the calls of its journal so far."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._calls: dict[int, PlannedStep] = {}
        self._counts: dict[int, int] = {}

    def hear(self, hop: Hop, cause: Cause) -> None:
        """Learn what a flow calls, if this hop suspends one."""
        if hop.trigger != StepTrigger.CHILDREN_STARTED or hop.no == RUN_ENTITY:
            return
        owner = self._plan.at(hop.no)
        if owner.segment is None or not isinstance(owner.growth, Flow):
            return
        for told in calls_in(cause.detail, owner.name):
            index = self._counts.get(owner.no, 0)
            self._counts[owner.no] = index + 1
            call = Called(
                kind=told["kind"],
                name=told["name"],
                digest=told["arguments"],
                arguments="null",
                step=_encode(told["step"]).decode(),
            )
            for no in (owner.segment.element(index), owner.segment.undo(index)):
                found = self._plan.called(no, call)
                if found is not None:
                    self._calls[no] = found

    def know(self, rows: Iterable[Step]) -> None:
        """Take over the calls of rows, where the journal before them is not told."""
        for row in rows:
            planned = self._plan.of(row)
            if planned.call is not None and planned.owner is not None:
                self._calls[row.no] = planned
                if (undo := self._plan.undo_for(row)) is not None:
                    self._calls[undo.no] = undo
                if planned.phase is Phase.MAIN:
                    self._counts[planned.owner] = self._counts.get(planned.owner, 0) + 1

    def at(self, no: int) -> PlannedStep:
        """What this step is."""
        return self._calls.get(no) or self._plan.at(no)


def calls_in(detail: Mapping[str, Any] | None, owner: str) -> list[Mapping[str, Any]]:
    """The calls that the detail of a cause tells of."""
    told = {} if detail is None else detail.get("plan_grown", {}).get(owner, {})
    return list(told.get("calls", ()))
