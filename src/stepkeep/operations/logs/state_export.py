"""Writes the state files of seed 004 into a folder and keeps them current: `stepkeep state export`.

The database stays the state; the files are a copy of it. `transitions.jsonl` is appended first (`state_log`). Every
other file is written under a temporary name, synced and renamed, `current.json` last. The command line and a worker
with `--state-dir` call it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.errors import InvalidInput, NotFound, StoreError, Unreadable
from stepkeep.operations import validate
from stepkeep.operations.logs.archive import write_whole
from stepkeep.operations.logs.lines import written_line
from stepkeep.operations.logs.log import export_together, lines_of
from stepkeep.operations.logs.state_files import (
    CHECKPOINTS,
    CURRENT,
    TRANSITIONS,
    Current,
    Shown,
    current_of,
    documents_of,
)
from stepkeep.operations.logs.state_log import CURSOR, DIALECT, TransitionLog, explained
from stepkeep.operations.logs.state_records import (
    BACKUPS,
    INTERVENTIONS,
    METRICS,
    StateMetrics,
    interventions_file,
    interventions_of,
    logs_of,
    metrics_of,
)
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.projected import describe_whole_as
from stepkeep.operations.runs.views import read_snapshot, view_of
from stepkeep.store.notifications import within
from stepkeep.store.records import RunFilter, RunRecord

log = logging.getLogger("stepkeep.state")

MOST_WORKSTREAMS = 1_000
INTERVAL = 1.0
"""Seconds between two looks, as the seed's `state_update_interval`."""

HELD_BACK = 500_000
"""Microseconds for which a follower leaves transitions to the next look, so that workers and runs are in the order of
time."""

LATE_TRIES, LATE_SECONDS = 40, 0.05
"""How often the last look waits for entries that an older transaction may still precede."""

MOST_BACKUPS = 100
"""How many copies of `current.json` are kept."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass wrote. `files` and `lines` are 0 if nothing has changed."""

    folder: str
    workstreams: tuple[str, ...] = ()
    files: int = 0
    lines: int = 0


class StateFolder:
    """A folder of state files, of the newest run of each workstream or of given runs.

    Without given runs, `transitions.jsonl` has every run and worker of the tenant; otherwise these runs with their
    workers.
    """

    def __init__(self, transactor: Transactor, folder: Path, *, tenant: str, run_ids: Sequence[str] = ()) -> None:
        self._transactor, self._folder, self._tenant = transactor, folder, tenant
        self._run_ids = tuple(validate.run_id(one) for one in run_ids)
        self._shown: dict[str, Shown] = {}
        self._log = TransitionLog(transactor, folder, tenant=tenant)
        self._has_names = False
        self._stopping = asyncio.Event()

    def prepare(self) -> None:
        """Make sure that the folder can be used."""
        with explained(self._folder):
            (self._folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        if self._run_ids and (self._folder / CURSOR).exists():
            raise InvalidInput(f"{self._folder} has the transitions of all runs; choose another folder for some runs.")

    async def write(self) -> Exported:
        """Bring the files up to date."""
        await asyncio.to_thread(self.prepare)
        lines = 0 if self._run_ids else await self._log.append()
        done = await self._write_files(lines)
        for _ in range(LATE_TRIES):
            if self._run_ids or not any(self._log.is_behind(one.run_id, one.seq) for one in self._shown.values()):
                break
            await asyncio.sleep(LATE_SECONDS)
            done = replace(done, lines=done.lines + await self._log.append())
        return done

    async def follow(self, interval: float = INTERVAL) -> AsyncIterator[Exported]:
        """Keep the files current until `stop`, and tell each look that changed something. An outage is waited out."""
        while not self._stopping.is_set():
            try:
                await asyncio.to_thread(self.prepare)
                upto = await self._transactor.store.now() - HELD_BACK
                lines = 0 if self._run_ids else await self._log.append(upto=upto, is_stopping=self._stopping.is_set)
                done = await self._write_files(lines)
                if done.files or done.lines:
                    yield done
            except (StoreError, Unreadable, InvalidInput) as problem:
                log.warning("the state files in %s stay as they were: %s", self._folder, problem)
            await within(interval, self._stopping)

    def stop(self) -> None:
        """End `follow` after what it writes now."""
        self._stopping.set()

    async def _write_files(self, lines: int) -> Exported:
        shown = await self._look()
        now = await self._transactor.store.now()
        files: dict[str, bytes] = {}
        for one in shown:
            files |= {name: _pretty(body) for name, body in documents_of(one).items()} | one.logs
        if interventions := [each for one in shown for each in one.interventions]:
            files[INTERVENTIONS] = interventions_file(interventions)
        if self._run_ids:
            told = [line async for line in self._lines_of(one.run_id for one in shown)]
            files[TRANSITIONS], lines = b"".join(told), len(told)
        metrics = metrics_of([one.body for one in shown], now)
        written = await asyncio.to_thread(self._write, files, current_of(shown, now), metrics)
        return Exported(
            folder=str(self._folder), workstreams=tuple(one.workstream for one in shown), files=written, lines=lines
        )

    async def _look(self) -> list[Shown]:
        """The chosen runs; one whose journal has not grown is not read again."""
        found: dict[str, Shown] = {}
        for record in await self._records():
            run = record.run
            known = self._shown.get(run.id)
            if known is None or known.seq != run.seq:
                known = await self._read(run.id)
            if known.workstream in found:
                raise InvalidInput(
                    f"runs {found[known.workstream].run_id} and {run.id} are both of workstream {known.workstream}; "
                    "a folder has one run of each. Name one of them."
                )
            found[known.workstream] = known
        self._shown = {one.run_id: one for one in found.values()}
        return [found[name] for name in sorted(found)]

    async def _records(self) -> list[RunRecord]:
        store = self._transactor.store
        if self._run_ids:
            some = [await store.read_run(self._tenant, one) for one in self._run_ids]
            for run_id, record in zip(self._run_ids, some, strict=True):
                if record is None:
                    raise NotFound(f"there is no run {run_id}")
            return [record for record in some if record is not None]
        if not self._has_names:
            # The others are met in the journal, when they have a run.
            published = await store.list_definitions(self._tenant)
            self._log.names |= {one.name for one in published if one.dialect == DIALECT}
            self._has_names = True
        names = sorted(self._log.names)
        if len(names) > MOST_WORKSTREAMS:
            raise InvalidInput(f"{len(names)} workstreams are published, more than {MOST_WORKSTREAMS}; name runs.")
        newest = []
        for name in names:
            newest += await store.list_runs(RunFilter(tenant=self._tenant, workflow=name, limit=1), [])
        return newest

    async def _read(self, run_id: str) -> Shown:
        return await read_shown(self._transactor, run_id, tenant=self._tenant)

    async def _lines_of(self, run_ids: Iterable[str]) -> AsyncIterator[bytes]:
        """The transitions of given runs and their workers, with the closing lines of this moment."""
        async for line in export_together(self._transactor, run_ids, tenant=self._tenant, dialect=DIALECT):
            yield written_line(line)

    # -- the disk ----------------------------------------------------------------------------------------------------
    def _write(self, files: dict[str, bytes], current: Current, metrics: StateMetrics) -> int:
        with explained(self._folder):
            changed = {name: body for name, body in files.items() if not _has(self._folder / name, body)}
            for name, body in changed.items():
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._folder / name, body)
            place = self._folder / CURRENT
            is_new = not place.exists() or _but_time(_readable(place)) != _but_time(current)
            if is_new:
                _back_up(place)
                write_whole(self._folder / METRICS, _pretty(metrics))
                write_whole(place, _pretty(current))
        return len(changed) + is_new


async def read_shown(transactor: Transactor, run_id: str, *, tenant: str) -> Shown:
    """One run in the seed's words, from one snapshot."""
    whole = await read_snapshot(transactor, run_id, tenant=tenant)
    run = whole.record.run
    body = await describe_whole_as(transactor, whole, DIALECT)
    plan = await plan_for(transactor, run)
    name = str(body["workstream"]["workstream_id"])
    return Shown(
        run_id=run_id,
        seq=run.seq,
        head=run.head.hex(),
        body=body,
        logs=logs_of(name, await view_of(transactor, whole, plan)),
        interventions=interventions_of(name, lines_of(whole, plan)[1:-1]),
    )


def _back_up(current: Path) -> None:
    """Keep the last copies of `current.json`, by the time at which each was written."""
    if not current.exists():
        return
    folder = current.parent / BACKUPS
    folder.mkdir(exist_ok=True)
    stamp = "".join(letter for letter in str(_readable(current).get("timestamp", "")) if letter.isalnum())
    write_whole(folder / f"current_{stamp or 'unreadable'}.json", current.read_bytes())
    for old in sorted(folder.glob("current_*.json"))[:-MOST_BACKUPS]:
        old.unlink(missing_ok=True)


def _pretty(body: Mapping[str, object]) -> bytes:
    return msgspec.json.format(_encode(body), indent=2) + b"\n"


def _has(path: Path, body: bytes) -> bool:
    try:
        return path.read_bytes() == body
    except FileNotFoundError:
        return False


def _readable(path: Path) -> Mapping[str, object]:
    try:
        found = _decode(path.read_bytes())
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _but_time(current: Mapping[str, object]) -> Mapping[str, object]:
    plain: Mapping[str, object] = _decode(_encode(current))
    return {name: value for name, value in plain.items() if name != "timestamp"}
