"""Execution slots: limits on running runs, and the grants of slots to the runs that wait for them.

A definition limits the runs of its workflow; settings of a tenant limit it as a whole, and single workflows. A run
under a limit is created waiting, and is granted a slot in another transaction: it locks runs, then the slots of the
tenant, and counts. A slot is held until its run has ended, also while the run waits for people or is paused. Starts and
workers call it; the kernel decides what a grant does to a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from stepkeep.definition.bounds import MAX_SLOTS
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import InvalidInput, NoSuchName
from stepkeep.kernel.machine.events import ScopeUse, SlotGranted
from stepkeep.kernel.machine.rows import Run
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.pipeline.batch import DecisionBatch
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.operations.pipeline.shared_reads import RecentReads
from stepkeep.operations.pipeline.transact import Transactor, answers
from stepkeep.operations.settings import SettingKind, change_setting, read_setting
from stepkeep.store.change import Basis, Loaded, More, Want, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import Held, SlotGrant, SlotRow

NAME = "limits"
TENANT = "tenant"


class Slot(Answer, kw_only=True):
    """One limit, and its use."""

    scope: Literal["tenant", "workflow"]
    workflow: Annotated[str | None, says("Its name, for the limit of a workflow.")]
    most: Annotated[int | None, says("How many runs may hold a slot; null if nothing limits them any more.")]
    held: Annotated[int, says("How many runs hold a slot.")]
    waiting: Annotated[int, says("How many runs wait for one.")]


class SlotList(Answer, kw_only=True):
    """Every limit on running runs."""

    slots: list[Slot]


FRESH_SECONDS = 2.0
"""How long a process starts runs by the limits that it has read."""

MOST_AT_ONCE = 100
"""How many runs of a workflow one transaction grants slots to at most."""

SPARE = 5
"""How many more runs are looked at than there are free slots: some may be unreadable, or have just changed."""

WAITING = frozenset({RunState.QUEUED, RunState.PAUSED})
"""States in which a run may wait for a slot."""

log = logging.getLogger(__name__)


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many runs of a tenant may hold a slot, and of single workflows; the latter count before a definition."""

    tenant: int | None = None
    workflows: dict[str, int] = {}

    def concern(self, workflow: str) -> bool:
        return self.tenant is not None or workflow in self.workflows

    def of(self, row: SlotRow) -> int | None:
        """The limit on the runs of the workflow of this run."""
        return self.workflows.get(row.workflow, row.most)

    def use(self, row: SlotRow, held: Held) -> tuple[ScopeUse, ...]:
        """The limits that count for this run, and how many slots are held under each."""
        most = self.of(row)
        own = [] if most is None else [ScopeUse(f"workflow {row.workflow}", held.get(row.workflow, 0), most)]
        whole = [] if self.tenant is None else [ScopeUse(TENANT, sum(held.values()), self.tenant)]
        return (*own, *whole)


NO_LIMITS = Limits()


async def read_limits(store: Store, tenant: str) -> Limits:
    """The limits that are set for a tenant."""
    found = await read_setting(store, tenant, SettingKind.SLOTS, NAME)
    return NO_LIMITS if found is None else msgspec.convert(found, Limits)


async def set_limit(store: Store, workflow: str | None, most: int | None, *, caller: Caller) -> SlotList:
    """Limit the running runs of a workflow, or with None of the tenant; `most=None` ends that limit."""
    if most is not None and (type(most) is not int or not 1 <= most <= MAX_SLOTS):
        raise InvalidInput(f"the number of slots is a whole number from 1 to {MAX_SLOTS:,}, or None for no limit.")
    if workflow is not None:
        validate.key("the workflow", workflow)
        if most is not None and await store.read_definition(caller.tenant, workflow, None) is None:
            raise NoSuchName(f"there is no workflow {inert_line(workflow, 100)!r}. `stepkeep definitions` lists them.")

    def changed(before: Any) -> Any:
        known = NO_LIMITS if before is None else msgspec.convert(before, Limits)
        if workflow is None:
            known = msgspec.structs.replace(known, tenant=most)
        else:
            others = {name: limit for name, limit in known.workflows.items() if name != workflow}
            known = msgspec.structs.replace(known, workflows=others if most is None else {**others, workflow: most})
        return msgspec.to_builtins(known) or None

    await change_setting(store, SettingKind.SLOTS, NAME, changed, caller=caller)
    return await list_slots(store, caller.tenant)


async def list_slots(store: Store, tenant: str) -> SlotList:
    """Every limit; that of the tenant first, if it has one."""
    limits, use = await read_limits(store, tenant), await store.slots.read_use(tenant)
    found = [] if limits.tenant is None else [_shown(None, limits.tenant, sum(one.held for one in use), _waiting(use))]
    known = {one.workflow: one for one in use}
    for name in sorted({*known, *limits.workflows}):
        one = known.get(name)
        most = limits.workflows.get(name, None if one is None else one.most)
        found.append(_shown(name, most, 0 if one is None else one.held, 0 if one is None else one.waiting))
    return SlotList(slots=found)


def _waiting(use: Sequence[Any]) -> int:
    return sum(one.waiting for one in use)


def _shown(workflow: str | None, most: int | None, held: int, waiting: int) -> Slot:
    scope: Literal["tenant", "workflow"] = "tenant" if workflow is None else "workflow"
    return Slot(scope=scope, workflow=workflow, most=most, held=held, waiting=waiting)


class KnownLimits(RecentReads[Limits]):
    """The limits of tenants as this process knows them: those of at most `FRESH_SECONDS` ago. Every start asks it."""

    def __init__(self, transactor: Transactor) -> None:
        super().__init__(read_limits, FRESH_SECONDS, lambda: transactor.monotonic())
        self._store = transactor.store

    async def concern(self, tenant: str, workflow: str) -> bool:
        """Whether a run of this workflow that starts now must wait for a slot."""
        return (await self.read(self._store, tenant)).concern(workflow)


class SlotSweep:
    """Grants the slots that are free. One per worker; several may do the same at once."""

    def __init__(self, transactor: Transactor, actor: str = "slots") -> None:
        self._transactor, self._actor = transactor, actor
        self.changed = asyncio.Event()
        """Set when a transaction of this process created a run that waits, or ended one while some wait."""
        transactor.on_slots.append(self.changed.set)

    def close(self) -> None:
        """Listen no more."""
        self._transactor.on_slots.remove(self.changed.set)

    async def sweep(self) -> int:
        """Grant what is free, in all tenants. Returns how many slots were granted."""
        self.changed.clear()
        found: dict[str, list[str]] = {}
        for tenant, workflow in await self._transactor.store.slots.find_workflows():
            found.setdefault(tenant, []).append(workflow)
        self._transactor.runs_wait = bool(found)
        return sum(
            [
                await grant_slots(self._transactor, workflows, Caller(tenant, self._actor))
                for tenant, workflows in found.items()
            ]
        )


async def grant_slots(transactor: Transactor, workflows: Sequence[str], caller: Caller) -> int:
    """Grant the free slots of a tenant to runs of these workflows, in the order of their arrival."""
    store = transactor.store
    limits, held = await read_limits(store, caller.tenant), await store.slots.count_held(caller.tenant)
    rows: list[SlotRow] = []
    ended: list[str] = []
    for workflow in workflows:
        for waiting in await store.slots.find_waiting(caller.tenant, workflow, MOST_AT_ONCE):
            if waiting.state in RUN_TERMINAL:
                ended.append(waiting.row.run_id)
            else:
                rows.append(waiting.row)
    await store.slots.forget_ended(caller.tenant, ended)
    wanted = _first(sorted(rows, key=lambda row: (-row.priority, row.asked_at, row.run_id)), limits, held)
    if not wanted:
        return 0
    batch = await transactor.run(lambda: GrantBatch(transactor.plans, wanted, limits, caller.actor), None)
    for answer in answers(batch.decisions):
        if not isinstance(answer, Accepted):
            log.info("a run was not granted its slot: %s", answer)
    return len(batch.granted)


def _first(rows: Sequence[SlotRow], limits: Limits, held: Held) -> list[SlotRow]:
    """The runs that may get a slot now, and `SPARE` more."""
    found, chosen = dict(held), list[SlotRow]()
    spare = SPARE
    for row in rows:
        if all(one.held < one.most for one in limits.use(row, found)):
            found[row.workflow] = found.get(row.workflow, 0) + 1
            chosen.append(row)
        elif chosen and spare and all(one.held < one.most for one in limits.use(row, held)):
            spare -= 1
            chosen.append(row)
    return chosen


class GrantBatch:
    """The grants of one transaction: it counts what is held under the lock, and grants what is free, in order."""

    def __init__(self, plans: PlanCache, waiting: Sequence[SlotRow], limits: Limits, actor: str) -> None:
        self.basis = Basis.LOCKED
        self._plans, self._waiting, self._limits, self._actor = plans, waiting, limits, actor
        self._loaded: Loaded | None = None
        self.decisions = DecisionBatch(plans)
        self._events: list[SlotGranted] = []
        self.granted: list[SlotGrant] = []

    def wants(self) -> list[Want]:
        return [Want(tenant=row.tenant, run_id=row.run_id) for row in self._waiting]

    def is_certain(self) -> bool:
        return False

    def decide(self, loaded: Loaded) -> More | Write:
        tenants = {row.tenant for row in self._waiting}
        if tenants - loaded.slots.keys():
            return More(slots=tuple(sorted(tenants)))
        if self._loaded is not loaded:
            self._loaded = loaded
            self._events = self._choose(loaded)
            self.decisions = DecisionBatch(self._plans, self._events)
        found = self.decisions.decide(loaded)
        if isinstance(found, Write):
            self.granted = [
                SlotGrant(event.tenant, event.run_id, loaded.now)
                for event, reply in zip(self._events, answers(self.decisions), strict=True)
                if isinstance(reply, Accepted) and not reply.repeated
            ]
            found.rows.put(SlotGrant, self.granted)
        return found

    def _choose(self, loaded: Loaded) -> list[SlotGranted]:
        held: dict[str, dict[str, int]] = {tenant: dict(known) for tenant, known in loaded.slots.items()}
        chosen = []
        for row in self._waiting:
            run, mine = loaded.runs.get((row.tenant, row.run_id)), held[row.tenant]
            if run is None or run.state is not RunState.QUEUED or run.moving:
                continue
            use = self._limits.use(row, mine)
            if all(one.held < one.most for one in use):
                mine[row.workflow] = mine.get(row.workflow, 0) + 1
                chosen.append(SlotGranted(tenant=row.tenant, run_id=row.run_id, actor=self._actor, scopes=use))
        return chosen


async def read_wait(store: Store, run: Run) -> tuple[SlotRow, str] | None:
    """The slot that a run waits for, and why it has none, in words. None for a run that waits for no slot."""
    row = await store.slots.read(run.tenant, run.id) if run.state in WAITING and not run.moving else None
    if row is None or row.granted_at is not None:
        return None
    return row, waits_for(row, await read_limits(store, run.tenant), await store.slots.count_held(run.tenant))


def waits_for(row: SlotRow, limits: Limits, held: Mapping[str, int]) -> str:
    """Why a run has no slot yet, in words: `a slot of workflow order: 3 of 3 run`."""
    full = [one for one in limits.use(row, held) if one.held >= one.most]
    told = [f"{one.scope}: {one.held} of {one.most} run" for one in full]
    return f"a slot of {' and of '.join(told)}" if told else "a slot, which is free: a worker grants it"
