"""Writes the state files of seed 004 into a folder and keeps them current: `stepkeep state export`.

The database stays the state; the files are a copy of it. A file is written under a temporary name, synced and renamed.
`current.json` is the last of them, and only then lines are appended to `transitions.jsonl`, as in the seed.
The command line and a worker with `--state-dir` call it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from stepkeep.errors import InvalidInput, NotFound, StoreError, Unreadable
from stepkeep.operations import validate
from stepkeep.operations.archive import sync_folder, write_whole
from stepkeep.operations.lines import encode_line
from stepkeep.operations.log import lines_of
from stepkeep.operations.log_together import export_together
from stepkeep.operations.plans import plan_for
from stepkeep.operations.projected import describe_whole_as
from stepkeep.operations.state_files import CHECKPOINTS, CURRENT, TRANSITIONS, Shown, current_of, documents_of
from stepkeep.operations.state_records import (
    BACKUPS,
    INTERVENTIONS,
    METRICS,
    interventions_file,
    interventions_of,
    logs_of,
    metrics_of,
)
from stepkeep.operations.transact import Transactor
from stepkeep.operations.views import read_snapshot, view_of
from stepkeep.safe_text import inert_json
from stepkeep.store.records import RunFilter, RunRecord

log = logging.getLogger("stepkeep.state")

DIALECT = "workstream"
MOST_WORKSTREAMS = 1_000
INTERVAL = 1.0
"""Seconds between two looks, as the seed's `state_update_interval`."""

NAMES_SECONDS = 10.0
"""How long a list of published workstreams is used."""

MOST_BACKUPS = 100
"""How many copies of `current.json` are kept."""

HEAD = "journal_head"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Journals = dict[str, dict[str, Any]]
"""The last line of each journal in a file, by the id of its run or worker."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass wrote. `files` and `lines` are 0 if nothing has changed."""

    folder: str
    workstreams: tuple[str, ...] = ()
    files: int = 0
    lines: int = 0


class StateFolder:
    """A folder of state files, of the newest run of each workstream or of given runs."""

    def __init__(self, transactor: Transactor, folder: Path, *, tenant: str, run_ids: Sequence[str] = ()) -> None:
        self._transactor, self._folder, self._tenant = transactor, folder, tenant
        self._run_ids = tuple(validate.run_id(one) for one in run_ids)
        self._shown: dict[str, Shown] = {}
        self._names: list[str] = []
        self._names_read_at = float("-inf")

    async def write(self) -> Exported:
        """Bring the files up to date."""
        shown = await self._look()
        now = await self._transactor.store.now()
        files: dict[str, bytes] = {}
        for one in shown:
            files |= {name: _pretty(body) for name, body in documents_of(one).items()} | one.logs
        if interventions := [each for one in shown for each in one.interventions]:
            files[INTERVENTIONS] = interventions_file(interventions)
        workers = [line async for line in self._new_lines([one.run_id for one in shown])]
        metrics = metrics_of([one.body for one in shown], now)
        written = await asyncio.to_thread(self._write, files, current_of(shown, now), metrics, workers)
        return Exported(
            folder=str(self._folder),
            workstreams=tuple(one.workstream for one in shown),
            files=written,
            lines=len(workers),
        )

    async def follow(self, interval: float = INTERVAL) -> AsyncIterator[Exported]:
        """Keep the files current, and tell each pass that changed something. An outage is waited out."""
        while True:
            try:
                done = await self.write()
                if done.files or done.lines:
                    yield done
            except (StoreError, Unreadable, InvalidInput) as problem:
                log.warning("the state files in %s stay as they were: %s", self._folder, problem)
            await asyncio.sleep(interval)

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
        names = await self._workstreams()
        if len(names) > MOST_WORKSTREAMS:
            raise InvalidInput(f"{len(names)} workstreams are published, more than {MOST_WORKSTREAMS}; name runs.")
        newest = []
        for name in names:
            newest += await store.list_runs(RunFilter(tenant=self._tenant, workflow=name, limit=1), [])
        return newest

    async def _workstreams(self) -> list[str]:
        """The names of published workstreams, read again after a while."""
        if time.monotonic() - self._names_read_at >= NAMES_SECONDS:
            published = await self._transactor.store.list_definitions(self._tenant)
            self._names = sorted({one.name for one in published if _is_workstream(one.document)})
            self._names_read_at = time.monotonic()
        return self._names

    async def _read(self, run_id: str) -> Shown:
        return await read_shown(self._transactor, run_id, tenant=self._tenant)

    async def _new_lines(self, run_ids: list[str]) -> AsyncIterator[dict[str, Any]]:
        """The lines that the file lacks. A closing line is written when its run or worker has ended."""
        if not run_ids:
            return
        known = await asyncio.to_thread(read_journals, self._folder / TRANSITIONS)
        together = export_together(self._transactor, run_ids, tenant=self._tenant, dialect=DIALECT)
        async for line in together:
            last = known.get(journal_of(line))
            if last is not None and line["metadata"]["line"] <= last["metadata"]["line"]:
                continue
            if line["event_type"] == HEAD and line["metadata"]["canonical"] not in TERMINAL:
                continue
            yield line

    # -- the disk ----------------------------------------------------------------------------------------------------
    def _write(
        self, files: dict[str, bytes], current: dict[str, Any], metrics: dict[str, Any], lines: list[dict[str, Any]]
    ) -> int:
        with _explained(self._folder):
            (self._folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
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
            if lines:
                _append(self._folder / TRANSITIONS, lines)
        return len(changed) + is_new


TERMINAL = frozenset({"succeeded", "failed", "cancelled", "rolled_back", "shutdown"})


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


def journal_of(line: dict[str, Any]) -> str:
    """The run or the worker whose journal a line is from."""
    said = line["metadata"]
    return str(said.get("run_id") or said.get("worker_id"))


def read_journals(path: Path) -> Journals:
    """The last line of each journal in a file. The end of a line that was never completed is cut off."""
    with _explained(path.parent):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return {}
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with path.open("r+b") as file:
                file.truncate(len(whole))
    found: Journals = {}
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = _decode(text)
            found[journal_of(line)] = line
        except (msgspec.DecodeError, KeyError, TypeError):
            said = f"line {number} of {path} is no transition. Move the file away, and the next export writes it again."
            raise InvalidInput(said) from None
    return found


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


def _append(path: Path, lines: list[dict[str, Any]]) -> None:
    is_new = not path.exists()
    with path.open("ab") as file:
        for line in lines:
            file.write(inert_json(encode_line(line).decode()).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def _is_workstream(document: bytes) -> bool:
    return bool(_decode(document).get("dialect") == DIALECT)


def _pretty(body: dict[str, Any]) -> bytes:
    return msgspec.json.format(_encode(body), indent=2) + b"\n"


def _has(path: Path, body: bytes) -> bool:
    try:
        return path.read_bytes() == body
    except FileNotFoundError:
        return False


def _readable(path: Path) -> dict[str, Any]:
    try:
        found = _decode(path.read_bytes())
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _but_time(current: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = _decode(_encode(current))
    return {name: value for name, value in plain.items() if name != "timestamp"}


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Explain an error of the disk."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"the state files in {folder} cannot be used: {error.strerror}.") from error
