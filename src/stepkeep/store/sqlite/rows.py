"""Makes parameters of SQLite's statements from rows: the columns of each, in the order of the SQL files.

The columns are described in `store.columns`, which also reads them back. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stepkeep.kernel.machine.rows import HOT_OF_STEP, Step
from stepkeep.store.columns import columns_of, generate, json_text

Row = tuple[Any, ...]

row_of: Callable[[Any], Row] = msgspec.structs.astuple
"""Every column of a row that holds no JSON."""

_HOT = {"tenant", "run_id", "no", *HOT_OF_STEP} - {"ready_at"}
_hot = "".join(f"row.{column.name}, " for column in columns_of(Step) if column.name in _HOT)
step_hot_columns: Callable[[Step], Row] = generate((f"def made(row): return ({_hot})",), {})
"""The hot columns of a step that is not claimable."""


def step_row(step: Step) -> Row:
    """Every column of a step; its note is the last."""
    row: Row = row_of(step)
    return row if step.note is None else (*row[:-1], json_text(step.note))
