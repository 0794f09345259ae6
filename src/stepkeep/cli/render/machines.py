"""A dialect's machines for people: tables of states, arrows and extensions, or Mermaid diagrams. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.tables import plain_table

if TYPE_CHECKING:
    from stepkeep.dialects.dialect import Judged
    from stepkeep.dialects.machine import MachineView

NEW = "(new)"


def pages_of(judged: Judged) -> Iterator[RenderableType]:
    """Everything about a dialect, part by part."""
    yield Text.assemble((f"{judged.name} ", "bold"), f"{judged.title} ", (f"(seed {judged.seed})", "dim"))
    for view in judged.views:
        yield from _machine(view)
    if judged.invariants:
        yield Text("\nINVARIANTS", "bold")
        yield plain_table([{"invariant": one.name, "from": one.cites} for one in judged.invariants])
    if judged.defaults:
        yield Text("\nWHERE IT DIFFERS FROM THE NATIVE FORMAT", "bold")
        yield plain_table([one._asdict() for one in judged.defaults])


def _machine(view: MachineView) -> Iterator[RenderableType]:
    yield Text(f"\n{view.noun.upper()}", "bold")
    states = [f"{state} (ends)" if state in view.terminal else state for state in (*view.states, *view.extra)]
    yield Text(", ".join(states))
    yield Text("\narrows of the specification", "dim")
    arrows = [
        {"from": arrow.source or NEW, "to": arrow.target, "trigger": arrow.trigger, "cites": arrow.cites}
        for arrow in view.arrows
    ]
    yield plain_table(arrows)
    if view.extensions:
        yield Text("\nextensions: what the engine does and the specification has no arrow for", "dim")
        yield plain_table(
            [{"from": one.source or NEW, "to": one.target, "because": one.reason} for one in view.extensions]
        )
    for state, reason in view.extra.items():
        yield Text(f"{state} is no state of the specification: {reason}", "dim")
    if view.forbidden:
        yield Text("\nruled out", "dim")
        yield plain_table([{"from": one.source, "to": one.target, "cites": one.cites} for one in view.forbidden])


def mermaid_of(judged: Judged) -> Iterator[str]:
    """One state diagram per machine; what the specification lacks is marked as an extension."""
    for view in judged.views:
        yield "```mermaid"
        yield "---"
        yield f"title: {judged.name} {view.noun}"
        yield "---"
        yield "stateDiagram-v2"
        for arrow in view.arrows:
            yield f"    {_node(arrow.source)} --> {_node(arrow.target)}: {_label(arrow.trigger)}"
        for extension in view.extensions:
            yield f"    {_node(extension.source)} --> {_node(extension.target)}: extension"
        for state in (*view.states, *view.extra):
            if state in view.terminal:
                yield f"    {_node(state)} --> [*]"
        yield "```"


def _node(state: str | None) -> str:
    return "[*]" if state is None else state.replace(" ", "_").replace("-", "_")


def _label(trigger: str) -> str:
    """A label in which nothing means something to Mermaid."""
    return trigger.replace(":", " -").replace(";", ",").replace("\n", " ")
