"""Verifies archives: the files must match their manifest, and the log inside must pass `verify`.

It reads files only. Damage becomes a finding, never an exception. `stepkeep log verify` and `stepkeep prune` call it.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from stepkeep.conformance.machines import Machines
from stepkeep.conformance.report import Code, Finding, Report
from stepkeep.conformance.verify import read_lines, verify_lines
from stepkeep.edges.input_files import open_input, read_input, rejoined

FORMAT = "stepkeep-archive/1"
MANIFEST = ".manifest.json"
LONGEST_MANIFEST = 16 * 1024 * 1024
GZIP = b"\x1f\x8b"
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A file as its manifest describes it."""

    name: str
    lines: int
    bytes: int
    sha256: str


class Files(msgspec.Struct, frozen=True, kw_only=True):
    log: Listed
    rest: Listed


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a manifest that are verified. The others are informative."""

    format: str
    runs: int
    files: Files


@contextmanager
def open_log(path: Path) -> Iterator[BinaryIO]:
    """A log to read, compressed or not."""
    with open_input(path) as file:
        yield unpacked(file)


def unpacked(file: BinaryIO) -> BinaryIO:
    """The content of a file or pipe, decompressed if needed."""
    first = file.read(len(GZIP))
    whole = rejoined(first, file)
    return cast(BinaryIO, gzip.GzipFile(fileobj=whole)) if first == GZIP else whole


class Unpacked:
    """The lines of a log that may be damaged. They end at the first unreadable byte; `damage` then holds the reason."""

    def __init__(self, log: BinaryIO) -> None:
        self._log = log
        self.lines = 0
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in read_lines(self._log):
                self.lines += 1
                yield line
        except DAMAGE as damage:
            self.damage = f"the file cannot be unpacked after line {self.lines}: {damage}"

    def judged(self, report: Report) -> Report:
        """A report on these lines that includes the damage that cut them short."""
        if self.damage is None:
            return report
        return _with(report, [self.damage], line=self.lines)


def verify_archive(manifest: Path, machines: Machines) -> Report:
    """Verify an archive: first its files against the manifest, then the log inside."""
    try:
        said = msgspec.json.decode(read_input(manifest, LONGEST_MANIFEST), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return _with(Report((), 0, 0, 0), [f"the manifest cannot be read: {problem}"])
    if said.format != FORMAT:
        return _with(Report((), 0, 0, 0), [f"the manifest is of the format {said.format!r}, not {FORMAT}"])
    problems = [*_compare(manifest.parent, said.files.log), *_compare(manifest.parent, said.files.rest)]
    report = Report((), 0, 0, 0)
    log = manifest.parent / Path(said.files.log.name).name
    if log.is_file():
        with open_log(log) as file:
            lines = Unpacked(file)
            report = lines.judged(verify_lines(lines, machines))
        if (report.runs, report.lines) != (said.runs, said.files.log.lines):
            problems.append(
                f"the log has {report.runs} runs in {report.lines} lines; "
                f"the manifest says {said.runs} in {said.files.log.lines}"
            )
    return _with(report, problems)


def _compare(folder: Path, said: Listed) -> Iterator[str]:
    path = folder / Path(said.name).name
    if not path.is_file():
        yield f"{said.name} is missing"
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if (path.stat().st_size, digest) != (said.bytes, said.sha256):
        yield f"{said.name} is not the file that the manifest was written for"
        return
    with open_log(path) as packed:
        lines = sum(1 for _ in Unpacked(packed))
    if lines != said.lines:
        yield f"{said.name} has {lines} lines; the manifest says {said.lines}"


def _with(report: Report, problems: list[str], line: int = 0) -> Report:
    found = tuple(Finding(line, Code.ARCHIVE, None, problem) for problem in problems)
    return msgspec.structs.replace(report, findings=(*found, *report.findings))
