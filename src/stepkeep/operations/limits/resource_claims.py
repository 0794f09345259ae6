"""Claims of steps that are set aside: those that need resources, and those whose executor duties limit.

It counts what other steps hold under a lock, and claims what can have its share. A step gets all its resources with its
claim, or none. Steps are served in claim order, and a step that waits keeps later ones from what it needs, so that none
waits forever. A step that duties rule out for an owner is passed over for that owner, and keeps nothing from later
ones. It does not read settings of its own: `pools` come with the call. `transact` calls it;
`operations/limits/resources.py` shows what is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from stepkeep.kernel.decide.decision import Accepted, Claimer, Need, Snapshot
from stepkeep.kernel.decide.limits import asked_of, room_of
from stepkeep.kernel.decide.resources import EXCLUSIVE, SHARED, awaits_resources, is_parked, resources_of
from stepkeep.kernel.definition import Amount
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.events import Event, ResourceGrant, StepClaimed
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.people.may_act import ruled_out
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations.limits.grants import KeyGrants
from stepkeep.operations.limits.rules import NO_RULE, Rules
from stepkeep.operations.pipeline.batch import Answer, DecisionBatch
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.operations.pipeline.shared_reads import RecentReads
from stepkeep.store.change import Loaded, More, RunKey, Want, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import HoldRow, LimitLine, ResourceWaiter

KIND, NAME = "resources", "pools"
"""The setting that has the sizes of pools."""

UNITS = "units"

Pools = Mapping[str, int]
"""How many units each pool of a tenant has."""

Needs = Mapping[str, Amount]

PAGE = 500
"""How many waiting steps one statement reads."""

MOST_ASKED = 50
"""How many steps beyond its limit a claim asks the duties about: it may be ruled out of the first ones."""

PASSED_OVER_SECONDS = 10.0
"""For how long a step is passed over for an owner that duties rule out, before they are asked again: a request for
changes makes decisions void."""

MOST_RESTING = 1_000
MOST_PASSED_OVER = 10_000
"""How many waiting steps a claim reads at most, and how many a process passes over."""

REST_SECONDS = 1.0
"""For how long a claim does not look again where it passed everything over, unless this process sets a step aside."""

Look = tuple[str | None, frozenset[int], RunKey | None]
"""What a claim looks for: the owner of its worker, its queues, and a run if it is limited to one."""

WaitingStep = tuple[str, str, int]
"""(tenant, run id, step number)."""


MOST_LINES = 20
"""How many lines one claim looks at."""


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


class PassedOver:
    """The steps that this process passes over, each for one owner that duties rule out."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[tuple[str | None, WaitingStep], float] = {}
        self._resting: dict[Look, float] = {}

    def rest(self, look: Look) -> None:
        """Everything that is set aside for this look is passed over: do not look again for a while."""
        if len(self._resting) >= MOST_RESTING:
            self._resting.clear()
        self._resting[look] = self._monotonic() + REST_SECONDS

    def rests(self, look: Look) -> bool:
        return bool(self._resting) and self._resting.get(look, 0.0) > self._monotonic()

    def wake(self) -> None:
        """This process has set a step aside: look again."""
        self._resting.clear()

    def note(self, owner: str | None, steps: Iterable[WaitingStep]) -> None:
        """Pass these steps over for this owner from now on."""
        until = self._monotonic() + PASSED_OVER_SECONDS
        for step in steps:
            self._until.pop((owner, step), None)
            self._until[owner, step] = until
        while len(self._until) > MOST_PASSED_OVER:
            del self._until[next(iter(self._until))]

    def has(self, owner: str | None, step: WaitingStep) -> bool:
        """Whether a claim for this owner passes this step over."""
        return self._until.get((owner, step), 0.0) > self._monotonic()

    def __len__(self) -> int:
        return len(self._until)


def ruled_out_of(claims: Sequence[Event], replies: Sequence[Answer | None]) -> list[WaitingStep]:
    """The steps of these claims that were refused because of duties."""
    refused = [claim for claim, reply in zip(claims, replies, strict=True) if type(reply) is NotAllowed]
    return [(claim.tenant, claim.run_id, claim.no) for claim in refused if isinstance(claim, StepClaimed)]


class Found(msgspec.Struct, kw_only=True):
    """What a claim of set-aside steps may take, as it stood without a lock: the steps, the pools and rules of their
    tenants, and the lines that are to be looked at, each with whether all that wait in it are among the steps."""

    waiting: list[ResourceWaiter] = []
    pools: dict[str, Pools] = {}
    rules: dict[str, Rules] = {}
    lines: list[tuple[LimitLine, bool]] = []
    alone: bool = False

    def __bool__(self) -> bool:
        return bool(self.waiting or self.lines)


class ResourceClaimBatch(DecisionBatch):
    """Claims of waiting steps in one transaction: it counts what is held under the lock, and claims in order."""

    def __init__(self, plans: PlanCache, claimer: Claimer, found: Found, limit: int) -> None:
        super().__init__(plans, judges=False)
        self._for, self._waiting, self._pools, self._limit = claimer, found.waiting, found.pools, limit
        self._found = found
        self._chosen_on: Loaded | None = None
        self._ruled_out: list[WaitingStep] = []
        self._refused: set[WaitingStep] = set()
        self._places = KeyGrants(Loaded(now=0), {})
        self.has_parked = False

    @property
    def ruled_out(self) -> list[WaitingStep]:
        """The steps that duties do not allow the owner of the worker to execute."""
        return [*self._ruled_out, *ruled_out_of(self._given, self.replies)]

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
        if more := self._locks(loaded):
            return more
        if self._loaded is not loaded:
            self._refused = set()
        while True:
            if self._chosen_on is not loaded:
                chosen = self._choose(loaded)
                if isinstance(chosen, More):
                    return chosen
                self._chosen_on = loaded
                self._given = tuple(chosen)
                self._forget(loaded)
            found = super().decide(loaded)
            if isinstance(found, More):
                return found
            refused = {
                (claim.tenant, claim.run_id, claim.no)
                for claim, reply in zip(self._given, self.replies, strict=True)
                if isinstance(claim, StepClaimed) and type(reply) is not Accepted
            }
            if not refused - self._refused or not loaded.limits:
                break
            # Later claims were counted after it: all are counted again without it.
            self._refused |= refused
            self._chosen_on = None
        claimed = {(step.tenant, step.run_id, step.no): step for _, _, step in self.claimed()}
        found.rows.put(HoldRow, (row for _, plan, step in self.claimed() for row in _holds(plan.of(step), step)))
        self._places.write(found.limits, claimed)
        self.has_parked = bool(found.limits.parked)
        return found

    def _locks(self, loaded: Loaded) -> More | None:
        """The resources of tenants and the keys of limits that are to be locked first, all together."""
        tenants: set[str] = set()
        keys = {line.limit_key for line, _ in self._found.lines}
        for one, _, plan, step in self._claimable(loaded):
            planned = plan.of(step)
            if resources_of(planned):
                tenants.add(one.tenant)
            if plan.has_limits:
                keys.update([(one.tenant, asked.limit.name, asked.key) for asked in asked_of(planned, step)])
        tenants -= loaded.resources.keys()
        keys -= loaded.limits.keys()
        return More(resources=tuple(sorted(tenants)), limits=tuple(sorted(keys))) if tenants or keys else None

    def _choose(self, loaded: Loaded) -> list[StepClaimed] | More:
        """The claims to decide on; or the rows without which the duties of a step cannot be asked."""
        lacking, self._ruled_out = [], []
        counted = {tenant: Counted(holds, self._pools.get(tenant, {})) for tenant, holds in loaded.resources.items()}
        places = self._places = KeyGrants(loaded, self._found.rules, self._found.lines)
        chosen: list[StepClaimed] = []
        there = set()
        for one, run, plan, step in self._claimable(loaded):
            there.add((one.tenant, one.run_id, one.no))
            if len(chosen) == self._limit or (one.tenant, one.run_id, one.no) in self._refused:
                continue
            planned = plan.of(step)
            if plan.duties_on(planned):
                found = ruled_out(_snapshot(loaded, plan, run), one.no, self._for.owner, loaded.now)
                if isinstance(found, Need):
                    lacking.append(self._want_more((one.tenant, one.run_id), found))
                elif found is not None:
                    self._ruled_out.append((one.tenant, one.run_id, one.no))
                if found is not None:
                    continue
            asked = asked_of(planned, step) if plan.has_limits else []
            now = max(loaded.now, run.moved_at)
            if (full := places.find_full(step, asked, one.line, now, alone=self._found.alone)) is not None:
                places.park(step, full)
                continue
            needs = resources_of(planned)
            grants = counted[one.tenant].take(needs) if needs else ()
            if grants is None:
                continue
            if one.line is not None or is_parked(step.ready_at):
                places.leave((one.tenant, one.run_id, one.no))
            chosen.append(
                StepClaimed(
                    tenant=one.tenant,
                    run_id=one.run_id,
                    actor=self._for.actor,
                    no=one.no,
                    worker=self._for.worker,
                    owner=self._for.owner,
                    lease=self._for.lease or plan.definition.lease,
                    resources=grants,
                    limits=places.take(step, planned.name, asked, now) if asked else (),
                )
            )
        for one in self._waiting:
            if one.line is not None and (one.tenant, one.run_id, one.no) not in there:
                if (one.tenant, one.run_id) in loaded.barred:
                    places.put_last(one, one.line)
                else:
                    places.leave((one.tenant, one.run_id, one.no))
        return More(wants=tuple(lacking)) if lacking else chosen

    def _claimable(self, loaded: Loaded) -> Iterator[tuple[ResourceWaiter, Run, Plan, Step]]:
        """The waiting steps that are still set aside, now that their runs are locked."""
        for one in self._waiting:
            run = loaded.runs.get((one.tenant, one.run_id))
            step = loaded.steps.get((one.tenant, one.run_id), {}).get(one.no)
            plan = None if run is None else self._plans.get(run.definition_id)
            if run is None or plan is None or step is None:
                continue
            if step.worker is None and awaits_resources(step.ready_at):
                yield one, run, plan, step


def _snapshot(loaded: Loaded, plan: Plan, run: Run) -> Snapshot:
    """What duties need of a run."""
    key = (run.tenant, run.id)
    involved = loaded.involved.get(key)
    return Snapshot(plan=plan, run=run, steps=loaded.steps[key], whole=key in loaded.whole, involved=involved)


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
    store: Store,
    plans: PlanCache,
    rules: RecentReads[Rules],
    claimer: Claimer,
    limit: int,
    run: RunKey | None,
    passed_over: PassedOver,
    now: int | None = None,
) -> Found:
    """Waiting steps that can have their resources as it stands now, and lines that are to be looked at. Nothing is
    locked: the claim counts and asks again. Steps that are passed over for the owner are left out, however many they
    are."""
    found = Found(alone=run is not None)
    await _find_parked(store, rules, claimer, limit, run, found, now)
    counted: dict[str, Counted] = {}
    # A step that was parked, held back by a pause and is ready again stands in its line and waits beside it.
    parked = {(one.tenant, one.run_id, one.no) for one in found.waiting}
    most, has_others = limit, bool(found)
    for start in range(0, MOST_PASSED_OVER, PAGE):
        waiting = await store.resources.find_waiting(claimer.queues, PAGE, run, start)
        left = [one for one in waiting if not passed_over.has(claimer.owner, (one.tenant, one.run_id, one.no))]
        has_others = has_others or bool(left) or not (waiting or start)
        for one in left:
            if (one.tenant, one.run_id, one.no) in parked:
                continue
            if one.tenant not in counted:
                await _know(store, rules, one.tenant, found)
                holds = await store.resources.read_holds(one.tenant)
                counted[one.tenant] = Counted(holds, found.pools[one.tenant])
            plan = plans.get(one.definition_id)
            if plan is None or counted[one.tenant].take(resources_of(plan.at(one.no))) is not None:
                found.waiting.append(one)
            if plan is not None and (plan.duties or plan.has_limits):
                most = limit + MOST_ASKED
            if len(found.waiting) >= most:
                return found
        if len(waiting) < PAGE or found.waiting or len(left) == len(waiting):
            break
    if not has_others:
        passed_over.rest((claimer.owner, claimer.queues, run))
    return found


async def _know(store: Store, rules: RecentReads[Rules], tenant: str, found: Found) -> None:
    """Read the pools and the rules of a tenant, unless they are known."""
    if tenant not in found.rules:
        found.pools[tenant] = await read_pools(store, tenant)
        found.rules[tenant] = await rules.read(store, tenant)


async def _find_parked(
    store: Store,
    rules: RecentReads[Rules],
    claimer: Claimer,
    limit: int,
    run: RunKey | None,
    found: Found,
    now: int | None,
) -> None:
    """The parked steps that may have a place by now: the first ones of each line that is to be looked at, as many as
    its key has places."""
    if run is not None:
        lines = {one.no: LimitLine(run[0], one.name, one.key, one.queue) for one in await store.limits.read_waits(*run)}
        if lines:
            await _know(store, rules, run[0], found)
            kept = await store.read_run(*run)
            definition = 0 if kept is None else kept.run.definition_id
            found.waiting += [ResourceWaiter(*run, no, definition, line) for no, line in lines.items()]
        return
    for line, row in await store.limits.find_due(claimer.queues, MOST_LINES):
        await _know(store, rules, line.tenant, found)
        rule = found.rules[line.tenant].get(line.name, NO_RULE).of(line.key)
        room = room_of(rule, row.held, row.tat, limit, now)
        first = await store.limits.find_parked(line, room)
        found.waiting += first
        found.lines.append((line, len(first) < room))
        if len(found.waiting) >= limit:
            break
