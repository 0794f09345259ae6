"""Claims of steps that need resources: counts what other steps hold under a lock, and claims what can have its share.

A step gets all its resources with its claim, or none. Steps are served in claim order, and a step that waits keeps
later ones from what it needs, so that none waits forever. It does not read settings of its own: `pools` come with the
call. `transact` calls it; `operations/resources.py` shows what is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stepkeep.kernel.decision import Claimer
from stepkeep.kernel.definition import Amount
from stepkeep.kernel.events import ResourceGrant, StepClaimed
from stepkeep.kernel.plan import PlannedStep
from stepkeep.kernel.resources import EXCLUSIVE, SHARED, awaits_resources, resources_of
from stepkeep.kernel.rows import Step
from stepkeep.operations.batch import DecisionBatch
from stepkeep.operations.plans import PlanCache
from stepkeep.store.change import Loaded, More, RunKey, Want, Write
from stepkeep.store.protocol import Store
from stepkeep.store.resource_rows import HoldRow, ResourceWaiter

KIND, NAME = "resources", "pools"
"""The setting that has the sizes of pools."""

UNITS = "units"

Pools = Mapping[str, int]
"""How many units each pool of a tenant has."""

Needs = Mapping[str, Amount]

MOST_LOOKED_AT = 500
"""How many waiting steps one claim looks at."""


class Use(msgspec.Struct):
    """What is held of one resource."""

    exclusive: int = 0
    shared: int = 0
    units: int = 0


async def read_pools(store: Store, tenant: str) -> dict[str, int]:
    """The sizes of the pools of a tenant."""
    stored = await store.read_setting(tenant, KIND, NAME)
    found = None if stored is None else msgspec.json.decode(stored.document, type=dict[str, int] | None)
    return found or {}


class Counted:
    """What steps of one tenant hold, while claims are chosen."""

    def __init__(self, holds: Iterable[HoldRow], pools: Pools) -> None:
        self._pools = pools
        self._use: dict[str, Use] = {}
        self._wanted: set[str] = set()
        for hold in holds:
            self._add(hold.resource, hold.units if hold.mode == UNITS else hold.mode)

    def _add(self, name: str, amount: Amount | str) -> None:
        use = self._use.setdefault(name, Use())
        if amount == EXCLUSIVE:
            use.exclusive += 1
        elif amount == SHARED:
            use.shared += 1
        else:
            use.units += int(amount)

    def taken(self, needs: Needs) -> list[str]:
        """Which of these resources a step cannot have now."""
        return [name for name, amount in needs.items() if not self._is_free(name, amount)]

    def _is_free(self, name: str, amount: Amount) -> bool:
        use = self._use.get(name) or Use()
        if amount == EXCLUSIVE:
            return not (use.exclusive or use.shared or use.units)
        if use.exclusive:
            return False
        if amount == SHARED:
            return True
        most = self._pools.get(name)
        return most is None or use.units + int(amount) <= most

    def can_ever(self, needs: Needs) -> bool:
        """Whether the pools are large enough for this step at all."""
        return all(
            amount in (EXCLUSIVE, SHARED) or int(amount) <= self._pools.get(name, int(amount))
            for name, amount in needs.items()
        )

    def take(self, needs: Needs) -> tuple[ResourceGrant, ...] | None:
        """Give a step all its resources; None if one is taken, or a step before it waits for one."""
        if self.taken(needs) or any(name in self._wanted for name in needs):
            if self.can_ever(needs):
                self._wanted.update(needs)
            return None
        grants = tuple([self._grant(name, amount) for name, amount in needs.items()])
        for name, amount in needs.items():
            self._add(name, amount)
        return grants

    def _grant(self, name: str, amount: Amount) -> ResourceGrant:
        most = None if amount in (EXCLUSIVE, SHARED) else self._pools.get(name)
        held = 0 if most is None else (self._use.get(name) or Use()).units
        return ResourceGrant(name=name, amount=amount, held=held, most=most)


class ResourceClaimBatch(DecisionBatch):
    """Claims of waiting steps in one transaction: it counts what is held under the lock, and claims in order."""

    def __init__(
        self,
        plans: PlanCache,
        claimer: Claimer,
        waiting: Sequence[ResourceWaiter],
        pools: Mapping[str, Pools],
        limit: int,
    ) -> None:
        super().__init__(plans, judges=False)
        self._for, self._waiting, self._pools, self._limit = claimer, waiting, pools, limit
        self._chosen_on: Loaded | None = None

    def wants(self) -> list[Want]:
        numbers: dict[tuple[str, str], list[int]] = {}
        for one in self._waiting:
            numbers.setdefault((one.tenant, one.run_id), []).append(one.no)
        return [Want(tenant=key[0], run_id=key[1], steps=tuple(found)) for key, found in numbers.items()]

    def is_certain(self) -> bool:
        return False

    def decide(self, loaded: Loaded) -> More | Write:
        if unknown := self._unknown(loaded):
            return More(definitions=unknown)
        tenants = {one.tenant for one in self._waiting}
        if missing := tenants - loaded.resources.keys():
            return More(resources=tuple(sorted(missing)))
        if self._chosen_on is not loaded:
            self._chosen_on = loaded
            self._given = tuple(self._choose(loaded))
            self._forget(loaded)
        found = super().decide(loaded)
        if isinstance(found, Write):
            found.holds = [row for _, plan, step in self.claimed() for row in _holds(plan.of(step), step)]
        return found

    def _choose(self, loaded: Loaded) -> list[StepClaimed]:
        counted = {tenant: Counted(holds, self._pools.get(tenant, {})) for tenant, holds in loaded.resources.items()}
        chosen: list[StepClaimed] = []
        for one in self._waiting:
            run = loaded.runs.get((one.tenant, one.run_id))
            step = loaded.steps.get((one.tenant, one.run_id), {}).get(one.no)
            plan = None if run is None else self._plans.get(run.definition_id)
            if plan is None or step is None or step.worker is not None or not awaits_resources(step.ready_at):
                continue
            grants = counted[one.tenant].take(resources_of(plan.of(step)))
            if grants is None:
                continue
            chosen.append(
                StepClaimed(
                    tenant=one.tenant,
                    run_id=one.run_id,
                    actor=self._for.actor,
                    no=one.no,
                    worker=self._for.worker,
                    lease=self._for.lease or plan.definition.lease,
                    resources=grants,
                )
            )
            if len(chosen) == self._limit:
                break
        return chosen


def _holds(planned: PlannedStep, step: Step) -> Iterator[HoldRow]:
    """The rows of what a claimed step holds."""
    for name, amount in resources_of(planned).items():
        is_pool = amount not in (EXCLUSIVE, SHARED)
        yield HoldRow(
            tenant=step.tenant,
            run_id=step.run_id,
            no=step.no,
            fence=step.fence,
            resource=name,
            step=planned.name,
            mode=UNITS if is_pool else str(amount),
            units=int(amount) if is_pool else 0,
            held_at=step.claimed_at or 0,
        )


async def find_claims(
    store: Store, plans: PlanCache, claimer: Claimer, limit: int, run: RunKey | None
) -> tuple[list[ResourceWaiter], dict[str, Pools]]:
    """Waiting steps that can have their resources as it stands now, and the pools of their tenants. Nothing is locked:
    the claim counts again."""
    waiting = await store.resources.find_waiting(claimer.queues, MOST_LOOKED_AT, run)
    tenants = sorted({one.tenant for one in waiting})
    pools: dict[str, Pools] = {tenant: await read_pools(store, tenant) for tenant in tenants}
    counted = {tenant: Counted(await store.resources.read_holds(tenant), pools[tenant]) for tenant in tenants}
    chosen: list[ResourceWaiter] = []
    for one in waiting:
        plan = plans.get(one.definition_id)
        if plan is None or counted[one.tenant].take(resources_of(plan.at(one.no))) is not None:
            chosen.append(one)
        if len(chosen) == limit:
            break
    return chosen, pools
