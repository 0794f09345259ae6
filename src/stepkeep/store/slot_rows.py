"""The row of an execution slot: a run under a limit on running runs, waiting for its slot or holding it.

Plain values. `store/slots.py` reads them; a slot is held by a granted row whose run has not ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

LOCK = "slots"
"""The scope of `quota_scopes` whose row is locked while slots of a tenant are granted."""

Held = Mapping[str, int]
"""How many runs of each workflow of a tenant hold a slot."""


class SlotRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run under a limit on running runs. `most` is the limit of its definition; `granted_at` is None while it
    waits."""

    tenant: str
    run_id: str
    workflow: str
    most: int | None
    priority: int
    asked_at: int
    granted_at: int | None = None


class SlotGrant(NamedTuple):
    """A slot that a write grants to a run."""

    tenant: str
    run_id: str
    granted_at: int
