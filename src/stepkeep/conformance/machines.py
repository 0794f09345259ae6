"""Machines as the judge is given them: plain arrows and endings, and the questions it asks of one hop.

The tables come from outside as data, so a dialect's machine is judged by the same code as the canonical one.
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
"""How a check reports what it found on the line at hand."""

UNKNOWN = "?"
"""The state of something after lines were lost: the next line is believed."""


def check_hop(machine: MachineData, step: str | None, before: str | None, line: Line, say: Say) -> None:
    """Is this a legal move from the state that the step (or the run or worker itself) was last seen in?"""
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
