"""The verifier of exported logs: lines in, a report out. It never raises because of what a line holds.

It streams: state is kept per open journal and dropped at the journal's closing line. The tables are an argument.
`stepkeep log verify` and the tests call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from stepkeep.conformance.contract import Contract, read_contract
from stepkeep.conformance.encoding import LONGEST_LINE
from stepkeep.conformance.journal import Journal
from stepkeep.conformance.line import read_line
from stepkeep.conformance.machines import Machines, Say
from stepkeep.conformance.opening import Opening
from stepkeep.conformance.report import MOST_FINDINGS, Code, Findings, Report


def verify_lines(
    lines: Iterable[bytes | str], machines: Machines, *, contract: Contract | None = None, most: int = MOST_FINDINGS
) -> Report:
    """Verify a log, line by line. `machines` has the arrows and terminal states of run, step and worker.

    Runs are re-enacted from the definition on their first line; where it is missing, from `contract` if that is given.
    """
    findings = Findings(most)
    plain = {name: (frozenset(arrows), frozenset(terminal)) for name, (arrows, terminal) in machines.items()}
    journals: dict[tuple[str, str], Journal] = {}
    closed: set[tuple[str, str]] = set()
    number = undefined = 0
    for number, raw in enumerate(lines, 1):
        reading = read_line(raw)
        run = reading.owner[1] if reading.owner else None

        def say(code: Code, message: str, number: int = number, run: str | None = run) -> None:
            findings.add(number, code, run, message)

        for code, message in reading.problems:
            say(code, message)
        line, key = reading.line, reading.owner
        if reading.opening is not None and key is not None:
            if key in journals or key in closed:
                say(Code.ORDER, "the definition must be the first line of its journal")
            else:
                journals[key] = Journal(reading.opening, plain, pinned(reading.opening, say))
                journals[key].last_line = number
            continue
        if line is None or key is None:
            if key in journals:
                journals[key].damage()
            continue
        if key in closed:
            say(Code.AFTER_HEAD, "the journal was closed before this line")
            continue
        if key not in journals:
            journals[key] = Journal(line, plain, contract)
            undefined += key[0] == "run" and contract is None
        journals[key].last_line = number
        if journals[key].take(line, say):
            del journals[key]
            closed.add(key)
    for (_, owner), journal in journals.items():
        findings.add(journal.last_line, Code.INCOMPLETE, owner, "the journal ends here without its closing line")
    if number == 0:
        findings.add(0, Code.EMPTY, None, "there is not a single line, so there is nothing to verify")
    kept = tuple(sorted(findings.kept, key=lambda finding: finding.line))
    notes = (undefined_note(undefined),) if undefined else ()
    return Report(kept, len(journals) + len(closed), number, findings.omitted, notes)


def pinned(opening: Opening, say: Say) -> Contract | None:
    """The definition on the first line of a run's log, if it can be read."""
    found = read_contract(opening.document)
    if isinstance(found, Contract):
        return found
    say(Code.DEFINITION, found)
    return None


def undefined_note(journals: int) -> str:
    """The note about runs whose definition is not in the log."""
    return f"{journals} runs have no definition in this log (format 1): rules that need the definition were not applied"


def read_lines(log: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, without newlines. An overlong line is cut just after the limit."""
    while line := log.readline(LONGEST_LINE + 2):
        if not line.endswith(b"\n"):
            while (rest := log.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
        yield line.removesuffix(b"\n")


def verify_log(log: BinaryIO, machines: Machines, *, most: int = MOST_FINDINGS) -> Report:
    """Verify the log in an open file."""
    return verify_lines(read_lines(log), machines, most=most)
