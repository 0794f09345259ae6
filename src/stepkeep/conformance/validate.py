"""Validates a log of any kind, and archives of logs: python -m stepkeep.conformance.validate FILE

It recognises canonical logs, logs in a dialect's words, and plain logs in seed 004's schema by their first line, and
reads them once. It must not need the engine or a database. `stepkeep log verify` and
`scripts/validate/validate_state_transitions.py` call it. The files of an archive must match their manifest; damage
becomes a finding. `stepkeep prune` asks that, too.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from stepkeep.conformance.certificate import differences_from
from stepkeep.conformance.machines import REFERENCE, Machines
from stepkeep.conformance.report import Code, Finding, Report
from stepkeep.conformance.verify import read_lines, verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.edges.input_files import open_input, read_input, rejoined
from stepkeep.kernel.errors import InvalidInput, StepkeepError

PLAIN = "workstream"
"""The dialect of plain logs: only seed 004 has a schema of its own for them."""

DIALECTS = ("ioa", "run", "linear", "action", "workstream")
LINES_READ_AHEAD = 100


class LogKind(NamedTuple):
    """What a log was recognised as: canonical, sealed (in a dialect's words) or plain."""

    form: str
    dialect: str

    def __str__(self) -> str:
        return f"{self.form} {self.dialect} log".replace("  ", " ")


def shipped(dialect: str) -> JudgedDialect:
    """The machines of a dialect that is part of this package. They are found by name, because its front end needs the
    engine."""
    if dialect not in DIALECTS:
        raise InvalidInput(f"there is no dialect {dialect!r}. Choose from {', '.join(DIALECTS)}.")
    found = import_module(f"stepkeep.dialects.{dialect}.machine").JUDGED
    assert isinstance(found, JudgedDialect)
    return found


def validate(
    lines: Iterable[bytes], dialect: str | None = None, judged: Callable[[str], JudgedDialect] = shipped
) -> tuple[LogKind, Report]:
    """The verdict on a log and how it was read. `dialect` is whose words it must be in; by its content if not given.

    `judged` finds the machines of a dialect by its name.
    """
    rest = iter(lines)
    first: list[bytes] = []
    kind = None
    for raw in rest:
        first.append(raw)
        kind = _recognised(raw)
        if kind is not None or len(first) >= LINES_READ_AHEAD:
            break
    kind = kind or LogKind("canonical" if dialect is None else "sealed", "")
    whole: Iterator[bytes] = chain(first, rest)
    if dialect is not None:
        kind = LogKind("plain" if kind.form == "plain" and dialect == PLAIN else "sealed", dialect)
    if kind.form == "canonical":
        return kind, verify_lines(whole, REFERENCE)
    return kind, replay_lines(whole, judged(kind.dialect), sealed=kind.form == "sealed")


def beside(report: Report, kind: LogKind, file: Path, journal: Path) -> Report:
    """The verdict on the log of one run in a dialect's words beside its canonical log, which is verified first."""
    with open_log(journal) as log:
        canonical = [bytes(raw) for raw in Unpacked(log)]
    with open_log(file) as log:
        told = [bytes(raw) for raw in Unpacked(log)]
    found = verify_lines(canonical, REFERENCE)
    if not found.ok:
        raise InvalidInput(f"{journal} has findings, so nothing is compared with it: {found.findings[0]}")
    return msgspec.structs.replace(report, findings=differences_from(shipped(kind.dialect), told, canonical))


def _recognised(raw: bytes) -> LogKind | None:
    try:
        metadata = json.loads(raw)["metadata"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    if not isinstance(metadata, dict):
        return None
    if isinstance(metadata.get("dialect"), str) and "written_in" in metadata:
        return LogKind("sealed", metadata["dialect"])
    if "seq" in metadata or "definition" in metadata:
        return LogKind("canonical", "")
    return LogKind("plain", PLAIN)


def main(arguments: list[str] | None = None) -> int:
    """The command line. The exit status is 1 on findings, 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(description="Validate a log of state transitions.")
    parser.add_argument("file", help="the log, one JSON object per line, packed or not; - reads standard input")
    parser.add_argument("--as", dest="dialect", help="the dialect of the log; by its content if not given")
    parser.add_argument("--journal", help="the canonical log of the same run: FILE must be what it looks like")
    given = parser.parse_args(arguments)
    try:
        if given.file == "-":
            lines = Unpacked(unpacked(sys.stdin.buffer))
            kind, report = validate(lines, given.dialect)
        else:
            with open_log(Path(given.file)) as log:
                lines = Unpacked(log)
                kind, report = validate(lines, given.dialect)
        if given.journal is not None and kind.form == "sealed" and report.ok:
            report = beside(report, kind, Path(given.file), Path(given.journal))
    except (OSError, StepkeepError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    report = lines.judged(report)
    for finding in report.findings:
        sys.stdout.write(f"{given.file}:{finding.line}: {finding.code}: {finding.message}\n")
    if report.omitted:
        sys.stdout.write(f"{given.file}: {report.omitted:,} more findings\n")
    for note in report.notes:
        sys.stderr.write(f"{given.file}: note: {note}\n")
    count = len(report.findings) + report.omitted
    verdict = "no findings" if report.ok else f"{count:,} finding{'s' if count != 1 else ''}"
    sys.stdout.write(f"{given.file}: {kind}, {report.lines:,} lines, {verdict}\n")
    return 0 if report.ok else 1


# -- archive -------------------------------------------------------------------------------------------------------
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


if __name__ == "__main__":
    raise SystemExit(main())
