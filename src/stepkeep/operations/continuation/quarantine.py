"""Quarantine: an operator sets a run aside, and later releases it. Both are recorded, with names and reasons.

It never reads the rows of the run, because it is for runs whose rows cannot be read. It does not change the run: a
quarantined run stays as it is until it is released. The engine and the command line call it.
"""

from __future__ import annotations

from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, Moment
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.records import Quarantine


class QuarantineView(Answer, kw_only=True):
    """One quarantine."""

    run: str
    reason: str
    by: str
    at: Moment
    released_by: str | None
    released_at: Moment | None
    release_reason: str | None


class QuarantineList(Answer, kw_only=True):
    """Quarantined runs."""

    quarantined: list[QuarantineView]


async def quarantine(transactor: Transactor, run_id: str, *, caller: Caller, reason: str) -> QuarantineView:
    """Quarantine a run: nothing claims, sweeps, changes or deletes it until it is released."""
    run_id, actor, reason = validate.run_id(run_id), validate.key("the actor", caller.actor), _reason(reason)
    store = transactor.store
    noted = await again_if_contended(lambda: store.quarantine(caller.tenant, run_id, actor, reason))
    if noted is not None:
        return view(noted)
    for standing in await store.list_quarantined(caller.tenant):
        if standing.run_id == run_id:
            raise Conflict(
                f"run {run_id} was quarantined before, by {standing.quarantined_by} at "
                f"{instant(standing.quarantined_at)}: {standing.reason}",
                view(standing).as_json(),
            )
    raise NotFound(f"there is no run {run_id}")


async def release(transactor: Transactor, run_id: str, *, caller: Caller, reason: str) -> QuarantineView:
    """End a quarantine; the run continues where it was."""
    run_id, actor, reason = validate.run_id(run_id), validate.key("the actor", caller.actor), _reason(reason)
    store = transactor.store
    ended = await again_if_contended(lambda: store.release(caller.tenant, run_id, actor, reason))
    if ended is None:
        raise NotFound(f"run {run_id} is not quarantined")
    return view(ended)


async def quarantined(transactor: Transactor, *, tenant: str, history: bool = False) -> QuarantineList:
    """The quarantined runs, or with `history` every quarantine there was."""
    store = transactor.store
    found = await store.read_quarantines(tenant) if history else await store.list_quarantined(tenant)
    return QuarantineList(quarantined=[view(one) for one in found])


def view(one: Quarantine) -> QuarantineView:
    """A quarantine as answers tell it."""
    return QuarantineView(
        run=one.run_id,
        reason=one.reason,
        by=one.quarantined_by,
        at=instant(one.quarantined_at),
        released_by=one.released_by,
        released_at=instant(one.released_at),
        release_reason=one.release_reason,
    )


def _reason(reason: object) -> str:
    said = validate.words("the reason", reason)
    if not said.strip():
        raise InvalidInput("say why: the reason is kept with the quarantine")
    return said
