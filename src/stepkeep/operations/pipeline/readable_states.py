"""Reads the states of many runs where one of them may be damaged: a damaged run holds up no other.

It repairs nothing. Retention, archives and the watchers of streams call it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepkeep.kernel.errors import Unreadable
from stepkeep.store.change import RunKey
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunStatus


async def readable_states(store: Store, keys: Sequence[RunKey]) -> tuple[dict[RunKey, RunStatus], list[Unreadable]]:
    """The states of the runs that can be read, and what is wrong with the others."""
    left, problems = list(keys), list[Unreadable]()
    while left:
        try:
            return await store.read_states(left), problems
        except Unreadable as problem:
            others = [key for key in left if key != (problem.tenant, problem.run_id)]
            if len(others) == len(left):
                raise
            problems.append(problem)
            left = others
    return {}, problems
