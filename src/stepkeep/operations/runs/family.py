"""The tree of a run: its parent, and its child runs with their states and what they cost. Reads only.

`views.describe_run` adds it to the view of a run that has a parent or children; nothing is read for any other run.
"""

from __future__ import annotations

from typing import TypedDict

from msgspec import UNSET
from msgspec.json import decode
from msgspec.structs import replace

from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.machine.rows import Child, ChildMode, ChildState, Run
from stepkeep.kernel.plan import Plan
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.run_answers import ChildRun, Parent, Successor

MOST_SHOWN = 200
"""How many runs of a tree are shown."""


def has_children(plan: Plan) -> bool:
    """Whether runs of this plan start child runs, or may: calls of a flow are not in the plan."""
    return plan.has_flows or any(step.child is not UNSET for step in plan.definition.work)


class Family(TypedDict, total=False):
    """The parts of a run's view about its tree. A run as which a flow continued is in no tree, and named here."""

    parent: Parent
    children: list[ChildRun]
    tree_cost: dict[str, float]
    children_left_off: int
    continued_as: Successor
    continued_from: str


async def family(transactor: Transactor, run: Run, plan: Plan, cost: dict[str, float]) -> Family:
    """What a run's view has about its tree; empty without parent and children."""
    shown: Family = {}
    link = None
    if is_child(run.id) or plan.has_flows:
        link = await transactor.store.children.read_link(run.tenant, run.id)
    if link is not None and not is_child(run.id):
        shown["continued_from"] = link.run_id
    elif link is not None:
        shown["parent"] = Parent(run_id=link.run_id, no=link.no, activation=link.activation, mode=link.mode)
    if has_children(plan):
        tree = _Tree(transactor)
        shown["children"] = await tree.below(run, plan)
        if (successor := tree.successors.get(run.id)) is not None:
            shown["continued_as"] = await _successor(transactor, successor)
        shown["tree_cost"] = _sum([cost, *tree.costs])
        if tree.left_off:
            shown["children_left_off"] = tree.left_off
    return shown


class _Tree:
    """The runs below a run, depth first, up to a limit."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self.costs: list[dict[str, float]] = []
        self.left_off = 0
        self.successors: dict[str, Child] = {}
        """The runs as which flows have continued, by the run of the flow. They are no children."""

    async def below(self, run: Run, plan: Plan) -> list[ChildRun]:
        links = await self._transactor.store.children.read_all(run.tenant, run.id)
        self.successors |= {link.run_id: link for link in links if not is_child(link.child_id)}
        return [await self._described(child, plan) for child in links if is_child(child.child_id)]

    async def _described(self, child: Child, plan: Plan) -> ChildRun:
        shown = ChildRun(
            step=plan.at(child.no).name,
            run_id=child.child_id,
            workflow=child.workflow,
            version=child.version,
            detached=child.mode is ChildMode.DETACHED,
            state=child.state if child.outcome is None else child.outcome,
            error=child.error,
            undoes=UNSET if child.undoes is None else child.undoes,
        )
        if child.state not in (ChildState.STARTED, ChildState.ENDED):
            return shown
        if len(self.costs) >= MOST_SHOWN:
            self.left_off += 1
            return shown
        record = await self._transactor.store.read_run(child.tenant, child.child_id)
        if record is None:
            return replace(shown, is_deleted=True)
        attempts = await self._transactor.store.read_attempts(child.tenant, child.child_id)
        cost = _sum([decode(one.cost) for one in attempts if one.cost is not None])
        self.costs.append(cost)
        below = await plan_for(self._transactor, record.run)
        children = await self.below(record.run, below) if has_children(below) else []
        return replace(shown, state=record.run.state, error=record.run.error, cost=cost, children=children)


async def _successor(transactor: Transactor, link: Child) -> Successor:
    record = await transactor.store.read_run(link.tenant, link.child_id)
    if record is None:
        return Successor(run_id=link.child_id, state=link.state, error=link.error)
    return Successor(run_id=link.child_id, state=record.run.state, error=record.run.error)


def _sum(costs: list[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for cost in costs:
        for kind, amount in cost.items():
            total[kind] = total.get(kind, 0) + amount
    return total
