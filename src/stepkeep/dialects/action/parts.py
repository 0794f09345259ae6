"""The parts of a document that are valid on their own, so that one wrong key hides no other finding.

It reads plain data of any kind without raising: actions, capabilities and dependencies (section 1). It checks nothing;
the front end passes the parts to the checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stepkeep.definition.findings import Path
from stepkeep.definition.native.graph import Node
from stepkeep.dialects.action.written import TIERS, Action, Capability, Tier
from stepkeep.dialects.format import listed, valid, valid_blocks


class Parts(NamedTuple):
    """The readable parts: blocks by their path, and the graph as far as it is known."""

    tier: Tier
    actions: dict[Path, Action]
    capabilities: dict[str, Capability]
    declared: frozenset[str] | None
    nodes: tuple[Node, ...]

    def capability_of(self, action: Action) -> Capability | None:
        """What is known of the capability that an action uses."""
        return self.capabilities.get(action.capability or action.handler)


def parts_of(data: dict[str, Any]) -> Parts:
    tier = data.get("executionTier")
    declared = data.get("capabilities")
    return Parts(
        tier=tier if tier in TIERS else "Auto",
        actions=dict(valid_blocks(data, ("actions",), Action)),
        capabilities=dict(_capabilities(declared)),
        declared=frozenset(declared) if isinstance(declared, dict) else None,
        nodes=tuple(_nodes(data)),
    )


def is_graph(data: dict[str, Any]) -> bool:
    """Without `edges` and without any `dependsOn`, actions follow each other by `order` (section 1.1)."""
    return "edges" in data or any(isinstance(each, dict) and "dependsOn" in each for each in listed(data, ("actions",)))


def _capabilities(declared: Any) -> Iterator[tuple[str, Capability]]:
    for name, written in (declared if isinstance(declared, dict) else {}).items():
        if (capability := valid(Capability, written)) is not None:
            yield name, capability


def _nodes(data: dict[str, Any]) -> Iterator[Node]:
    """Ids and predecessors, as far as they are readable."""
    known = [
        (("actions", place), action)
        for place, action in enumerate(listed(data, ("actions",)))
        if isinstance(action, dict) and isinstance(action.get("actionId"), str)
    ]
    sequence, edges = not is_graph(data), _edges(data)
    before: str | None = None
    for path, action in known:
        name = action["actionId"]
        after: list[tuple[str, Path]] = [(before, path)] if sequence and before is not None else []
        waits_for = enumerate(listed(action, ("dependsOn",)))
        after += [(other, (*path, "dependsOn", number)) for number, other in waits_for if isinstance(other, str)]
        yield Node(name, path, (*after, *edges.get(name, ())))
        before = name


def _edges(data: dict[str, Any]) -> dict[str, list[tuple[str, Path]]]:
    found: dict[str, list[tuple[str, Path]]] = {}
    for number, edge in enumerate(listed(data, ("edges",))):
        if isinstance(edge, dict) and isinstance(edge.get("from"), str) and isinstance(edge.get("to"), str):
            found.setdefault(edge["to"], []).append((edge["from"], ("edges", number, "from")))
    return found
