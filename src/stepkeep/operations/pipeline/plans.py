"""Plans by definition id: derived once from the stored definition and cached, because a definition never changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.definition.expressions.compiler import ExpressionCompiler
from stepkeep.kernel.definition import Definition, decode_definition, digest_of
from stepkeep.kernel.errors import DefinitionChanged, NotFound, StepkeepError, Unreadable
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import Phase
from stepkeep.kernel.plan import Plan, build_plan
from stepkeep.operations import validate
from stepkeep.operations.people.live_policies import LivePolicies
from stepkeep.operations.pipeline.bounds_above import BoundsAbove
from stepkeep.store.change import StoredDefinition

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.transact import Transactor

log = logging.getLogger(__name__)


class PlanCache:
    """Every plan that this process has used. Limited by the number of published definitions in use.

    A definition that this program cannot read (a newer version wrote it) is cached with the reason, so that it does not
    stop work on other definitions.
    """

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}
        self._problems: dict[int, Exception] = {}
        self.sets_aside = False
        """Whether a step of one of these plans is claimed by a query of its own."""
        self.compiler = ExpressionCompiler()
        self.live = LivePolicies(self._opened)
        self.bounds = BoundsAbove()

    def _opened(self, payload: bytes) -> bytes:
        return payload if self.compiler.opened is None else self.compiler.opened(payload)

    def get(self, definition_id: int) -> Plan | None:
        return self._plans.get(definition_id)

    def add(self, stored: StoredDefinition) -> Plan:
        plan = self._plans.get(stored.id)
        if plan is None:
            plan = build_plan(
                as_published(stored),
                self.compiler,
                definition_id=stored.id,
                digest=stored.digest,
                queues=stored.queues,
                document=stored.document,
            )
            self._plans[stored.id] = plan
            self.sets_aside = self.sets_aside or plan.sets_aside
        return plan

    def learn(self, definitions: Iterable[StoredDefinition]) -> None:
        for stored in definitions:
            if self.knows(stored.id):
                continue
            try:
                self.add(stored)
            except Exception as problem:
                log.exception("version %s of %s cannot be read by this program", stored.version, stored.name)
                self._problems[stored.id] = problem

    def knows(self, definition_id: int) -> bool:
        """Whether the definition is cached, with a plan or with the reason why there is none."""
        return definition_id in self._plans or definition_id in self._problems

    def refusal(self, run_id: str, definition_id: int) -> StepkeepError:
        """Why a run without a plan cannot continue."""
        if isinstance(self._problems.get(definition_id), DefinitionChanged):
            return DefinitionChanged(f"run {run_id} cannot go on here: {self.problem(definition_id)}")
        return Unreadable("definitions", f"id {definition_id}", self.problem(definition_id), run_id=run_id)

    def problem(self, definition_id: int) -> str:
        """Why there is no plan."""
        known = self._problems.get(definition_id)
        return (
            f"its definition is missing ({definition_id})"
            if known is None
            else f"its definition is unreadable: {known}"
        )


def as_published(stored: StoredDefinition) -> Definition:
    """The definition in a row, if it has the digest that it was published with."""
    named = f"version {stored.version} of {stored.name} (definition {stored.id})"
    if digest_of(stored.document) != stored.digest:
        raise DefinitionChanged(
            f"{named} was changed in the database after it was published: its content does not have the digest "
            f"{stored.digest}. It is not run. Restore the row, or publish a new version."
        )
    definition = decode_definition(stored.document)
    if (definition.name, definition.version, definition.dialect) != (stored.name, stored.version, stored.dialect):
        raise DefinitionChanged(
            f"{named} holds the content of version {definition.version} of {definition.name}: its row was changed in "
            "the database after it was published. It is not run. Restore the row, or publish a new version."
        )
    return definition


async def plan_of(transactor: Transactor, tenant: str, run_id: str) -> Plan:
    """The plan of a run."""
    found = await transactor.store.read_run(tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    return await plan_for(transactor, found.run)


async def plan_for(transactor: Transactor, run: Run) -> Plan:
    """The plan of a run that was read."""
    plan = transactor.plans.get(run.definition_id)
    return plan or transactor.plans.add(await stored_definition(transactor, run))


async def known_plans(transactor: Transactor, definitions: set[int]) -> dict[int, Plan]:
    """The plans of these definitions; those that are not known yet are read at once."""
    missing = [one for one in definitions if not transactor.plans.knows(one)]
    if missing:
        transactor.plans.learn((await transactor.store.read_definitions(missing)).values())
    return {one: plan for one in definitions if (plan := transactor.plans.get(one)) is not None}


def written_definition(plan: Plan, steps: Iterable[Step]) -> dict[str, Any]:
    """The definition of a run as plain data, for the words of dialects.

    A dialect knows steps only: the elements, calls and added steps of the run stand among the written ones and have
    the effects. Their owners have none.
    """
    written: dict[str, Any] = msgspec.to_builtins(plan.definition)
    told = [
        one | ({} if planned.kind.growth is None else {"effect": "read"})
        for one, planned in zip(written["steps"], plan.steps, strict=True)
    ]
    for one in map(plan.of, steps):
        if one.owner is not None and one.phase is Phase.MAIN:
            own = {"name": one.name, "order": told[one.owner]["order"], "on_failure": one.on_failure.value}
            told.append(msgspec.to_builtins(one.definition) | own)
    return written | {"steps": told}


async def stored_definition(transactor: Transactor, run: Run) -> StoredDefinition:
    """The definition of a run as it is stored now, bypassing the cache."""
    wanted = run.definition_id
    stored = (await transactor.store.read_definitions([wanted])).get(wanted)
    if stored is None:
        raise DefinitionChanged(f"the definition of run {run.id} (definition {wanted}) is gone from the database")
    return stored
