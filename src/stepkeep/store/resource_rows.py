"""The row of a resource that a step holds while a worker holds the step.

Plain values. A row counts only while its step is held under the same fence, so that a crash leaves nothing behind.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

LOCK = "resources"
"""The scope of `quota_scopes` whose row is locked while steps of a tenant take resources."""


class HoldRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A resource that a step holds. `mode` is `exclusive`, `shared` or `units`; `units` is 0 but for a pool. `step` is
    its name."""

    tenant: str
    run_id: str
    no: int
    fence: int
    resource: str
    step: str
    mode: str
    units: int
    held_at: int


class ResourceWaiter(NamedTuple):
    """A ready step that is set aside, and the definition of its run."""

    tenant: str
    run_id: str
    no: int
    definition_id: int
