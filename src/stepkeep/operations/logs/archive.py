"""Archives of finished runs: their content, how they are written, and when they count as written.

An archive has three files: the log of the runs (which the judge reads), everything else about them, and a manifest. The
manifest is written last and holds the digests of both. Names derive from the contents, so archiving the same runs again
gives the same files, and nothing is overwritten. It deletes nothing and knows no store; `retention` calls it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypedDict

import msgspec

from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.kernel.machine.journal import GENESIS, chain
from stepkeep.kernel.plan import Plan
from stepkeep.operations.logs.lines import encode_line, timestamp
from stepkeep.operations.logs.log import lines_of
from stepkeep.store.records import WholeRun

FORMAT = "stepkeep-archive/1"
MOST_RUNS = 5_000
"""The largest number of runs in an archive; it also ends with the day (UTC) on which its runs were started."""

DAY = 86_400 * 1_000_000
LEVEL = 6
UNFINISHED = ".unfinished-"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class ArchiveFile(TypedDict):
    name: str
    lines: int
    bytes: int
    sha256: str


class EndedBetween(TypedDict):
    first: str
    last: str


class ArchiveManifest(TypedDict):
    """What an archive has: its runs, the times at which the first and the last ended, and its files."""

    format: str
    tenant: str
    archived_at: str
    runs: int
    entries: int
    first: str
    last: str
    ended: EndedBetween
    files: Mapping[str, ArchiveFile]


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that is complete on disk."""

    manifest: Path
    run_ids: tuple[str, ...]


# -- what goes in ----------------------------------------------------------------------------------------------------
def flaw_of(whole: WholeRun) -> str | None:
    """Why a run's journal is not valid evidence: its chain does not lead from the first entry to the head on the
    run's row."""
    run, head = whole.record.run, GENESIS
    for place, entry in enumerate(whole.entries, 1):
        if entry.seq != place:
            return f"entry {place} of its journal is missing"
        head = chain(head, entry.body)
        if head != entry.hash:
            return f"entry {place} of its journal, or the one before it, was changed"
    if (len(whole.entries), head) != (run.seq, run.head):
        return f"its journal ends at entry {len(whole.entries)}; its row says {run.seq}"
    return None


def log_of(whole: WholeRun, plan: Plan) -> list[bytes]:
    """The run's log as `log export` writes it: its definition, its whole journal and the closing line."""
    return [encode_line(line) for line in lines_of(whole, plan)]


def rest_of(whole: WholeRun, plan: Plan) -> bytes:
    """Everything that the log lacks, as one line: input, steps, attempts, messages, outbox, gates, decisions,
    streams."""
    run, details = whole.record.run, whole.record.details
    return _encode(
        {
            "run": {**_plain(details), **_plain(run), "head": run.head.hex(), "business_key": details.business_key},
            "steps": [{"name": plan.of(step).name, **_plain(step)} for step in whole.steps],
            "attempts": [_plain(attempt) for attempt in whole.attempts],
            "messages": [_plain(message) for message in whole.messages],
            "outbox": [_plain(entry) for entry in whole.outbox],
            "gates": [_plain(gate) for gate in whole.gates],
            "decisions": [_plain(vote) for vote in whole.votes],
            **({"streams": [_plain(row) for row in whole.streams]} if whole.streams else {}),
        }
    )


def _plain(row: msgspec.Struct) -> Mapping[str, object]:
    """A row's fields by name; payloads are JSON already and stay unchanged."""
    fields = msgspec.structs.asdict(row)
    owner = {"tenant", "run_id"} if "run_id" in fields else set()
    return {
        name: _payload(value) if isinstance(value, bytes) and name != "head" else value
        for name, value in fields.items()
        if name not in owner and value is not None
    }


def _payload(payload: bytes) -> msgspec.Raw:
    return msgspec.Raw(_encode(_decode(payload)) if b"\n" in payload else payload)


# -- how it is written -----------------------------------------------------------------------------------------------
class Archive:
    """An archive being written. Call `add` with runs in order of their ids, then `seal` or `discard`."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self._folder, self._tenant = folder, tenant
        with explained(folder):
            self._log, self._rest = _Part(folder), _Part(folder)
        self._runs: list[WholeRun] = []
        self._entries = 0

    def takes(self, whole: WholeRun) -> bool:
        """Whether this run belongs to this archive or to the next."""
        return not self._runs or (len(self._runs) < MOST_RUNS and _day(self._runs[0]) == _day(whole))

    def add(self, whole: WholeRun, plan: Plan) -> None:
        log, rest = log_of(whole, plan), rest_of(whole, plan)
        with explained(self._folder):
            self._log.write(log)
            self._rest.write([rest])
        # Keep only what the manifest needs: archives may be larger than memory.
        bare = dict.fromkeys(("steps", "attempts", "entries", "messages", "outbox", "gates", "votes", "streams"), ())
        self._runs.append(msgspec.structs.replace(whole, **bare))
        self._entries += len(whole.entries)

    def seal(self, archived_at: int) -> Sealed | None:
        """Sync everything to disk, the manifest last, so that the files it names are complete."""
        if not self._runs:
            return None
        with explained(self._folder):
            return self._seal(archived_at)

    def _seal(self, archived_at: int) -> Sealed:
        digest = self._log.close()
        self._rest.close()
        name = f"runs-{timestamp(_day(self._runs[0]) * DAY)[:10].replace('-', '')}-{digest[:16]}"
        files = {
            "log": self._log.settle(f"{name}.log.jsonl.gz"),
            "rest": self._rest.settle(f"{name}.rest.jsonl.gz"),
        }
        sync_folder(self._folder)
        manifest = self._folder / f"{name}.manifest.json"
        write_whole(manifest, msgspec.json.format(_encode(self._manifest(archived_at, files)), indent=2) + b"\n")
        return Sealed(manifest=manifest, run_ids=tuple(whole.record.run.id for whole in self._runs))

    def discard(self) -> None:
        """Remove unfinished files; sealed archives stay."""
        self._log.discard()
        self._rest.discard()

    def _manifest(self, archived_at: int, files: Mapping[str, ArchiveFile]) -> ArchiveManifest:
        ends = sorted(whole.record.run.ended_at or 0 for whole in self._runs)
        return {
            "format": FORMAT,
            "tenant": self._tenant,
            "archived_at": timestamp(archived_at),
            "runs": len(self._runs),
            "entries": self._entries,
            "first": self._runs[0].record.run.id,
            "last": self._runs[-1].record.run.id,
            "ended": {"first": timestamp(ends[0]), "last": timestamp(ends[-1])},
            "files": files,
        }


class _Part:
    """A compressed file under a temporary name until it is complete and on disk."""

    def __init__(self, folder: Path) -> None:
        self._path, self._file = _temporary(folder)
        # No name and no time inside: the same lines give the same bytes.
        self._packed = gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=self._file, mtime=0)
        self._lines = 0

    def write(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._packed.write(line + b"\n")
            self._lines += 1

    def close(self) -> str:
        self._packed.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        with self._path.open("rb") as file:
            self._digest = hashlib.file_digest(file, "sha256").hexdigest()
        return self._digest

    def settle(self, name: str) -> ArchiveFile:
        size = self._path.stat().st_size
        self._path.replace(self._path.with_name(name))
        return {"name": name, "lines": self._lines, "bytes": size, "sha256": self._digest}

    def discard(self) -> None:
        with suppress(OSError):  # the file is discarded in any case
            self._file.close()
        self._path.unlink(missing_ok=True)


def _day(whole: WholeRun) -> int:
    return whole.record.details.created_at // DAY


def _temporary(folder: Path) -> tuple[Path, IO[bytes]]:
    descriptor, name = tempfile.mkstemp(prefix=UNFINISHED, dir=folder)
    os.fchmod(descriptor, 0o640)
    return Path(name), os.fdopen(descriptor, "wb")


def write_whole(path: Path, content: bytes) -> None:
    temporary, file = _temporary(path.parent)
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the folder: only then is a new name durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_folder(folder: Path) -> Path:
    """The archive folder; created if it is missing."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        path, file = _temporary(folder)
        file.close()
        path.unlink()
    return folder


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Explain an error of the disk."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"archives cannot be written to {folder}: {error.strerror}. Nothing was deleted that is not archived."
        ) from error
