"""Pauses of queues and of a whole tenant, whose queues workers leave out of claims, and of workflows, whose new runs
start paused.

A pause is a setting of the tenant, with its revisions. Workers read it with each sweep, so that a claim costs nothing
more; what they hold goes on. Every start asks `PauseReader`, and the kernel pauses the new run in the transaction that
starts it. No other run is changed. The engine, workers, starts and `diagnosis` call it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import NoSuchName, Unreadable
from stepkeep.kernel.machine.events import PauseRequested
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.shared_reads import RecentReads
from stepkeep.operations.settings import SettingKind, change_setting, read_setting
from stepkeep.store.change import RunKey
from stepkeep.store.protocol import Store

NAME = "claims"
FRESH_SECONDS = 0.75
"""For how long a process goes by the pauses that it has read."""


class Paused(Answer, kw_only=True):
    """One pause."""

    scope: Literal["tenant", "queue", "workflow"]
    queue: Annotated[str | None, says("Its name; the default queue is empty.")]
    workflow: Annotated[str | None, says("The workflow whose runs start paused.")]
    by: str
    since: str
    reason: str


class PauseList(Answer, kw_only=True):
    """Everything that is paused."""

    pauses: list[Paused]


class PauseNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who paused something, when (microseconds since 1970), and why."""

    by: str
    at: int
    reason: str = ""


class Pauses(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is paused in a tenant: all of it, queues or workflows by their names. The default queue is ``""``."""

    tenant: PauseNote | None = None
    queues: dict[str, PauseNote] = {}
    workflows: dict[str, PauseNote] = {}

    def of(self, spec: QueueSpec) -> PauseNote | None:
        """Why nothing is claimed from this queue; None if it is not paused."""
        return self.tenant or self.queues.get(spec.group)

    def numbers(self, known: Iterable[tuple[int, QueueSpec]]) -> frozenset[int]:
        """The numbers of the queues that are not to be claimed from."""
        if self == NONE:
            return frozenset()
        return frozenset(number for number, spec in known if self.of(spec) is not None)

    def at_start(self, workflow: str, tenant: str, run_id: str) -> PauseRequested | None:
        """The pause of a run of this workflow that starts now; None if the workflow is not paused.

        It has no key: who paused the workflow was admitted then, and may have no key by now.
        """
        note = self.workflows.get(workflow)
        if note is None:
            return None
        said = f"workflow {workflow} is paused" + (f": {note.reason}" if note.reason else "")
        return PauseRequested(tenant=tenant, run_id=run_id, actor=note.by, reason=said)


NONE = Pauses()


async def read_pauses(store: Store, tenant: str) -> Pauses:
    """What is paused now."""
    found = await read_setting(store, tenant, SettingKind.PAUSE, NAME)
    return NONE if found is None else msgspec.convert(found, Pauses)


async def list_pauses(store: Store, tenant: str) -> PauseList:
    """What is paused: the tenant first, then queues, then workflows."""
    return _view(await read_pauses(store, tenant))


async def pauses_of_idle(store: Store, runs: Iterable[RunKey]) -> list[PauseRequested]:
    """The pauses that these runs start with, as far as they are idle and their workflows are paused."""
    known: dict[str, Pauses] = {}
    found = []
    for tenant, run_id in runs:
        if tenant not in known:
            known[tenant] = await read_pauses(store, tenant)
        try:
            record = await store.read_run(tenant, run_id) if known[tenant].workflows else None
        except Unreadable:
            continue  # it cannot be started either
        if record is not None and record.run.state is RunState.IDLE:
            pause = known[tenant].at_start(record.details.workflow, tenant, run_id)
            found += [] if pause is None else [pause]
    return found


def claims_view(pauses: Pauses) -> list[dict[str, Any]]:
    """The pauses of claims as JSON, that of the tenant first."""
    found = [] if pauses.tenant is None else [{"scope": "tenant", "queue": None, **_note(pauses.tenant)}]
    return found + [{"scope": "queue", "queue": name, **_note(note)} for name, note in sorted(pauses.queues.items())]


def workflows_view(pauses: Pauses) -> list[dict[str, Any]]:
    """The paused workflows as JSON."""
    return [{"workflow": name, **_note(note)} for name, note in sorted(pauses.workflows.items())]


def _view(pauses: Pauses) -> PauseList:
    claims = [Paused(workflow=None, **one) for one in claims_view(pauses)]
    workflows = [Paused(scope="workflow", queue=None, **one) for one in workflows_view(pauses)]
    return PauseList(pauses=claims + workflows)


class _Note(TypedDict):
    by: str
    since: str
    reason: str


def _note(note: PauseNote) -> _Note:
    return {"by": note.by, "since": instant(note.at), "reason": note.reason}


async def pause_claims(store: Store, queue: str | None, reason: str, *, caller: Caller) -> PauseList:
    """Pause a queue, or with None the whole tenant. What is paused already stays as it is."""
    if queue is not None:
        await _check_queue(store, caller.tenant, queue)
    note = await _new_note(store, reason, caller)

    def add(before: Pauses) -> Pauses:
        if queue is None:
            return before if before.tenant is not None else msgspec.structs.replace(before, tenant=note)
        return msgspec.structs.replace(before, queues={queue: note, **before.queues})

    return await _changed(store, add, caller)


async def resume_claims(store: Store, queue: str | None, *, caller: Caller) -> PauseList:
    """End the pause of a queue, or with None of the whole tenant; what is not paused stays as it is."""
    if queue is not None and queue not in (await read_pauses(store, caller.tenant)).queues:
        await _check_queue(store, caller.tenant, queue)

    def remove(before: Pauses) -> Pauses:
        if queue is None:
            return msgspec.structs.replace(before, tenant=None)
        left = {name: note for name, note in before.queues.items() if name != queue}
        return msgspec.structs.replace(before, queues=left)

    return await _changed(store, remove, caller)


async def pause_workflow(store: Store, workflow: str, reason: str, *, caller: Caller) -> PauseList:
    """Let the runs of a workflow start paused from now on. One that is paused already stays as it is."""
    await _check_workflow(store, caller.tenant, workflow)
    note = await _new_note(store, reason, caller)

    def add(before: Pauses) -> Pauses:
        return msgspec.structs.replace(before, workflows={workflow: note, **before.workflows})

    return await _changed(store, add, caller)


async def resume_workflow(store: Store, workflow: str, *, caller: Caller) -> PauseList:
    """Let the runs of a workflow start as usual. Those that started paused stay so until they are resumed."""
    if workflow not in (await read_pauses(store, caller.tenant)).workflows:
        await _check_workflow(store, caller.tenant, workflow)

    def remove(before: Pauses) -> Pauses:
        left = {name: note for name, note in before.workflows.items() if name != workflow}
        return msgspec.structs.replace(before, workflows=left)

    return await _changed(store, remove, caller)


async def _check_workflow(store: Store, tenant: str, workflow: str) -> None:
    if await store.read_definition(tenant, workflow, None) is None:
        raise NoSuchName(f"there is no workflow {inert_line(workflow, 100)!r}. `stepkeep definitions` lists them.")


async def _new_note(store: Store, reason: str, caller: Caller) -> PauseNote:
    by, why = validate.key("the actor", caller.actor), validate.words("the reason", reason)
    return PauseNote(by=by, at=await store.now(), reason=why)


async def _check_queue(store: Store, tenant: str, queue: str) -> None:
    known = {spec.group for _, spec in await store.list_queues(tenant)}
    if queue not in known:
        names = ", ".join(sorted(name or '"" (the default queue)' for name in known)) or "none"
        raise NoSuchName(f"there is no queue {inert_line(queue, 100)!r}. The queues of published workflows: {names}.")


async def _changed(store: Store, change: Callable[[Pauses], Pauses], caller: Caller) -> PauseList:
    def changed(before: Any) -> Any:
        known = NONE if before is None else msgspec.convert(before, Pauses)
        return msgspec.to_builtins(change(known)) or None

    found = await change_setting(store, SettingKind.PAUSE, NAME, changed, caller=caller)
    return _view(NONE if found is None else msgspec.convert(found, Pauses))


class PauseReader(RecentReads[Pauses]):
    """The pauses of tenants as a process knows them: those of at most `FRESH_SECONDS` ago."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(read_pauses, FRESH_SECONDS, monotonic)
