"""The made-up dialect's machines: a parcel that is held while a gate is open, and legs that never show a retry."""

from __future__ import annotations

from collections.abc import Callable

from stepkeep.dialects.dialect import Default, Invariant, JudgedDialect, Line, Say
from stepkeep.dialects.machine import ANY, Arrow, Extension, ForbiddenPair, MachineView
from stepkeep.dialects.projection import Seen, ShownRunView

PARCEL = MachineView(
    noun="parcel",
    states=("waiting", "moving", "held", "arrived", "lost"),
    terminal=frozenset({"arrived", "lost", "returned"}),
    arrows=(
        Arrow(None, "waiting", "posted", "toy §1"),
        Arrow("waiting", "moving", "collected", "toy §1"),
        Arrow("moving", "held", "stopped", "toy §1"),
        Arrow("held", "moving", "released", "toy §1"),
        Arrow("moving", "arrived", "delivered", "toy §1"),
        Arrow("moving", "lost", "mislaid", "toy §1"),
        Arrow("waiting", "lost", "mislaid", "toy §1"),
        Arrow("held", "lost", "mislaid", "toy §1"),
    ),
    forbidden=(ForbiddenPair("arrived", ANY, "toy §2"), ForbiddenPair("waiting", "arrived", "toy §2")),
    shows={
        "idle": "waiting",
        "running": "moving",
        "succeeded": "arrived",
        "failed": "lost",
        "cancelled": "returned",
        "rolled_back": "returned",
    },
    extra={"returned": "toy knows no cancelling"},
    extensions=(
        Extension("waiting", "returned", "cancelled before it was collected"),
        Extension("moving", "returned", "cancelled, or undone"),
        Extension("held", "returned", "cancelled while it was held"),
    ),
)

LEG = MachineView(
    noun="leg",
    states=("planned", "travelling", "done", "broken"),
    terminal=frozenset({"done", "broken", "dropped"}),
    arrows=(
        Arrow(None, "planned", "posted", "toy §3"),
        Arrow("planned", "travelling", "departed", "toy §3"),
        Arrow("travelling", "done", "finished", "toy §3"),
        Arrow("travelling", "broken", "broke", "toy §3"),
    ),
    shows={
        "pending": "planned",
        "ready": "planned",
        "running": "travelling",
        "awaiting_approval": "travelling",
        "awaiting_event": "travelling",
        "awaiting_children": "travelling",
        "succeeded": "done",
        "failed": "broken",
        "skipped": "dropped",
        "cancelled": "dropped",
    },
    sticky={"travelling": frozenset({"planned"})},
    extra={"dropped": "toy knows no skipping"},
    extensions=(
        Extension("planned", "dropped", "skipped or cancelled before it began"),
        Extension("travelling", "dropped", "skipped or cancelled on its way"),
        Extension("planned", "broken", "refused before it began"),
        Extension(None, "done", "an earlier journey brought it", when=("adopted",)),
        Extension(None, "dropped", "an earlier journey left it out", when=("adopted_skipped",)),
    ),
)


class HeldAtGates(ShownRunView):
    """A parcel is held while any of its legs waits for people."""

    def __init__(self, view: MachineView) -> None:
        super().__init__(view)
        self.gates: set[str] = set()

    def feed(self, seen: Seen) -> str | None:
        if seen.kind == "step" and seen.phase == "main":
            (self.gates.add if seen.target == "awaiting_approval" else self.gates.discard)(seen.name)
        shown = super().feed(seen)
        if self.state not in ("running", "blocked"):
            return shown
        return "held" if self.gates else "moving"


def _all_legs_done(say: Say) -> Callable[[Line], None]:
    legs: dict[str, str] = {}

    def check(line: Line) -> None:
        if line["event_type"] == "leg_state_transition":
            legs[line["entity_id"]] = line["to_state"]
        elif line["event_type"] == "parcel_state_transition" and line["to_state"] == "arrived":
            for leg, state in legs.items():
                if state == "broken":
                    say(f"the parcel arrived, but {leg} is broken")

    return check


JUDGED = JudgedDialect(
    name="toy",
    seed="none",
    title="Parcels and their legs",
    run=PARCEL,
    step=LEG,
    run_view=HeldAtGates,
    invariants=(Invariant("an arrived parcel has no broken leg", "toy §4", _all_legs_done),),
    defaults=(Default("Sequence or graph?", "always a sequence", "toy §5"),),
)
