"""A small made-up dialect: parcels and their legs. Everything that finds, loads or judges dialects is tried on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.toy.machine import JUDGED

from stepkeep.definition.native import CheckReport
from stepkeep.dialects.dialect import Dialect
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


class Words:
    """A parcel as its sender sees it."""

    def run(self, canonical: Mapping[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
        stands = [line["to_state"] for line in lines if line["event_type"] == "parcel_state_transition"]
        legs = {line["metadata"]["step"]: line["to_state"] for line in lines if "step" in line["metadata"]}
        return {"parcel": canonical["run"]["workflow"], "stands": stands[-1], "legs": legs}

    def summary(self, canonical_run: Mapping[str, Any], shown_state: str) -> dict[str, Any]:
        return {"parcel": canonical_run["workflow"], "stands": shown_state}


DIALECT = Dialect(judged=JUDGED, front=Front(), words=Words(), schema={})
