"""Validates a log of any kind: python -m stepkeep.conformance.validate FILE

It recognises canonical logs, logs in a dialect's words, and plain logs in seed 004's schema by their first line, and
reads them once. It must not need the engine or a database. `stepkeep log verify` and
`scripts/validate/validate_state_transitions.py` call it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepkeep.conformance.archive import Unpacked, open_log, unpacked
from stepkeep.conformance.certificate import differences_from
from stepkeep.conformance.machines import REFERENCE
from stepkeep.conformance.report import Report
from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.dialect import Judged
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


def shipped(dialect: str) -> Judged:
    """The machines of a dialect that is part of this package. They are found by name, because its front end needs the
    engine."""
    if dialect not in DIALECTS:
        raise InvalidInput(f"there is no dialect {dialect!r}. Choose from {', '.join(DIALECTS)}.")
    found = import_module(f"stepkeep.dialects.{dialect}.machine").JUDGED
    assert isinstance(found, Judged)
    return found


def validate(
    lines: Iterable[bytes], dialect: str | None = None, judged: Callable[[str], Judged] = shipped
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


if __name__ == "__main__":
    raise SystemExit(main())
