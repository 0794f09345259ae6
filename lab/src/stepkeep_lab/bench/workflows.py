"""The measured workflows: steps in sequence, a fan that is joined, and a step that sleeps until it is cancelled."""

from __future__ import annotations

from stepkeep.definition.python import Workflow
from stepkeep_lab.bench.handlers import KILOBYTE, fail, noop, sleep

INPUT = {"payload": KILOBYTE}


def chain(steps: int) -> Workflow:
    """`steps` no-ops, one after the other."""
    made = Workflow(f"chain-{steps}", version=1, timeout="1h")
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


def sleeper(name: str, *, fails: bool = False, timeout: str = "1h") -> Workflow:
    """One step that sleeps, and perhaps one beside it that fails when it is told."""
    made = Workflow(f"sleeper-{name}", version=1, timeout=timeout)
    marks = {"marks": "${{ input.marks }}"}
    made.step("sleep", sleep, inputs=marks, timeout="10m", after=[])
    if fails:
        made.step("fail", fail, inputs=marks, timeout="10m", after=[])
    return made
