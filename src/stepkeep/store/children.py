"""The table of child runs: what is left to do about each, and the reads of a tree.

The rows are written with the decisions of parent and child (`Write.children`, `begun`, `recalls`, `notices`). It
decides nothing; `operations.children.children` does.
"""

from __future__ import annotations

from stepkeep.kernel.machine.rows import Child, ChildTodo
from stepkeep.store.columns import child_from
from stepkeep.store.part import Part
from stepkeep.store.reading import first

MOST_CHILDREN = 1000
"""How many children of a run are read at most."""


class ChildStore(Part):
    """The table of child runs."""

    async def find_due(self, limit: int) -> list[Child]:
        """Children of all tenants about which something is to be done now, the longest due first."""
        return await self._read(child_from, self._sql.find_due_children, self._time(), limit)

    async def save(self, child: Child, was: ChildTodo) -> bool:
        """Write what was done about a child. False: that was no longer to be done, and nothing is written."""
        key = (child.tenant, child.run_id, child.no, child.activation)
        how = (child.state, child.started_at, child.ended_at, child.outcome, child.category, child.error)
        [found] = await self._transact([(self._sql.update_child, (*key, *how, child.todo, child.todo_at, was))])
        return bool(found)

    async def read_all(self, tenant: str, run_id: str, limit: int = MOST_CHILDREN) -> list[Child]:
        """The children of a run, by step and activation."""
        return await self._read(child_from, self._sql.read_children, tenant, run_id, limit)

    async def read_link(self, tenant: str, child_id: str) -> Child | None:
        """The link of a child to its parent; None for a run that is no child."""
        return first(await self._read(child_from, self._sql.read_child_link, tenant, child_id))
