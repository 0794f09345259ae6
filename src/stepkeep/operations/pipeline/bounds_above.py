"""The budgets of the runs above a child: what is left of them bounds the child too.

The chain of runs above a child never changes, so that a process remembers it. What their trees have spent is read with
each decision that needs it, without locks. `batch` and `children` call it; the kernel compares.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.decide.decision import Bound
from stepkeep.kernel.definition import OnExceeded
from stepkeep.store.change import Loaded, More, RunKey

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.plans import PlanCache

MOST_CHAINS = 10_000
"""How many children a process remembers the runs above of."""


class BoundsAbove:
    """The runs above children, as far as this process has read them."""

    def __init__(self) -> None:
        self._chains: OrderedDict[RunKey, tuple[tuple[str, int], ...]] = OrderedDict()

    def of(self, plans: PlanCache, loaded: Loaded, key: RunKey) -> tuple[Bound, ...] | More:
        """The budgets that stop a run, nearest first, or what must be loaded to tell."""
        if not is_child(key[1]):
            return ()
        chain = self._chain(loaded, key)
        if chain is None:
            return More(above=(key,))
        unknown = {definition for _, definition in chain if not plans.knows(definition)}
        if unknown - loaded.definitions.keys():
            return More(definitions=tuple(sorted(unknown)))
        plans.learn([loaded.definitions[one] for one in sorted(unknown)])
        limits = {run_id: found for run_id, one in chain if (found := _limits(plans, one)) is not None}
        if missing := tuple((key[0], run_id) for run_id in limits if (key[0], run_id) not in loaded.costs):
            return More(costs=missing)
        return tuple(Bound(run_id, limit, loaded.costs[key[0], run_id]) for run_id, limit in limits.items())

    def _chain(self, loaded: Loaded, key: RunKey) -> tuple[tuple[str, int], ...] | None:
        chain = self._chains.get(key)
        if chain is None and (chain := loaded.above.get(key)) is not None:
            self._chains[key] = chain
            while len(self._chains) > MOST_CHAINS:
                self._chains.popitem(last=False)
        return chain


def _limits(plans: PlanCache, definition: int) -> dict[str, float] | None:
    """The limits of a budget that stops its run; one that only asks or warns stops no child."""
    plan = plans.get(definition)
    budget = msgspec.UNSET if plan is None else plan.definition.budget
    return budget.limits if budget is not msgspec.UNSET and budget.on_exceeded is OnExceeded.STOP else None
