"""Judges checkpoints: each is of a running step, under its claim, by the worker that holds it, and recorded once.

The log has the digest of the value; `digests.py` compares it with what is stored. `reenact.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import Step

Problem = tuple[Code, str]

RECORDED = "checkpoint_recorded"
MOST_CHECKPOINTS = 100
"""How many one step may have."""


def check_checkpoint(steps: Mapping[int, Step], line: Line, asked: Mapping[str, Any]) -> Iterator[Problem]:
    """Every reason why this checkpoint cannot be on record like this; then remember it."""
    step, name, fence = steps.get(asked.get("no", -1)), str(asked.get("checkpoint")), asked.get("fence")
    if step is None or step.name != asked.get("step"):
        yield Code.CAUSE, f"metadata.detail.step is {quoted(asked.get('step'))}, which is no step of this number"
        return
    if step.state != "running" or not step.leased:
        yield Code.OUTCOME, f"{step.title} records {quoted(name)}, and no worker runs it"
    if fence != step.fence:
        said = f"metadata.detail.fence is {fence}, but its last claim has {step.fence}"
        yield Code.FENCE, f"{step.title} records {quoted(name)}: {said}"
    if step.holder not in (None, line.actor):
        said = f"metadata.actor is {quoted(line.actor)}, expected {quoted(step.holder)}"
        yield Code.CAUSE, f"{said}: only the worker that claimed {step.title} records checkpoints of it"
    if name in step.checkpoints:
        yield Code.CAUSE, f"{step.title} has the checkpoint {quoted(name)} already; one is recorded once"
    step.checkpoints.add(name)
    if len(step.checkpoints) > MOST_CHECKPOINTS:
        yield Code.POLICY, f"{step.title} has more than {MOST_CHECKPOINTS} checkpoints"
    if line.about != "note":
        yield Code.CAUSE, f"the checkpoint {quoted(name)} moves something; a checkpoint moves nothing"
