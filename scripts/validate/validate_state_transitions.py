"""Validate a log of state transitions, as seed 004 names it: python scripts/validate/validate_state_transitions.py FILE

It takes what Stepkeep exports, in canonical names or in any dialect's words, and plain logs of other programs that
have seed 004's schema and no more. Findings go to standard output with their line numbers; the exit status is 1 if
there are any and 2 if the file cannot be read. It needs the package to be installed, nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from stepkeep.conformance.replay import replay_lines
from stepkeep.conformance.report import Report
from stepkeep.conformance.verify import read_lines, verify_lines
from stepkeep.dialects import registry
from stepkeep.errors import StepkeepError
from stepkeep.operations.log import canonical_machines

DEFAULT = "workstream"


def validate(lines: Iterable[bytes], dialect: str | None) -> tuple[str, Report]:
    """The verdict on a log, and how it was read. Without a dialect, the first line that is JSON decides."""
    log = list(lines)
    kind, name = _recognised(log)
    if dialect is not None:
        kind, name = ("plain" if kind == "canonical" else kind), dialect
    if kind == "canonical":
        return "canonical log", verify_lines(log, canonical_machines())
    return f"{kind} {name} log", replay_lines(log, registry.judged(name), sealed=kind == "sealed")


def _recognised(log: list[bytes]) -> tuple[str, str]:
    for raw in log:
        try:
            metadata = json.loads(raw)["metadata"]
        except (ValueError, RecursionError, LookupError, TypeError):
            continue
        if isinstance(metadata, dict) and isinstance(metadata.get("dialect"), str):
            return "sealed", metadata["dialect"]
        if isinstance(metadata, dict) and ("seq" in metadata or "format" in metadata):
            return "canonical", ""
        break
    return "plain", DEFAULT


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Validate a log of state transitions.")
    parser.add_argument("file", help="the log, one JSON object per line; - reads standard input")
    parser.add_argument("--as", dest="dialect", help=f"the dialect of the log; by its content, else {DEFAULT}")
    given = parser.parse_args(arguments)
    try:
        if given.file == "-":
            read, report = validate(read_lines(sys.stdin.buffer), given.dialect)
        else:
            with Path(given.file).open("rb") as log:
                read, report = validate(read_lines(log), given.dialect)
    except (OSError, StepkeepError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for finding in report.findings:
        sys.stdout.write(f"{given.file}:{finding.line}: {finding.code}: {finding.message}\n")
    if report.omitted:
        sys.stdout.write(f"{given.file}: {report.omitted:,} more findings\n")
    count = len(report.findings) + report.omitted
    verdict = "no findings" if report.ok else f"{count:,} finding{'s' if count != 1 else ''}"
    sys.stdout.write(f"{given.file}: {read}, {report.lines:,} lines, {verdict}\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
