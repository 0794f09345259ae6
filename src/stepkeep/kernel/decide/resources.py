"""Resources that a step needs while a worker holds it: exclusive, shared, or a number of units of a pool.

A ready step that needs resources is set aside: it has a `ready_at` beyond every clock, so that the claim queries do not
propose it. It is claimed by a transaction that counts what other steps hold (`operations/limits/resource_claims.py`).
The kernel counts nothing: it refuses a claim without the resources of the step. A step whose executor duties limit is
set aside, too: it is passed over for the owners that they rule out. `draft`, `execution` and the operations call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.kernel.decide.limits import limits_of
from stepkeep.kernel.definition import Amount
from stepkeep.kernel.machine.events import ResourceGrant
from stepkeep.kernel.machine.states import Phase
from stepkeep.kernel.plan import Plan, PlannedStep

EXCLUSIVE = "exclusive"
SHARED = "shared"

AWAITS_RESOURCES = 100_000_000_000_000_000
"""Added to the `ready_at` of a step that is set aside: a moment in the year 5138. The order of arrival is kept."""

PARKED, PARKED_END = 2 * AWAITS_RESOURCES, 250_000_000_000_000_000
"""Between these is the `ready_at` of a step that waits under a key of a limit (`limit_waits`): nothing looks for it but
what the end of a claim under that key wakes. A claim that finds the key full adds `AWAITS_RESOURCES` once more, which
is no line of the journal."""

NO_RESOURCES: Mapping[str, Amount] = {}


def resources_of(planned: PlannedStep) -> Mapping[str, Amount]:
    """What a step needs while a worker holds it. Undo steps and the final check need nothing."""
    needed = planned.definition.resources
    return NO_RESOURCES if needed is msgspec.UNSET or planned.phase is not Phase.MAIN else needed


def is_set_aside(plan: Plan, planned: PlannedStep) -> bool:
    """Whether a step is claimed by a query of its own: it needs resources, is limited, or duties rule out some
    owners."""
    return plan.sets_aside and bool(resources_of(planned) or limits_of(planned) or plan.duties_on(planned))


def awaits_resources(ready_at: int | None) -> bool:
    """Whether a step with this `ready_at` is set aside: claimed with its resources and places, by an owner that may
    execute it."""
    return ready_at is not None and AWAITS_RESOURCES <= ready_at < PARKED_END


def is_parked(ready_at: int | None) -> bool:
    """Whether a step with this `ready_at` waits under a key of a limit."""
    return ready_at is not None and PARKED <= ready_at < PARKED_END


def ready_since(ready_at: int) -> int:
    """Since when a step is ready, whether it waits for resources or not."""
    if not awaits_resources(ready_at):
        return ready_at
    return ready_at - (PARKED if ready_at >= PARKED else AWAITS_RESOURCES)


def grants_detail(grants: Iterable[ResourceGrant]) -> list[dict[str, Any]]:
    """The resources of a claim, as its journal entry has them."""
    return [
        {"name": one.name, "amount": one.amount}
        if one.most is None
        else {"name": one.name, "amount": one.amount, "held": one.held, "most": one.most}
        for one in grants
    ]


def unlimited_grants(planned: PlannedStep) -> tuple[ResourceGrant, ...]:
    """All resources of a step, where nothing else holds any: for walks through the kernel without other runs."""
    return tuple([ResourceGrant(name=name, amount=amount) for name, amount in resources_of(planned).items()])
