"""The steps that a handler returned, on their way to the kernel: read like a definition, or refused as a failure.

Nothing is stored here. Workers with the database call it for their own handlers, and `remote_work` for those of remote
workers.
"""

from __future__ import annotations

import msgspec

from stepkeep.definition.native.added import AddedStep, complaint, read_added
from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.errors import DefinitionError
from stepkeep.kernel.machine.outcomes import Added, Failed, Outcome
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.plan import Plan, PlannedStep

MAX_COMPLAINT = 2_000
_decode = msgspec.json.Decoder().decode


class Proposed(Outcome, frozen=True, kw_only=True, gc=False):
    """The handler returned `steps` to add, as JSON of a list, and its own `output`. The kernel never sees it."""

    steps: bytes
    output: bytes | None = None


def read_proposed(
    proposed: Proposed, plan: Plan, planned: PlannedStep, registry: Registry | None = None
) -> tuple[Added | Failed, tuple[AddedStep, ...]]:
    """The report without its new steps, and those; or a failure for good that says what is wrong with them."""
    owner = planned.name if planned.owner is None else plan.steps[planned.owner].name
    try:
        steps = read_added(_decode(proposed.steps), owner, registry)
    except DefinitionError as error:
        return refused(proposed, complaint(error)), ()
    return Added(output=proposed.output, cost=proposed.cost, emit=proposed.emit), steps


def refused(proposed: Proposed, said: str) -> Failed:
    """A failure for good instead of steps that cannot be added. What the handler emitted is dropped with them."""
    return Failed(category=Category.VALIDATION, error=said[:MAX_COMPLAINT], final=True, cost=proposed.cost)
