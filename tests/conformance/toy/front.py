"""The format of the made-up dialect."""

from __future__ import annotations

from typing import Any

from stepkeep.definition.native.reader import CheckReport
from stepkeep.kernel.definition import Approval, Definition, Dependency, Handler, StepDefinition


class Front:
    """`{parcel: NAME, legs: [NAME or {gate: NAME}]}`, one after the other."""

    def recognises(self, data: Any) -> bool:
        return isinstance(data, dict) and "parcel" in data

    def examine(self, data: Any, source: Any, handlers: Any = None) -> CheckReport:
        legs = data.get("legs")
        if not isinstance(legs, list) or not legs:
            return CheckReport(definition=None, problems=(source.problem(("legs",), "A parcel has legs."),))
        names = [leg["gate"] if isinstance(leg, dict) else leg for leg in legs]
        steps = tuple(
            StepDefinition(
                name=name,
                order=no,
                executor=None if isinstance(leg, dict) else Handler(name="toy.carry"),
                approval=Approval() if isinstance(leg, dict) else None,
                depends_on=(Dependency(step=names[no - 1]),) if no else (),
            )
            for no, (name, leg) in enumerate(zip(names, legs, strict=True))
        )
        return CheckReport(definition=Definition(name=data["parcel"], version=1, steps=steps, dialect="toy"))


FRONT = Front()
