"""The planned steps of a run as its journal tells them: those of its definition, the calls of its flows, and the steps
that handlers added.

A definition does not know what a flow calls or a handler adds; the cause of each growth does. It follows hops in their
order and changes nothing. The scribe of a dialect asks it for what a step is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.kernel.definition import Worked
from stepkeep.kernel.machine.journal import Cause, Hop
from stepkeep.kernel.machine.rows import Called, Step
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import Plan, PlannedStep

ADOPTING = (StepTrigger.ADOPTED, StepTrigger.ADOPTED_SKIPPED)
_encode = msgspec.json.Encoder(order="sorted").encode


class JournaledCalls:
    """The planned steps of one run, with the calls of its journal so far."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._calls: dict[int, PlannedStep] = {}

    def consume(self, hop: Hop, cause: Cause) -> None:
        """Learn what a flow calls, or what a handler adds, if this hop plans the first of it."""
        if hop.trigger in ADOPTING:
            self._adopt(hop, cause)
        if hop.trigger != StepTrigger.PLANNED or not self._plan.is_element(hop.no) or hop.no in self._calls:
            return
        place = self._plan.at(hop.no)
        assert place.owner is not None
        owner = self._plan.steps[place.owner]
        if owner.segment is None or place.index is None or not isinstance(owner.growth, Worked):
            return
        for index, told in enumerate(calls_in(cause.detail, owner.name), place.index):
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

    def _adopt(self, hop: Hop, cause: Cause) -> None:
        """Learn what an adopted call is, which the creation of the run tells."""
        name = self._plan.name_of(hop.no)
        taken = ((cause.detail or {}).get("continues") or {}).get("adopted", ())
        told = next((one["call"] for one in taken if one["step"] == name and "call" in one), None)
        if told is not None and self._plan.is_element(hop.no):
            call = Called(kind="", name=told["name"], digest="", arguments="null", step=_encode(told["step"]).decode())
            for no in (hop.no, self._plan.undo_no(hop.no)):
                if (found := self._plan.called(no, call)) is not None:
                    self._calls[no] = found

    def know(self, rows: Iterable[Step]) -> None:
        """Take over the calls of rows, where the journal before them is not told."""
        for row in rows:
            planned = self._plan.of(row)
            if planned.call is not None and planned.owner is not None:
                self._calls[row.no] = planned
                if (undo := self._plan.undo_for(row)) is not None:
                    self._calls[undo.no] = undo

    def at(self, no: int) -> PlannedStep:
        """What this step is."""
        return self._calls.get(no) or self._plan.at(no)


def calls_in(detail: Mapping[str, Any] | None, owner: str) -> list[Mapping[str, Any]]:
    """The calls that the detail of a cause tells of."""
    told = {} if detail is None else detail.get("plan_grown", {}).get(owner, {})
    return list(told.get("calls", ()))
