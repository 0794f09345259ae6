"""State machines as the judge receives them: arrows, terminal states, and checks of one hop.

The tables are arguments, so a dialect's machine is checked by the same code as the canonical one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code, quoted

MachineData = tuple[Collection[tuple[str | None, str, str]], Collection[str]]
"""The (from, trigger, to) arrows of a machine, and its terminal states."""

Machines = Mapping[str, MachineData]
"""By name: run, step and worker."""

Say = Callable[[Code, str], None]
"""Callback with which a check reports a finding on the current line."""

UNKNOWN = "?"
"""The state of an entity after missing lines: the next line is accepted."""


def check_hop(machine: MachineData, step: str | None, before: str | None, line: Line, say: Say) -> None:
    """Check that a hop is an arrow from the last known state of its entity."""
    arrows, terminal = machine
    legal = (line.source, line.trigger, line.target) in arrows
    if legal and before in (UNKNOWN, line.source):
        return
    name = f"the {line.about}" if step is None else f"step {quoted(step)}"
    hop = f"{name} goes from {quoted(line.source)} by {quoted(line.trigger)} to {quoted(line.target)}"
    if not legal:
        say(Code.ILLEGAL, f"{hop}: there is no such arrow")
    if before in (UNKNOWN, line.source):
        return
    if before is None:
        say(Code.CREATION, f"{hop}, but was never created")
    elif line.source is None:
        say(Code.CREATION, f"{name} is created again")
    elif before in terminal:
        say(Code.TERMINAL, f"{hop}, but had ended {quoted(before)}")
    else:
        say(Code.DISCONTINUOUS, f"{hop}, but was {quoted(before)}")
