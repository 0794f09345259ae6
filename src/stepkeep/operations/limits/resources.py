"""Resources that steps need while they run: the sizes of pools, what is held, and why a step waits.

A pool without a size has no limit. A resource is held by a step that a worker holds, and by nothing else. It grants
nothing: `resource_claims` does. The engine and `diagnosis` call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from stepkeep.definition.bounds import MAX_RESOURCES
from stepkeep.kernel.decide.resources import EXCLUSIVE, SHARED
from stepkeep.kernel.definition import Amount
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.limits.resource_claims import NAME, UNITS, Counted, Pools, read_pools
from stepkeep.operations.settings import SettingKind, change_setting
from stepkeep.store.protocol import Store
from stepkeep.store.rows import HoldRow

MOST_POOLS = 10 * MAX_RESOURCES
"""How many pools of a tenant have a size at most."""

MOST_NAMED = 3
"""How many holders of a resource a sentence names."""


class Holder(Answer, kw_only=True):
    """A step that holds a resource while a worker runs it."""

    run_id: str
    step: str
    amount: Literal["exclusive", "shared"] | int
    since: str | None


class Resource(Answer, kw_only=True):
    """A resource, and its use."""

    resource: str
    most: Annotated[int | None, says("How many units the pool has; null if nothing limits them.")]
    held: Annotated[int, says("How many units are held.")]
    holders: list[Holder]


class ResourceList(Answer, kw_only=True):
    """The resources that are held, and the pools that have a size."""

    resources: list[Resource]


async def set_pool(store: Store, resource: str, most: int | None, *, caller: Caller) -> ResourceList:
    """Give a pool this many units; None ends its limit."""
    name = validate.key("the resource", resource)

    def changed(before: Any) -> Any:
        others = {known: size for known, size in (before or {}).items() if known != name}
        pools = others if most is None else {**others, name: most}
        if len(pools) > MOST_POOLS:
            raise InvalidInput(f"a tenant has at most {MOST_POOLS:,} pools with a size. Clear one first.")
        return pools or None

    await change_setting(store, SettingKind.RESOURCES, NAME, changed, caller=caller)
    return await list_resources(store, caller.tenant)


async def list_resources(store: Store, tenant: str) -> ResourceList:
    """Those that are held, and pools with a size."""
    pools, holds = await read_pools(store, tenant), await store.resources.read_holds(tenant)
    by_name: dict[str, list[HoldRow]] = {name: [] for name in pools}
    for hold in holds:
        by_name.setdefault(hold.resource, []).append(hold)
    return ResourceList(
        resources=[
            Resource(
                resource=name,
                most=pools.get(name),
                held=sum(hold.units for hold in mine),
                holders=[_holder(hold) for hold in mine],
            )
            for name, mine in sorted(by_name.items())
        ]
    )


def _holder(hold: HoldRow) -> Holder:
    amount = cast("Literal['exclusive', 'shared'] | int", hold.units if hold.mode == UNITS else hold.mode)
    return Holder(run_id=hold.run_id, step=hold.step, amount=amount, since=instant(hold.held_at))


def waits_for(needs: Mapping[str, Amount], holds: Sequence[HoldRow], pools: Pools) -> str | None:
    """Why a step has not its resources, in words; None if they are free."""
    taken = Counted(holds, pools).taken(needs)
    said = [_taken(name, needs[name], [one for one in holds if one.resource == name], pools) for name in taken]
    return " and ".join(said) or None


def _taken(name: str, amount: Amount, holds: Sequence[HoldRow], pools: Pools) -> str:
    most = pools.get(name)
    is_pool = amount not in (EXCLUSIVE, SHARED)
    if is_pool and most is not None and int(amount) > most:
        return f"{amount} units of {name}, which has only {most}"
    if is_pool and not any(one.mode == EXCLUSIVE for one in holds):
        units = sum(one.units for one in holds)
        return f"{amount} units of {name}: {units} of {most} are held by {_holders(holds)}"
    how = {EXCLUSIVE: f"{name} alone", SHARED: f"a share of {name}"}.get(str(amount), f"{amount} units of {name}")
    return f"{how}: it is held by {_holders(holds)}"


def _holders(holds: Sequence[HoldRow]) -> str:
    named = [f"step {one.step} of run {one.run_id}" for one in holds[:MOST_NAMED]]
    more = len(holds) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
