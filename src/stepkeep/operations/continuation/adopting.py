"""The part of a start that continues an earlier run: what is locked, what is refused, and which rows it adds.

The earlier run is locked, so that two retries of it cannot both take the undo of its steps, and retention cannot delete
it meanwhile. It decides nothing about steps; `kernel/composition/adoption.py` does. `start.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from stepkeep.kernel.composition.continuation import Continuation
from stepkeep.kernel.errors import Conflict, NotFound
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.kernel.people.authority import Caller
from stepkeep.store.change import Loaded, RunKey, Want, Write
from stepkeep.store.rows import AdoptionRow, ReleasedUndo


class Continuing(Protocol):
    """A request for a run that may continue an earlier one."""

    @property
    def caller(self) -> Caller: ...
    @property
    def run_id(self) -> str: ...
    @property
    def continuation(self) -> Continuation | None: ...


def continued_runs(requests: Iterable[Continuing]) -> list[Want]:
    """The earlier runs, to be locked."""
    keys = {(one.caller.tenant, one.continuation.run_id) for one in requests if one.continuation is not None}
    return [Want(tenant=tenant, run_id=run_id) for tenant, run_id in sorted(keys)]


def adopted_runs(requests: Iterable[Continuing]) -> tuple[RunKey, ...]:
    """The runs that executed the adopted steps."""
    found = {
        (one.caller.tenant, reference.run)
        for one in requests
        if one.continuation is not None
        for _, _, reference in one.continuation.in_order()
    }
    return tuple(sorted(found))


def adoption_rows(continuation: Continuation | None, tenant: str, run_id: str) -> tuple[AdoptionRow, ...]:
    """What the store keeps about the steps that a new run adopts."""
    if continuation is None:
        return ()
    return tuple(
        AdoptionRow(
            tenant=tenant,
            run_id=run_id,
            no=no,
            source_run=reference.run,
            source_step=reference.step,
            owned=int(reference.owned),
        )
        for no, _, reference in continuation.in_order()
    )


class Continuations:
    """The runs that one transaction continues."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._retried: set[RunKey] = set()

    def check(self, request: Continuing) -> None:
        """Refuse to continue a run that is gone, goes on, or is continued already."""
        continuation = request.continuation
        if continuation is None:
            return
        key = (request.caller.tenant, continuation.run_id)
        run = self._loaded.runs.get(key)
        if run is None:
            raise self._loaded.barred.get(key) or NotFound(f"there is no run {key[1]}")
        if run.state not in RUN_TERMINAL:
            raise Conflict(f"run {key[1]} is still {run.state}; cancel it or wait for its end first.")
        if continuation.how.owns_undo:
            if key in self._retried:
                raise continued_already(key[1], None)
            rows = [row for place in self._loaded.adoptions.values() for row in place]
            refuse_second_owner(continuation, request.caller.tenant, rows)

    def take(self, request: Continuing, write: Write) -> None:
        """A retry or a migration takes over the undo of what the earlier run had adopted itself."""
        continuation = request.continuation
        if continuation is not None and continuation.how.owns_undo:
            self._retried.add((request.caller.tenant, continuation.run_id))
            write.rows.add(ReleasedUndo(request.caller.tenant, continuation.run_id))


def refuse_second_owner(continuation: Continuation, tenant: str, rows: Iterable[AdoptionRow]) -> None:
    """Refuse to take the undo of a step that another run than the earlier one owns."""
    wanted = {(tenant, one.run, one.step) for _, _, one in continuation.in_order() if one.owned}
    for row in rows:
        owner = row.owned and (row.tenant, row.source_run, row.source_step) in wanted
        if owner and row.run_id != continuation.run_id:
            raise continued_already(continuation.run_id, row.run_id)


def continued_already(run_id: str, by: str | None) -> Conflict:
    """A run has one retry; the next one continues that."""
    said = f"run {run_id} is continued by run {by} already" if by else f"run {run_id} is continued already"
    return Conflict(f"{said}. Retry that one, or fork this one.", {"run_id": by} if by else {})
