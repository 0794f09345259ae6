"""One change inside an open transaction: lock and load, decide, load more if asked, write.

The caller begins, commits and rolls back: the store for its own changes, `transaction` for those with user code.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepkeep.kernel.errors import Broken
from stepkeep.store.bounds import check_write
from stepkeep.store.change import Decide, Propose, Want, Write
from stepkeep.store.postgres.connections import Connection
from stepkeep.store.postgres.load import Loading, OutOfOrder
from stepkeep.store.postgres.write import write

MAX_ROUNDS = 10_000
"""Limit on rounds of loading: a callback that always asks for more becomes an error, not a hang."""


class StartAgain(Exception):
    """Runs are needed that cannot be locked in order any more: roll back, and start again with all of these."""

    def __init__(self, wants: tuple[Want, ...]) -> None:
        self.wants = wants
        super().__init__("the runs wanted cannot be locked in id order in this transaction")


async def change(
    connection: Connection, clock_offset: int, wants: Sequence[Want], decide: Decide, propose: Propose | None
) -> None:
    """Load, decide (again if more is needed), write."""
    loading = Loading(connection, clock_offset)
    asked = tuple(wants)
    await loading.begin(asked, propose)
    for _ in range(MAX_ROUNDS):
        answer = decide(loading.loaded)
        if isinstance(answer, Write):
            check_write(answer)
            await write(connection, answer, clock_offset)
            return
        asked += answer.wants
        try:
            await loading.more(answer)
        except OutOfOrder:
            raise StartAgain(asked) from None
    raise Broken(f"a change asked for more {MAX_ROUNDS} times without coming to a decision")
