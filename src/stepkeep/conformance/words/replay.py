"""Replays a log in a dialect: each line well formed, each arrow legal, no line missing or changed.

It knows the dialect's machines and invariants, and nothing of the engine. After a finding it accepts the log's values
and continues, so that one change causes one finding. `stepkeep log verify --as`, the certificate and the tests call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from stepkeep.conformance.contract import Contract
from stepkeep.conformance.digests import Digests
from stepkeep.conformance.line import OpeningLine
from stepkeep.conformance.machines import UNKNOWN, Say
from stepkeep.conformance.report import MOST_FINDINGS, Code, Findings, Report, quoted
from stepkeep.conformance.verify import JournalOwner, follow_log, pinned, undefined_note
from stepkeep.conformance.words.dialect_line import DialectLine, DialectReading, has_hash, read_dialect_line
from stepkeep.conformance.words.plain import PlainStory
from stepkeep.conformance.words.shown import ShownRun, Ways, as_canonical
from stepkeep.dialects.dialect import Invariant, JudgedDialect, Line
from stepkeep.dialects.machine import ANY, Arrow, Extension, MachineView

MOST_ARROWS = 4096
"""How many arrows are remembered; a word may be an open prefix, so a log could name any number."""


def replay_lines(
    lines: Iterable[bytes | str],
    judged: JudgedDialect,
    *,
    sealed: bool = True,
    contract: Contract | None = None,
    alone: bool = True,
    most: int = MOST_FINDINGS,
) -> Report:
    """Verify a log in this dialect. Its invariants apply to runs that were written in the dialect.

    `sealed` logs are Stepkeep's exports: a run that stands `alone` is judged by the definition on its first line;
    where it is missing, by `contract` if that is given. A certificate compares it with its canonical log instead.
    Other logs have only the fields of seed 004: no chain, no closing line.
    """
    findings, undefined = Findings(most), 0
    kinds = {"run": judged.run, "step": judged.step, "worker": judged.worker, "undo": judged.undo}
    nouns = {view.noun: kind for kind, view in kinds.items() if view is not None}
    ways = {kind: Ways(view) for kind, view in (("step", judged.step), ("undo", judged.undo)) if view is not None}
    arrows = {kind: Arrows(view) for kind, view in kinds.items() if view is not None}
    spanning = Spanning(judged)

    def read(raw: bytes | str) -> DialectReading:
        reading = read_dialect_line(raw, judged.name, nouns, sealed=sealed)
        return reading if sealed else replace(reading, owner=("run", ""))

    def begin(owner: JournalOwner, reading: Any, say: Say) -> Ledger:
        nonlocal undefined
        ledger = Ledger(judged, arrows, spanning, sealed=sealed)
        known = contract if reading.opening is None else pinned(reading.opening, say)
        if owner[0] == "run" and known is not None and alone:
            ledger.shown = ShownRun(known, judged, ways)
        undefined += sealed and owner[0] == "run" and reading.opening is None and contract is None
        return ledger

    ledgers, runs, number = follow_log(lines, read, begin, findings)
    live = sum(ledger.is_live for ledger in ledgers.values())
    notes = (
        *((undefined_note(undefined),) if undefined else ()),
        *((f"this is a live log: {live} of its journals go on",) if live else ()),
        *spanning.notes,
    )
    return findings.report(runs, number, notes)


class Spanning:
    """The invariants that span journals, checked as long as the log is in the order of time."""

    def __init__(self, judged: JudgedDialect) -> None:
        self._name, self._at, self._ordered = judged.name, 0, True
        self._invariants = [one for one in judged.invariants if one.spans]
        self._oath = Oath(self._invariants)
        self._owners: set[str] = set()

    def consume(self, line: DialectLine, say: Say) -> None:
        if not self._invariants:
            return
        self._owners.add(line.owner[0])
        self._ordered = self._ordered and line.at >= self._at
        self._at = line.at
        if self._ordered and line.raw["metadata"].get("written_in") == self._name:
            self._oath.consume(line.raw, say)

    @property
    def notes(self) -> tuple[str, ...]:
        if self._ordered or len(self._owners) < 2:
            return ()
        names = ", ".join(one.name for one in self._invariants)
        return (f"workers and runs are not in the order of time, so this was not checked to the end: {names}",)


class Ledger:
    """The state of one run's (or worker's) log so far."""

    def __init__(
        self, judged: JudgedDialect, arrows: Mapping[str, Arrows], spanning: Spanning, *, sealed: bool
    ) -> None:
        self._judged, self._arrows, self._sealed, self._spanning = judged, arrows, sealed, spanning
        self._states: dict[tuple[str, str], str] = {}
        self._lost = False
        self._damaged = False
        self._next = 1
        self._chain: bytes | None = b""
        self._before: bytes | None = b""
        self._seq = 0
        self._at: int | None = None
        self._written_in: str | None = None
        self._oath = Oath(one for one in judged.invariants if not (sealed and one.spans))
        self._digests: Digests | None = None
        self.last_line = 0
        self._is_live = self._has_ended = False
        self.opening: OpeningLine | None = None
        self.shown: ShownRun | None = None
        self._common: tuple[object, ...] | None = None
        self._plain = PlainStory() if not sealed and judged.seed == "004" else None

    def take(self, line: DialectLine, say: Say) -> bool:
        """Follow one more line. Returns True for the closing line."""
        if self._sealed:
            self._spanning.consume(line, say)
        if self._sealed and not self._in_place(line, say):
            return False
        self._check_time(line, say)
        self._check_common(line, say)
        if line.number == 1 and self.opening is not None and line.at != self.opening.at:
            say(Code.CONTRADICTION, "the first line has another time than the line with the definition")
        if line.kind == "head":
            self._close(line, say)
        else:
            self._follow(line, say)
        if self._digests is None:
            known = None if self.shown is None else self.shown.contract.digest
            self._digests = Digests(self.opening, known=known, defers=True)
        if self._sealed and line.owner[0] == "run" and line.kind != "head":
            hop = as_canonical(line, line.raw["metadata"])
            self._digests.check(hop, say)
            if self.shown is not None:
                self.shown.take(line, hop, say)
        elif self.shown is not None:
            self.shown.close(line, say)
        self._hold_to_oath(line, say)
        return line.kind == "head"

    @property
    def is_live(self) -> bool:
        """Whether the log says that it is live, and what it tells of has not ended: then it has no closing line yet."""
        return self._sealed and self._is_live and not self._has_ended

    @property
    def goes_on(self) -> bool:
        return self.is_live or not self._sealed

    def open(self, opening: OpeningLine, say: Say, *, first: bool) -> None:
        """Follow the line with the definition, which must be the first one."""
        if not first:
            say(Code.ORDER, "the definition must be the first line of its journal")
            return
        chain = bytes.fromhex(opening.seal)
        if not has_hash(b"", opening):
            say(Code.HASH, "the line with the definition does not have the hash it says: it was changed")
        self.opening, self._chain, self._before = opening, chain, chain
        self._written_in, self._at, self._is_live = opening.written_in, opening.at, opening.live
        self._common = (opening.tenant, opening.correlation_id)

    def damage(self) -> None:
        """A line could not be read: accept the next line without checking its number."""
        self._damaged = True
        self._lose()

    def _lose(self) -> None:
        self._lost, self._chain, self.shown = True, None, None
        self._states.clear()

    # -- places and chain --------------------------------------------------------------------------------------------
    def _in_place(self, line: DialectLine, say: Say) -> bool:
        assert line.number is not None
        assert line.seal is not None
        if line.number < self._next and not self._damaged:
            say(Code.ORDER, f"line {line.number} of this journal comes after line {self._next - 1}")
            return False
        if line.number != self._next:
            if not self._damaged:
                say(Code.GAP, f"line {self._next} of this journal should stand here, not line {line.number}")
            self._lose()
        elif self._chain is not None and not has_hash(self._chain, line):
            say(Code.HASH, f"line {line.number} does not have the hash it says: it, or the one before it, was changed")
        if line.seq < self._seq:
            say(Code.ORDER, f"entry {line.seq} comes after entry {self._seq}")
        self._next, self._damaged, self._seq = line.number + 1, False, line.seq
        self._before, self._chain = self._chain, bytes.fromhex(line.seal)
        return True

    def _check_time(self, line: DialectLine, say: Say) -> None:
        if self._at is not None and line.at < self._at:
            say(Code.TIME, f"time runs backwards: {self._at - line.at} µs before the line that precedes it")
        self._at = line.at

    def _check_common(self, line: DialectLine, say: Say) -> None:
        """Tenant and correlation id stay the same within a run."""
        said = line.raw["metadata"]
        common = said.get("tenant"), said.get("correlation_id")
        if self._sealed and self._common not in (None, common):
            say(Code.CONTRADICTION, "tenant or correlation_id differs from that of the lines before")
        self._common = common

    # -- arrows ------------------------------------------------------------------------------------------------------
    def _follow(self, line: DialectLine, say: Say) -> None:
        arrows = self._arrows[line.kind]
        assert line.target is not None
        arrows.check(line.raw, say)
        key = line.kind, line.entity
        before = self._states.get(key, UNKNOWN if self._lost else None)
        self._check_continuity(arrows.view, line, before, say)
        self._states[key] = line.target
        if key == line.owner:
            self._is_live |= line.raw["metadata"].get("live") is True
            self._has_ended = line.target in arrows.view.terminal

    def _check_continuity(self, view: MachineView, line: DialectLine, before: str | None, say: Say) -> None:
        if before in (UNKNOWN, line.source):
            return
        name = f"{view.noun} {quoted(line.entity)}"
        if before is None:
            if self._sealed or not view.legal(None, line.source or ""):
                say(Code.CREATION, f"{name} leaves {quoted(line.source)}, but was never created")
        elif line.source is None:
            say(Code.CREATION, f"{name} is created again")
        elif before in view.terminal:
            say(Code.TERMINAL, f"{name} goes to {quoted(line.target)}, but had ended {quoted(before)}")
        else:
            say(Code.DISCONTINUOUS, f"{name} leaves {quoted(line.source)}, but was {quoted(before)}")

    # -- the end -----------------------------------------------------------------------------------------------------
    def _close(self, line: DialectLine, say: Say) -> None:
        said = line.raw["metadata"]
        if self._before is not None and said["chain"] != self._before.hex():
            say(Code.HEAD, "the closing line has another chain than the line before it")
        reached = self._states.get((line.owner[0], line.entity))
        if not self._lost and line.target != reached:
            say(Code.HEAD, f"the closing line says {quoted(line.target)}, which is not the state reached before it")

    # -- invariants --------------------------------------------------------------------------------------------------
    def _hold_to_oath(self, line: DialectLine, say: Say) -> None:
        told = line.raw if self._plain is None else self._plain.take(line, say)
        written_in = line.raw["metadata"].get("written_in") if self._sealed else self._judged.name
        if self._written_in not in (None, written_in):
            say(Code.CONTRADICTION, f"metadata.written_in was {quoted(self._written_in)} before")
        self._written_in = written_in
        if written_in == self._judged.name and not self._lost:
            self._oath.consume(told, say)


class Oath:
    """The invariants of a dialect, checked over one run."""

    def __init__(self, invariants: Iterable[Invariant]) -> None:
        self._say: Say = lambda code, message: None
        self._checkers: list[tuple[Invariant, Callable[[Line], None]]] = [
            (one, one.check(self._teller(one))) for one in invariants
        ]

    def consume(self, line: Line, say: Say) -> None:
        self._say = say
        for invariant, check in self._checkers:
            try:
                check(line)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                self._teller(invariant)(f"cannot be judged by this line: {quoted(str(error))}")

    def _teller(self, invariant: Invariant) -> Callable[[str], None]:
        def flag(message: str) -> None:
            self._say(Code.INVARIANT, f"{invariant.name} ({invariant.cites}): {message}")

        return flag


class Arrows:
    """The arrows of one machine of a dialect. It remembers which ones it found right."""

    def __init__(self, view: MachineView) -> None:
        self.view = view
        self._right: set[tuple[object, ...]] = set()

    def check(self, line: Line, say: Say) -> None:
        said = line["metadata"]
        told = said.get("because"), said.get("ground"), said.get("extension")
        arrow = line["from_state"], line["to_state"], line["trigger"], *told
        if arrow in self._right:
            return
        found: list[tuple[Code, str]] = []
        check_arrow(self.view, line, lambda code, message: found.append((code, message)))
        for problem in found:
            say(*problem)
        if not found and len(self._right) < MOST_ARROWS:
            self._right.add(arrow)


def check_arrow(view: MachineView, line: Line, say: Say) -> None:
    """Check that the arrow is in the dialect's machine, or is a listed extension and marked as one."""
    source, target, trigger = line["from_state"], line["to_state"] or "", line["trigger"]
    hop = f"{view.noun} {quoted(line['entity_id'])} goes from {quoted(source)} to {quoted(target)}"
    strange = [state for state in (source, target) if state not in (None, *view.states, *view.extra)]
    if strange:
        say(Code.ILLEGAL, f"{hop}: a {view.noun} is never {quoted(strange[0])}")
        return
    listed = view.listed(source, target)
    if not listed:
        ruled_out = next((one.cites for one in view.forbidden if _matches(one.source, one.target, source, target)), "")
        say(Code.ILLEGAL, f"{hop}: there is no such arrow" + (f" ({ruled_out} rules it out)" if ruled_out else ""))
        return
    because = line["metadata"].get("because")
    named = [one for one in listed if (one.trigger or because or trigger) == trigger]
    if not named:
        words = sorted({one.trigger or "its canonical trigger" for one in listed})
        say(Code.ILLEGAL, f"{hop} by {quoted(trigger)}; that arrow is for {' or '.join(words)}")
        return
    right = None if because is None else _check_ground(view, line, hop, say)
    _check_extension(line, hop, listed, named if right is None else [right], say)


def _check_extension(
    line: Line, hop: str, listed: list[Arrow | Extension], named: list[Arrow | Extension], say: Say
) -> None:
    """A line says that it is an extension where the specification does not have its arrow, and nowhere else."""
    trigger, claimed = line["trigger"], line["metadata"].get("extension") is True
    extensions = [isinstance(one, Extension) for one in named]
    if all(extensions) and not claimed:
        own = sorted({str(one.trigger) for one in listed if not isinstance(one, Extension)})
        said = f" by {quoted(trigger)}; the specification's arrow is for {' or '.join(own)}"
        said = said if own else ": the specification has no such arrow"
        say(Code.ILLEGAL, f"{hop}{said}, and the line does not say it is an extension")
    if not any(extensions) and claimed:
        say(Code.CONTRADICTION, f"{hop} and says it is an extension, but the specification has this arrow")


def _check_ground(view: MachineView, line: Line, hop: str, say: Say) -> Arrow | Extension | None:
    """Check that the word is the one that the line's own ground asks for. Returns its row if it is."""
    metadata = line["metadata"]
    because, ground = metadata["because"], metadata.get("ground") or metadata["because"]
    right = view.word(line["from_state"], line["to_state"] or "", because, ground)
    word = None if right is None else right.trigger or because
    if word == line["trigger"]:
        return right
    said = "no word covers that" if word is None else f"the word for that is {quoted(word)}"
    say(Code.ILLEGAL, f"{hop} by {quoted(line['trigger'])} on the ground {quoted(ground)}; {said}")
    return None


def _matches(ruled_source: str, ruled_target: str, source: str | None, target: str) -> bool:
    return ruled_source in (ANY, source) and ruled_target in (ANY, target)
