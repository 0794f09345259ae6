"""Pauses a run, goes on with it, and tells who paused it.

A pause is an event of the run; the kernel decides. Who paused it and why is read from the journal. The engine and
`diagnosis` call it.
"""

from __future__ import annotations

import msgspec

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.machine.events import PauseRequested, UnpauseRequested
from stepkeep.kernel.machine.journal import RUN_ENTITY, Entry, open_entry
from stepkeep.kernel.machine.rows import Run
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.machine.tables import RunTrigger
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.people.people import requested, submit
from stepkeep.operations.pipeline.transact import Transactor

PAGE = 200
"""Entries that are read at once on the way back to the pause."""


class Pause(msgspec.Struct, frozen=True):
    """Who paused a run, when, and why."""

    by: str
    at: int
    reason: str


async def pause_run(
    transactor: Transactor,
    run_id: str,
    *,
    caller: Caller,
    reason: str = "",
) -> Accepted:
    """Claim nothing more of a run until it is resumed."""
    asked = requested(caller, run_id)
    return await submit(transactor, PauseRequested(**asked, reason=validate.words("the reason", reason)))


async def resume_run(
    transactor: Transactor,
    run_id: str,
    *,
    caller: Caller,
    reason: str = "",
) -> Accepted:
    """Go on with a paused run."""
    asked = requested(caller, run_id)
    return await submit(transactor, UnpauseRequested(**asked, reason=validate.words("the reason", reason)))


async def read_pause(transactor: Transactor, run: Run) -> Pause | None:
    """Who paused this run; None if it is not paused. Reads the journal from its end."""
    if run.state is not RunState.PAUSED:
        return None
    last = run.seq
    while last > 0:
        first = max(0, last - PAGE)
        page = await transactor.store.read_journal(run.tenant, run.id, after=first, limit=last - first)
        for sealed in reversed(page):
            if (found := _pause_in(open_entry(sealed.body))) is not None:
                return found
        last = first
    return None


def _pause_in(entry: Entry) -> Pause | None:
    for hop in reversed(entry.hops):
        if hop.no == RUN_ENTITY and hop.trigger == RunTrigger.PAUSED:
            cause = entry.causes[hop.by]
            return Pause(cause.actor, entry.at, str((cause.detail or {}).get("reason", "")))
    return None
