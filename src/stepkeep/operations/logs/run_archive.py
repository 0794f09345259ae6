"""Archives single runs when they have ended: one folder per run under the folder that its workflow names.

A bundle is written under a temporary name, verified, synced and renamed, so that it is never seen half-written. A run
is archived once: a bundle that is there is left as it is. Workers and `stepkeep archive` sweep, so that another process
makes up for what one leaves undone. Only a worker that may deletes runs, after the time that their workflow keeps them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stepkeep.definition.native.written import ArchivePolicy, policy_of
from stepkeep.kernel.definition import decode_definition
from stepkeep.kernel.errors import Conflict, InvalidInput, StepkeepError
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.operations.logs.archive import UNFINISHED, Archive, explained, flaw_of, sync_folder, write_whole
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import lines_of
from stepkeep.operations.logs.retention import first_id_at
from stepkeep.operations.logs.state_files import TRANSITIONS, Shown, current_of, documents_of
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.readable_states import readable_states
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.projected import describe_whole_as
from stepkeep.operations.runs.views import read_snapshot
from stepkeep.operations.streams.reading import with_streams
from stepkeep.store.reading import damage_of
from stepkeep.store.records import FIRST_ID, FinishedFilter, RunFilter, WholeRun

log = logging.getLogger("stepkeep.archive")

CURSOR = ".swept.json"
"""Up to which run a folder is complete, so that a sweep need not look at everything again."""

LATE_START = 3_600 * 1_000_000
"""A start that commits so late (microseconds after its id was made) is still found by a sweep."""

PAGE = 500
INTERVAL = 15.0
SWEEPS_BETWEEN_DELETIONS = 240
"""A worker that deletes runs looks for them with each sweep of this number: about once in an hour."""
WORKSTREAM = "workstream"
LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)

Verify = Callable[[Path], Iterable[str]]
"""Verifies the manifest of an archive; what is wrong with it. The judge is not known here."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """One archived run. `made`: it was not there before."""

    run_id: str
    workflow: str
    state: str
    folder: str
    made: bool


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep archived, which runs it could not archive, with the reasons, and which it deleted."""

    bundles: tuple[Bundle, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    deleted: tuple[str, ...] = ()


async def archive_run(transactor: Transactor, run_id: str, to: Path, *, tenant: str, verify: Verify) -> Bundle:
    """Archive one ended run below a folder, unless it is there already."""
    whole = await read_snapshot(transactor, run_id, tenant=tenant)
    run = whole.record.run
    if run.state not in RUN_TERMINAL:
        raise Conflict(f"run {run_id} is {run.state}; it is archived when it has ended", {"state": run.state})
    workflow = whole.record.details.workflow
    place = to / workflow / run_id
    told = {"run_id": run_id, "workflow": workflow, "state": str(run.state), "folder": str(place)}
    if await asyncio.to_thread(place.is_dir):
        return Bundle(**told, made=False)
    if (flaw := flaw_of(whole) or damage_of(whole)) is not None:
        raise InvalidInput(f"run {run_id} is not archived: {flaw}")
    plan = await plan_for(transactor, run)
    files = await _state_files(transactor, whole) if plan.definition.dialect == WORKSTREAM else {}
    opened = await with_streams(transactor.store, await transactor.payloads.whole(whole, external=False))
    made = await asyncio.to_thread(_write, place, opened, plan, files, await transactor.store.now(), verify)
    return Bundle(**told, made=made)


async def _state_files(transactor: Transactor, whole: WholeRun) -> dict[str, bytes]:
    """The seed's state files of a workstream, as they were at its end."""
    run = whole.record.run
    body = await describe_whole_as(transactor, whole, WORKSTREAM)
    shown = Shown(run_id=run.id, seq=run.seq, head=run.head.hex(), body=body)
    documents = {**documents_of(shown), "current.json": current_of([shown], run.ended_at or 0)}
    lines = lines_of(whole, await plan_for(transactor, run), WORKSTREAM)
    return {
        **{name: msgspec.json.format(msgspec.json.encode(one), indent=2) + b"\n" for name, one in documents.items()},
        TRANSITIONS: b"".join(encode_line(line) + b"\n" for line in lines),
    }


def _write(place: Path, whole: WholeRun, plan: object, files: dict[str, bytes], now: int, verify: Verify) -> bool:
    with explained(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=place.parent))
        try:
            archive = Archive(unfinished, whole.record.run.tenant)
            try:
                archive.add(whole, plan)  # type: ignore[arg-type]
                sealed = archive.seal(now)
            finally:
                archive.discard()
            assert sealed is not None
            if problems := list(verify(sealed.manifest)):
                raise InvalidInput(f"the archive of run {whole.record.run.id} does not verify: {problems[0]}")
            for name, content in files.items():
                path = unfinished / "state" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, content)
            sync_folder(unfinished)
            return _rename(unfinished, place)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _rename(unfinished: Path, place: Path) -> bool:
    """Give the bundle its name. Another process may have been faster with the same run; its bundle stays."""
    try:
        unfinished.rename(place)
    except OSError:
        if place.is_dir():
            return False
        raise
    sync_folder(place.parent)
    return True


# -- all that have ended ---------------------------------------------------------------------------------------------
class ArchiveSweeper:
    """Archives the ended runs of all workflows that declare it. A definition names a folder below `base`, and never one
    outside: it is written by users, and the disk belongs to the operator."""

    def __init__(self, transactor: Transactor, *, tenant: str, verify: Verify, base: Path | None = None) -> None:
        self._transactor, self._tenant, self._verify = transactor, tenant, verify
        self._base = base or Path()
        self._refused: dict[str, str] = {}

    async def sweep(self) -> Swept:
        """Archive what has ended and is not archived."""
        bundles: list[Bundle] = []
        problems: list[tuple[str, str]] = []
        for workflow, policies in (await self._declared()).items():
            folders = {policy.to for policy in policies.values()}
            for to in sorted(folders):
                made, failed = await self._of(workflow, self._base / to, policies)
                bundles += made
                problems += failed
        return Swept(bundles=tuple(bundles), problems=tuple(problems))

    async def delete_expired(self) -> Swept:
        """Delete the runs whose time in `keep` has passed. A run whose ending is to be archived goes only if it is."""
        store, now = self._transactor.store, await self._transactor.store.now()
        deleted: list[str] = []
        for workflow, policies in (await self._declared()).items():
            times = [kept for policy in policies.values() for kept in policy.keep.values() if isinstance(kept, int)]
            if not times:
                continue
            ended_by = now - min(times)
            chosen = FinishedFilter(
                tenant=self._tenant,
                workflow=workflow,
                ended_by=ended_by,
                before=first_id_at(ended_by + 1000),
                limit=PAGE,
            )
            while run_ids := await store.find_finished(chosen):
                expired = [one for one in run_ids if await self._is_expired(one, workflow, policies, now)]
                if expired:
                    deleted += await again_if_contended(partial(store.delete_runs, self._tenant, expired))
                chosen = replace(chosen, after=run_ids[-1])
        return Swept(deleted=tuple(deleted))

    async def _is_expired(self, run_id: str, workflow: str, policies: dict[int, ArchivePolicy], now: int) -> bool:
        states, _ = await readable_states(self._transactor.store, [(self._tenant, run_id)])
        status = states.get((self._tenant, run_id))
        policy = None if status is None else policies.get(status.definition_id)
        if status is None or policy is None or not isinstance(policy.keep.get(str(status.state)), int):
            return False
        record = await self._transactor.store.read_run(self._tenant, run_id)
        if record is None or record.run.ended_at is None:
            return False
        if policy.keeps(str(status.state), record.run.ended_at, now):
            return False
        place = self._base / policy.to / workflow / run_id
        return str(status.state) not in policy.on or await asyncio.to_thread(_is_bundle, place, self._base)

    async def follow(self, interval: float = INTERVAL, *, deletes: bool = False) -> AsyncIterator[Swept]:
        """Sweep again and again, and tell each sweep that found something. An outage is waited out."""
        sweeps = 0
        while True:
            try:
                swept = await self.sweep()
                if deletes and sweeps % SWEEPS_BETWEEN_DELETIONS == 0:
                    swept = replace(swept, deleted=(await self.delete_expired()).deleted)
                sweeps += 1
                if swept.bundles or swept.problems or swept.deleted:
                    yield swept
            except StepkeepError as problem:
                log.warning("ended runs are not archived now: %s", problem)
            await asyncio.sleep(interval)

    async def _declared(self) -> dict[str, dict[int, ArchivePolicy]]:
        """Policies by workflow and the id of the definition."""
        found: dict[str, dict[int, ArchivePolicy]] = {}
        for stored in await self._transactor.store.list_definitions(self._tenant):
            policy = policy_of(decode_definition(stored.document))
            if policy is not None:
                found.setdefault(stored.name, {})[stored.id] = policy
        return found

    def _told_once(self, run_id: str, problem: Exception) -> list[tuple[str, str]]:
        """The problem of a run, unless this process told it before."""
        if run_id in self._refused:
            return []
        self._refused[run_id] = str(problem)
        return [(run_id, str(problem))]

    async def _of(
        self, workflow: str, to: Path, policies: dict[int, ArchivePolicy]
    ) -> tuple[list[Bundle], list[tuple[str, str]]]:
        folder = to / workflow
        if not await asyncio.to_thread(_is_below, folder, self._base):
            return [], await self._outside(workflow, folder)
        floor = await asyncio.to_thread(_read_cursor, folder)
        known = await asyncio.to_thread(_archived, folder)
        # Before the finished ones are read: a run that ends in between is above the new floor.
        above = await self._new_floor(workflow)
        bundles: list[Bundle] = []
        problems: list[tuple[str, str]] = []
        chosen = FinishedFilter(tenant=self._tenant, workflow=workflow, after=floor, limit=PAGE)
        while run_ids := await self._transactor.store.find_finished(chosen):
            keys = [(self._tenant, one) for one in run_ids if one not in known]
            states, unreadable = await readable_states(self._transactor.store, keys)
            for damaged in unreadable:
                above = min(above, str(damaged.run_id))
                problems += self._told_once(str(damaged.run_id), damaged)
            for key, status in states.items():
                policy = policies.get(status.definition_id)
                if policy is None or self._base / policy.to != to or status.state not in policy.on:
                    continue
                try:
                    made = await archive_run(self._transactor, key[1], to, tenant=self._tenant, verify=self._verify)
                    bundles += [made] if made.made else []
                except InvalidInput as problem:
                    # It stays in the database. It is told once, and tried again by the next process.
                    above = min(above, key[1])
                    problems += self._told_once(key[1], problem)
            chosen = replace(chosen, after=run_ids[-1])
        if above > floor:
            await asyncio.to_thread(_write_cursor, folder, above)
        return bundles, problems

    async def _outside(self, workflow: str, folder: Path) -> list[tuple[str, str]]:
        """Why the runs of a workflow are not archived, told once and with the first of them."""
        found = await self._transactor.store.find_finished(
            FinishedFilter(tenant=self._tenant, workflow=workflow, after=FIRST_ID, limit=1)
        )
        said = f"{folder} is not below {self._base.resolve()}. To allow it, give --archive-root DIR."
        return [one for run_id in found for one in self._told_once(run_id, InvalidInput(said))]

    async def _new_floor(self, workflow: str) -> str:
        """No run below it is alive or may still be started."""
        oldest = first_id_at(await self._transactor.store.now() - LATE_START)
        page = RunFilter(tenant=self._tenant, workflow=workflow, states=LIVE, limit=PAGE)
        while records := await self._transactor.store.list_runs(page, []):
            oldest = min(oldest, records[-1].run.id)
            page = replace(page, before=records[-1].run.id)
        return oldest


def _is_below(folder: Path, base: Path) -> bool:
    """Whether a folder is below another one, also when every link on the way to it is followed."""
    return folder.resolve().is_relative_to(base.resolve())


def _is_bundle(place: Path, base: Path) -> bool:
    """Whether a run is archived there."""
    return _is_below(place, base) and place.is_dir()


def _archived(folder: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except FileNotFoundError:
        return frozenset()


def _read_cursor(folder: Path) -> str:
    """The floor of a folder; the first id where it is missing or unreadable, which only costs time."""
    try:
        said = msgspec.json.decode((folder / CURSOR).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return FIRST_ID
    floor = said.get("floor", FIRST_ID)
    return floor if len(floor) == len(FIRST_ID) else FIRST_ID


def _write_cursor(folder: Path, floor: str) -> None:
    with explained(folder):
        if not folder.is_dir():
            return
        write_whole(folder / CURSOR, msgspec.json.encode({"floor": floor}) + b"\n")
