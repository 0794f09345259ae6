"""Segments: the numbers that a step which owns elements reserves, and the elements they stand for.

A segment has room for `width` elements from the number `first` on, and behind them for their undo steps. The numbers
follow from the definition alone, so that a number finds its template by its range and no plan holds copies of it.
How many of them a run uses is decided at run time. Pure. `plan.py` lays segments out; `elements.py` fills them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

import msgspec

_ELEMENT = re.compile(r"(undo:)?(.+)\[(0|[1-9][0-9]{0,6})\]")


class Segment(msgspec.Struct, frozen=True, gc=False):
    """The numbers of the elements of the step `owner`.

    Elements that differ have queues of their own: `queues` is the place of the first one, each is followed by that of
    its undo step. None if all elements have the queue of their owner.
    """

    owner: int
    first: int
    width: int
    queues: int | None = None

    def element(self, index: int) -> int:
        return self.first + index

    def undo(self, index: int) -> int:
        return self.first + self.width + index

    @property
    def end(self) -> int:
        """The first number behind it."""
        return self.first + 2 * self.width


def lay_out(first: int, widths: Iterable[tuple[int, int, bool]]) -> tuple[Segment, ...]:
    """Segments one behind the other, for these owners with their widths, and whether their elements differ.

    The queues of elements that differ follow those of the other steps, which have one for each number below `first`.

    >>> lay_out(7, [(0, 10, False), (2, 5, True)])[1]
    Segment(owner=2, first=27, width=5, queues=7)
    """
    found, queues = [], first
    for owner, width, differ in widths:
        found.append(Segment(owner, first, width, queues if differ else None))
        first = found[-1].end
        queues += 2 * width * differ
    return tuple(found)


def segment_at(segments: tuple[Segment, ...], no: int) -> Segment | None:
    """The segment that reserves this number."""
    place = bisect_right(segments, no, key=lambda segment: segment.first) - 1
    return segments[place] if place >= 0 and no < segments[place].end else None


def element_name(owner: str, index: int) -> str:
    return f"{owner}[{index}]"


def read_element_name(name: str) -> tuple[bool, str, int] | None:
    """Whether a name is that of an undo step, its owner and its index; None if it names no element.

    >>> read_element_name("undo:resize[12]"), read_element_name("resize")
    ((True, 'resize', 12), None)
    """
    found = _ELEMENT.fullmatch(name)
    return None if found is None else (found[1] is not None, found[2], int(found[3]))
