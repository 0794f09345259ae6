"""Withdrawn versions of workflows: withdraws one, restores it, and refuses to start runs of it.

A withdrawal is a setting of the tenant, so that each change is on record with its time, actor and reason. Live runs go
on. A process goes by what it has read for at most two seconds. The engine withdraws; every start asks `Withdrawals`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, Moment
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.shared_reads import RecentReads
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.settings import SettingKind, change_setting, list_kind
from stepkeep.store.protocol import Store

FRESH_SECONDS = 2.0
"""How long a process goes by the withdrawals that it has read."""

MAX_REASON = 500

Version = tuple[str, int]
"""(workflow, version)."""


class Withdrawal(Answer, kw_only=True):
    """Since when a version is withdrawn, by whom and why."""

    at: Moment
    by: str
    reason: str


class Withdrawn(Answer, kw_only=True):
    """A version that was withdrawn, and the triggers that would start it."""

    workflow: str
    version: int
    state: Literal["withdrawn"]
    reason: str
    triggers: list[str]


class Restored(Answer, kw_only=True):
    """A version whose runs may start again."""

    workflow: str
    version: int
    state: Literal["published"]


async def withdraw(transactor: Transactor, workflow: str, version: int, *, caller: Caller, reason: str) -> Withdrawn:
    """Let no run of a published version start any more. Tells which triggers would start it."""
    why = validate.words("the reason", reason, MAX_REASON)
    if not why.strip():
        raise InvalidInput("say why the version is withdrawn: its reason stays on record.")
    await _known(transactor.store, workflow, version, caller.tenant)

    def change(before: Any) -> dict[str, str]:
        if before is not None:
            raise Conflict(f"version {version} of {workflow} is withdrawn already: {before['reason']}")
        return {"reason": why}

    await change_setting(transactor.store, SettingKind.WITHDRAWN, _name(workflow, version), change, caller=caller)
    newest = await transactor.store.read_definition(caller.tenant, workflow, None)
    is_newest = newest is not None and newest.version == version
    rows = await transactor.store.triggers.list_of_workflow(caller.tenant, workflow)
    hit = [row.name for row in rows if row.version == version or (row.version is None and is_newest)]
    return Withdrawn(workflow=workflow, version=version, state="withdrawn", reason=why, triggers=hit)


async def restore(transactor: Transactor, workflow: str, version: int, *, caller: Caller) -> Restored:
    """Let runs of a withdrawn version start again."""
    await _known(transactor.store, workflow, version, caller.tenant)

    def change(before: Any) -> None:
        if before is None:
            raise Conflict(f"version {version} of {workflow} is not withdrawn.")

    await change_setting(transactor.store, SettingKind.WITHDRAWN, _name(workflow, version), change, caller=caller)
    return Restored(workflow=workflow, version=version, state="published")


async def list_withdrawn(store: Store, tenant: str) -> dict[Version, Withdrawal]:
    """Every withdrawn version."""
    found = {}
    for one in await list_kind(store, tenant, SettingKind.WITHDRAWN):
        workflow, _, version = one.name.rpartition("@")
        reason = msgspec.json.decode(one.document)["reason"]
        found[workflow, int(version)] = Withdrawal(at=instant(one.saved_at), by=one.saved_by, reason=reason)
    return found


class Withdrawals(RecentReads[dict[Version, Withdrawal]]):
    """The withdrawn versions as this process knows them. One per process; every start asks it."""

    def __init__(self, transactor: Transactor) -> None:
        super().__init__(list_withdrawn, FRESH_SECONDS, lambda: transactor.monotonic())
        self._store = transactor.store

    async def refuse(self, tenant: str, workflow: str, version: int) -> None:
        """Refuse to start a run of a withdrawn version."""
        found = (await self.read(self._store, tenant)).get((workflow, version))
        if found is not None:
            said = (
                f"version {version} of {workflow} was withdrawn by {found.by}: {found.reason}. No run of it may start."
            )
            next_ = f"Start another version, or restore it: `stepkeep restore {workflow} {version}`."
            raise Conflict(f"{said} {next_}", {"by": found.by, "workflow": workflow, "version": version})


async def _known(store: Store, workflow: str, version: int, tenant: str) -> None:
    validate.key("the workflow", workflow)
    if type(version) is not int or version < 1:
        raise InvalidInput("the version is a whole number from 1 on.")
    if await store.read_definition(tenant, workflow, version) is None:
        raise NotFound(f"there is no published version {version} of {workflow}. `stepkeep definitions` lists them.")


def _name(workflow: str, version: int) -> str:
    return f"{workflow}@{version}"
