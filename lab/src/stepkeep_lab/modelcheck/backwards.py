"""Finds the nodes of a graph from which no end is reachable. It knows numbers only, no states."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


def first_without_way(size: int, ends: Iterable[int], sources: array[int], targets: array[int]) -> int | None:
    """The lowest of `size` nodes from which no end can be reached; edge by edge, `sources` lead to `targets`."""
    reached = bytearray(size)
    stack = list(ends)
    for node in stack:
        reached[node] = 1
    starts, before = _by_target(size, sources, targets)
    while stack:
        node = stack.pop()
        for place in range(starts[node], starts[node + 1]):
            source = before[place]
            if not reached[source]:
                reached[source] = 1
                stack.append(source)
    lost = reached.find(0)
    return None if lost < 0 else lost


def _by_target(size: int, sources: array[int], targets: array[int]) -> tuple[array[int], array[int]]:
    """The same edges by target: where each target's sources begin, and the sources."""
    starts = array("I", bytes(4 * (size + 1)))
    for target in targets:
        starts[target + 1] += 1
    for node in range(size):
        starts[node + 1] += starts[node]
    ordered, filled = array("I", bytes(4 * len(sources))), array("I", starts)
    for source, target in zip(sources, targets, strict=True):
        ordered[filled[target]] = source
        filled[target] += 1
    return starts, ordered
