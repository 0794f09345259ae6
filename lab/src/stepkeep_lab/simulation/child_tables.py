"""Child runs of the model database. It follows the statements of the real stores, each in one round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.rows import Child, ChildMode, ChildState, ChildTodo, Notice, Recall
from stepkeep.store.change import Write
from stepkeep.store.children import MOST_CHILDREN, ChildStore
from stepkeep.store.rows import BegunChild
from stepkeep.store.writing import NOT_REQUESTED
from stepkeep_lab.simulation.delivery_tables import Asking

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database

ChildKey = tuple[str, str, int, int]
"""(tenant, run id, step, activation)."""


def key_of(child: Child | BegunChild) -> ChildKey:
    return (child.tenant, child.run_id, child.no, child.activation)


class ChildRows:
    """Everything that is committed about children."""

    def __init__(self) -> None:
        self.links: dict[ChildKey, Child] = {}

    def written_by(self, what: Write) -> list[ChildKey]:
        """The rows that a write changes, in order; each is locked."""
        told = (self.link_of(one.tenant, one.child_id) for one in what.every_row().of(Notice))
        keys = {(one.tenant, one.run_id, one.no, one.activation) for one in what.every_row().of(Recall)}
        return sorted(keys | {key_of(one) for one in (*what.rows.of(BegunChild), *told) if one is not None})

    def refuse(self, what: Write) -> None:
        """Raise if a child is to start that is not requested any more."""
        for begun in what.rows.of(BegunChild):
            found = self.links.get(key_of(begun))
            if found is None or found.state is not ChildState.REQUESTED:
                raise Conflict(NOT_REQUESTED)

    def write(self, what: Write) -> None:
        self.refuse(what)
        for begun in what.rows.of(BegunChild):
            self._put(
                replace(
                    self.links[key_of(begun)],
                    state=ChildState.STARTED,
                    started_at=begun.started_at,
                    todo=None,
                    todo_at=None,
                )
            )
        for asked in what.every_row().of(Child):
            self._put(asked)
        for recall in what.every_row().of(Recall):
            found = self.links.get((recall.tenant, recall.run_id, recall.no, recall.activation))
            if found is not None and found.state in (ChildState.REQUESTED, ChildState.STARTED):
                is_new = found.state is ChildState.REQUESTED
                self._put(
                    replace(
                        found,
                        recall=recall.recall,
                        recalled_at=recall.recalled_at,
                        state=ChildState.WITHDRAWN if is_new else found.state,
                        todo=ChildTodo.TELL if is_new else ChildTodo.CANCEL,
                        todo_at=recall.recalled_at,
                    )
                )
        for notice in what.every_row().of(Notice):
            link = self.link_of(notice.tenant, notice.child_id)
            if link is not None and link.state is ChildState.STARTED:
                is_awaited = link.mode is ChildMode.AWAITED
                self._put(
                    replace(
                        link,
                        state=ChildState.ENDED,
                        outcome=notice.outcome,
                        ended_at=notice.ended_at,
                        category=notice.category,
                        error=notice.error,
                        todo=ChildTodo.TELL if is_awaited else None,
                        todo_at=notice.ended_at if is_awaited else None,
                    )
                )

    def _put(self, child: Child) -> None:
        self.links[key_of(child)] = child

    def link_of(self, tenant: str, child_id: str) -> Child | None:
        mine = (one for one in self.links.values() if (one.tenant, one.child_id) == (tenant, child_id))
        return next(mine, None)

    def of(self, tenant: str, run_id: str) -> list[Child]:
        return [one for key, one in sorted(self.links.items()) if key[:2] == (tenant, run_id)]

    def delete(self, tenant: str, run_id: str) -> None:
        for child in self.of(tenant, run_id):
            del self.links[key_of(child)]


class ModelChildren(ChildStore):
    """`ChildStore` on the model database."""

    def __init__(self, database: Database, wire: Asking, clock: Callable[[], int]) -> None:
        self._database, self._wire, self._clock = database, wire, clock

    @property
    def _rows(self) -> ChildRows:
        return self._database.tables.children

    async def find_due(self, limit: int) -> list[Child]:
        def work() -> list[Child]:
            tables = self._database.tables
            due = [
                one
                for one in self._rows.links.values()
                if one.todo_at is not None
                and one.todo_at <= self._clock()
                and not tables.is_quarantined((one.tenant, one.run_id))
            ]
            return sorted(due, key=lambda one: one.todo_at or 0)[:limit]

        return await self._wire.ask("find due children", work)

    async def save(self, child: Child, was: ChildTodo) -> bool:
        def work() -> bool:
            found = self._rows.links.get(key_of(child))
            if found is None or found.todo is not was:
                return False
            self._rows.links[key_of(child)] = replace(
                found,
                state=child.state,
                started_at=child.started_at,
                ended_at=child.ended_at,
                outcome=child.outcome,
                category=child.category,
                error=child.error,
                todo=child.todo,
                todo_at=child.todo_at,
            )
            return True

        return await self._wire.ask("save child", work)

    async def read_all(self, tenant: str, run_id: str, limit: int = MOST_CHILDREN) -> list[Child]:
        return await self._wire.ask("read children", lambda: self._rows.of(tenant, run_id)[:limit])

    async def read_link(self, tenant: str, child_id: str) -> Child | None:
        return await self._wire.ask("read link", lambda: self._rows.link_of(tenant, child_id))
