"""The row of an adopted step: which run took it, from which run, and whether it undoes it.

A plain value. At most one run owns the undo of a step; the unique index of both schemas holds that.
"""

from __future__ import annotations

import msgspec


class AdoptionRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Step `no` of a run has the result of `source_step` of `source_run`. `owned` is 1 if the run undoes it."""

    tenant: str
    run_id: str
    no: int
    source_run: str
    source_step: str
    owned: int = 0
