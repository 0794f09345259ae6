"""The bounds of integer columns, as types of the fields of rows: `no: StepNo`.

A value that does not fit one store is refused by all. The bounds check no meaning: the schema checks signs of counters
and rules between columns. `store/bounds.py` makes the checks of them.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

INT = 2**31 - 1
BIGINT = 2**63 - 1

LAST_SEQ = 2**43 - 1
"""The last entry of a journal: a message's number and a step's completion number are a sequence times 2^20, in 64
bits."""

LAST_MOMENT = 253_402_300_799_999_999
"""The last microsecond of the year 9999, which is the last that a log can show."""

MAX_PRIORITY = 1_000_000
MAX_VERSION = 1_000_000_000
PLACES = 20_001
"""The largest number of rows of a plan: 10,000 steps, an undo step for each, and the final check."""


class Bounds(NamedTuple):
    """The smallest and the largest value that a column takes, and the largest that the engine ever writes there."""

    low: int
    high: int
    reaches: int


Moment: TypeAlias = Annotated[int, Bounds(0, LAST_MOMENT, LAST_MOMENT)]
Seq: TypeAlias = Annotated[int, Bounds(0, LAST_SEQ, LAST_SEQ)]
Changed: TypeAlias = Annotated[int, Bounds(1, LAST_SEQ, LAST_SEQ)]
"""The sequence number of a row that is written with its first change."""
Place: TypeAlias = Annotated[int, Bounds(0, BIGINT, BIGINT)]
Priority: TypeAlias = Annotated[int, Bounds(-MAX_PRIORITY, MAX_PRIORITY, MAX_PRIORITY)]
Version: TypeAlias = Annotated[int, Bounds(1, MAX_VERSION, MAX_VERSION)]
Id: TypeAlias = Annotated[int, Bounds(0, INT, INT)]
StepNo: TypeAlias = Annotated[int, Bounds(0, INT, PLACES)]
StepCount: TypeAlias = Annotated[int, Bounds(-INT, INT, PLACES)]
Count: TypeAlias = Annotated[int, Bounds(-INT, INT, INT)]
"""A negative counter is left to the schema."""
Natural: TypeAlias = Annotated[int, Bounds(0, INT, INT)]
Positive: TypeAlias = Annotated[int, Bounds(1, INT, INT)]
Quota: TypeAlias = Annotated[int, Bounds(1, 1_000_000_000, 1_000_000_000)]
Flag: TypeAlias = Annotated[int, Bounds(0, 1, 1)]
Taking: TypeAlias = Annotated[int, Bounds(1, 15, 15)]
