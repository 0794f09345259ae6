"""The measured workflows: steps in sequence, a fan that is joined, a map, a step that sleeps until it is cancelled."""

from __future__ import annotations

from stepkeep.definition.python.workflow import Workflow
from stepkeep_lab.bench.handlers import KILOBYTE, element, fail, noop, numbers, sleep

IN_FLIGHT = 200
"""How many elements of a map are unsettled at a time: enough for every slot of a worker."""

INPUT = {"payload": KILOBYTE}


def chain(steps: int, slots: int | None = None) -> Workflow:
    """`steps` no-ops, one after the other; with `slots`, at most this number of runs at a time."""
    name = f"chain-{steps}" if slots is None else f"chain-{steps}-slots"
    made = Workflow(name, version=1, timeout="1h", slots=slots)
    for number in range(steps):
        made.step(f"step-{number}", noop, inputs={}, timeout="1m")
    return made


def fan(steps: int) -> Workflow:
    """A first step, a last one, and between them all the others at once: `steps` in all."""
    made = Workflow(f"fan-{steps}", version=1, timeout="1h")
    first = made.step("first", noop, inputs={}, timeout="1m")
    wide = [made.step(f"wide-{number}", noop, after=first, inputs={}, timeout="1m") for number in range(steps - 2)]
    made.step("last", noop, after=wide, inputs={}, timeout="1m")
    return made


def mapped(elements: int) -> Workflow:
    """A step that makes a list, and a map over it with `elements` items."""
    made = Workflow(f"map-{elements}", version=1, timeout="1h")
    listed = made.step("list", numbers, inputs={"count": elements}, timeout="1m")
    over = {"over": listed.output, "max": elements, "in_flight": min(elements, IN_FLIGHT)}
    made.step("each", element, inputs={"number": made.item}, map=over, timeout="1m")
    return made


def sleeper(name: str, *, fails: bool = False, timeout: str = "1h") -> Workflow:
    """One step that sleeps, and perhaps one beside it that fails when it is told."""
    made = Workflow(f"sleeper-{name}", version=1, timeout=timeout)
    marks = {"marks": "${{ input.marks }}"}
    made.step("sleep", sleep, inputs=marks, timeout="10m", after=[])
    if fails:
        made.step("fail", fail, inputs=marks, timeout="10m", after=[])
    return made
