"""The verifier of canonical logs: lines in, a report out. It never raises because of what a line holds.

It streams: state is kept per open journal and dropped at the journal's closing line. A journal orders its lines,
rebuilds its entries and recomputes the chain; the history that it feeds knows what the hops mean. After a finding it
accepts the log's values and continues, so that one changed line causes one finding. `stepkeep log verify` and the tests
call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Protocol, TypeVar

from msgspec import Raw

from stepkeep.conformance.contract import Contract, read_contract
from stepkeep.conformance.digests import Digests
from stepkeep.conformance.encoding import GENESIS, LONGEST_LINE, CauseText, EntryText, HopText, has_entry_hash
from stepkeep.conformance.history import EntityHistory, RunHistory
from stepkeep.conformance.line import Line, OpeningLine, read_line
from stepkeep.conformance.machines import Machines, Say
from stepkeep.conformance.report import MOST_FINDINGS, Code, Findings, Report, quoted


class FollowedJournal(Protocol):
    """A journal that is followed line by line, canonical or in a dialect's words. `goes_on`: it needs no closing line
    yet."""

    last_line: int

    @property
    def goes_on(self) -> bool: ...

    def open(self, opening: OpeningLine, say: Say, *, first: bool) -> None: ...

    def damage(self) -> None: ...

    def take(self, line: Any, say: Say) -> bool: ...


J = TypeVar("J", bound=FollowedJournal)


def follow_log(
    lines: Iterable[bytes | str],
    read: Callable[[bytes | str], Any],
    begin: Callable[[JournalOwner, Any, Say], J | None],
    findings: Findings,
) -> tuple[dict[JournalOwner, J], int, int]:
    """Follow each journal of a log up to its closing line. Returns the open ones, and how many journals and lines there
    were. `begin` makes the state of a journal from its first line, if it can."""
    journals: dict[JournalOwner, J] = {}
    closed: set[JournalOwner] = set()
    number = 0
    for number, raw in enumerate(lines, 1):
        reading = read(raw)
        owner = reading.owner

        def say(code: Code, message: str, number: int = number, run: str | None = owner[1] if owner else None) -> None:
            findings.add(number, code, run or None, message)

        for problem in reading.problems:
            say(*problem)
        if owner is None:
            continue
        if owner in closed:
            say(Code.AFTER_HEAD, "the journal was closed before this line")
            continue
        first = owner not in journals
        journal = begin(owner, reading, say) if first else journals[owner]
        if journal is None:
            continue
        journals[owner], journal.last_line = journal, number
        if reading.opening is not None:
            journal.open(reading.opening, say, first=first)
        elif reading.line is None:
            journal.damage()
        elif journal.take(reading.line, say):
            del journals[owner]
            closed.add(owner)
    for (_, name), journal in journals.items():
        if not journal.goes_on:
            findings.add(journal.last_line, Code.INCOMPLETE, name, "the journal ends here without its closing line")
    if number == 0:
        findings.add(0, Code.EMPTY, None, "there is not a single line, so there is nothing to verify")
    return journals, len(journals) + len(closed), number


def verify_lines(
    lines: Iterable[bytes | str], machines: Machines, *, contract: Contract | None = None, most: int = MOST_FINDINGS
) -> Report:
    """Verify a log, line by line. `machines` has the arrows and terminal states of run, step and worker.

    Runs are re-enacted from the definition on their first line; where it is missing, from `contract` if that is given.
    """
    findings, undefined = Findings(most), 0
    plain = {name: (frozenset(arrows), frozenset(terminal)) for name, (arrows, terminal) in machines.items()}

    def begin(owner: JournalOwner, reading: Any, say: Say) -> JudgedJournal | None:
        nonlocal undefined
        if reading.opening is not None:
            return JudgedJournal(reading.opening, plain, pinned(reading.opening, say))
        if reading.line is None:
            return None
        undefined += owner[0] == "run" and contract is None
        return JudgedJournal(reading.line, plain, contract)

    _, runs, number = follow_log(lines, read_line, begin, findings)
    notes = (undefined_note(undefined),) if undefined else ()
    return findings.report(runs, number, notes)


def pinned(opening: OpeningLine, say: Say) -> Contract | None:
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


# -- journal -------------------------------------------------------------------------------------------------------
JournalOwner = tuple[str, str]
"""The kind of a journal, and the entity it belongs to."""
Position = tuple[int, int]
"""(sequence of the entry, hop number in it)."""

GAPS_REMEMBERED = 64


class GatheredEntry:
    """The lines of one entry, collected until its last line."""

    def __init__(self, first: Line) -> None:
        self.seq, self.at, self.places = first.seq, first.at, first.places
        self.content = EntryText(first.tenant, first.owner, first.seq, first.at)
        self.cause: tuple[int, str, str] | None = None
        self.whole = first.place == 0


class JudgedJournal:
    """The state of one journal so far."""

    def __init__(self, first: Line | OpeningLine, machines: Machines, contract: Contract | None = None) -> None:
        self.kind, self.owner = first.journal, first.owner
        self.opening = first if isinstance(first, OpeningLine) else None
        is_run = self.kind == "run"
        self.history = RunHistory(self.kind, machines, contract) if is_run else EntityHistory(self.kind, machines)
        self.last_line = 0
        self._digests = Digests(self.opening)
        self._common = (first.tenant, first.correlation_id)
        self._expected: Position = (1, 0)
        self._astray: Position | None = None
        self._gaps: deque[tuple[Position, Position]] = deque(maxlen=GAPS_REMEMBERED)
        self._damaged = False
        self._entry: GatheredEntry | None = None
        self._head: bytes | None = GENESIS
        self._seq = 0
        self._at = 0

    def take(self, line: Line, say: Say) -> bool:
        """Follow one more line. Returns True for the closing line."""
        if (line.tenant, line.correlation_id) != self._common:
            say(Code.CONTRADICTION, "tenant or correlation_id differs from that of the lines before")
        if line.about == "head":
            self._close(line, say)
            return True
        if self.opening is not None and line.seq == 1 and line.at != self.opening.at:
            say(Code.CONTRADICTION, "the first entry has another time than the line with the definition")
        if self._in_place(line, say):
            self._gather(line, say)
            self.history.follow(line, say)
            self._digests.check(line, say)
            if line.place == line.places - 1:
                self._seal(line, say)
        return False

    goes_on = False

    def open(self, opening: OpeningLine, say: Say, *, first: bool) -> None:
        if not first:
            say(Code.ORDER, "the definition must be the first line of its journal")

    def damage(self) -> None:
        """A line of this journal could not be read: accept the next line without checking its number."""
        self._damaged = True
        self._lose()

    # -- places ------------------------------------------------------------------------------------------------------
    def _in_place(self, line: Line, say: Say) -> bool:
        position = (line.seq, line.place)
        if position < self._expected and position != self._astray:
            self._astray = _after(line)
            late = any(start <= position < end for start, end in self._gaps)
            where = f"hop {line.place} of entry {line.seq}"
            say(*((Code.ORDER, f"{where} comes too late") if late else (Code.REPEAT, f"{where} was there before")))
            return False
        if position != self._expected:
            if position > self._expected and not self._damaged:
                seq, place = self._expected
                say(Code.GAP, f"hop {place} of entry {seq} should stand here, not hop {line.place} of {line.seq}")
                self._gaps.append((self._expected, position))
            self._lose()
        self._expected, self._astray, self._damaged = _after(line), None, False
        return True

    def _lose(self) -> None:
        self._entry, self._head = None, None
        self.history.lose()

    # -- entries -----------------------------------------------------------------------------------------------------
    def _gather(self, line: Line, say: Say) -> None:
        entry = self._entry
        if entry is None:
            entry = self._entry = GatheredEntry(line)
            if line.at < self._at:
                say(Code.TIME, f"time runs backwards: {self._at - line.at} µs before the entry that precedes it")
        if (line.at, line.places) != (entry.at, entry.places):
            say(Code.ENTRY, f"at or hops differ from those of the other lines of entry {line.seq}")
            entry.whole = False
        if (line.seal is None) == (line.place == line.places - 1):
            say(Code.ENTRY, "the last line of an entry carries its hash, and no other does")
        if entry.whole:
            self._gather_cause(entry, line, say)
            self._gather_hop(entry, line, say)

    def _gather_cause(self, entry: GatheredEntry, line: Line, say: Say) -> None:
        cause = (line.by, line.event, line.actor)
        if cause == entry.cause and line.detail is None and line.about != "note":
            return
        causes = entry.content.causes
        if line.by != len(causes):
            say(Code.ENTRY, f"the causes of entry {line.seq} do not follow each other")
            entry.whole = False
        entry.cause = cause
        causes.append(CauseText(line.event, line.actor, None if line.detail is None else Raw(line.detail)))

    def _gather_hop(self, entry: GatheredEntry, line: Line, say: Say) -> None:
        if line.about == "note":
            return
        of = None if line.of is None else self.history.number_of(line.of)
        if line.of is not None and of is None:
            say(Code.CONTRADICTION, f"metadata.of names a step that the run does not have: {quoted(line.of)}")
            entry.whole = False
        entry.content.hops.append(
            HopText(
                line.no,
                line.trigger,
                line.source,
                line.target,
                line.by,
                of,
                line.fence,
                line.attempt,
                line.took,
                line.due_at,
                line.category,
                line.error,
                line.digest,
            )
        )

    def _seal(self, line: Line, say: Say) -> None:
        entry, self._entry = self._entry, None
        assert entry is not None
        is_chained = entry.whole and self._head is not None and line.seal is not None
        if is_chained and not has_entry_hash(self._head or GENESIS, entry.content, line.seal or b""):
            said = f"entry {entry.seq} does not have the hash it says: it, or the one before it, was changed"
            say(Code.HASH, said)
        self._head, self._seq, self._at = line.seal, entry.seq, entry.at
        self.history.entry_ended(say)

    # -- the end -----------------------------------------------------------------------------------------------------
    def _close(self, line: Line, say: Say) -> None:
        if self._entry is not None:
            say(Code.GAP, f"the rest of entry {self._entry.seq} is missing before the closing line")
        if line.seq != self._seq:
            say(
                Code.HEAD,
                f"the journal has {line.seq} entries by its closing line, and {self._seq} by the lines before",
            )
        elif self._head is not None and line.seal != self._head:
            say(Code.HEAD, "the closing line has another hash than the last entry")
        elif line.at != self._at:
            say(Code.HEAD, "the closing line has another time than the last entry")
        if not self.history.is_in(line.target):
            say(Code.HEAD, f"the closing line says {quoted(line.target)}, which is not the state reached before it")


def _after(line: Line) -> Position:
    return (line.seq, line.place + 1) if line.place + 1 < line.places else (line.seq + 1, 0)
