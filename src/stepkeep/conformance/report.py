"""Findings of the judge, each with a line number and a code, and the report that collects them.

Values only. The number of findings kept is bounded, so that a corrupt file cannot fill the memory; all are counted.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

MOST_FINDINGS = 1000
LONGEST_QUOTE = 80


class Code(StrEnum):
    """Every kind of finding. The codes are stable: scripts may rely on them."""

    JSON = "json"
    """the line is not one JSON object in UTF-8, or is too long"""
    SCHEMA = "schema"
    """a field is missing, unknown, of the wrong type or not in its vocabulary"""
    CONTRADICTION = "contradiction"
    """two fields of the log that say the same thing differ"""
    EMPTY = "empty"
    """there is not a single line"""
    GAP = "gap"
    """lines are missing before this one"""
    ORDER = "order"
    """the line stands after lines that it should precede"""
    REPEAT = "repeat"
    """the line was there before"""
    ENTRY = "entry"
    """the lines of one journal entry do not fit together"""
    HASH = "hash"
    """the chain is broken: this entry or the one before it was changed"""
    HEAD = "head"
    """the closing line differs from what the lines before it add up to"""
    INCOMPLETE = "incomplete"
    """the journal has no closing line: its tail is missing"""
    AFTER_HEAD = "after_head"
    """a line follows the closing line of its journal"""
    TIME = "time"
    """time runs backwards"""
    ILLEGAL = "illegal"
    """no such arrow in the machine"""
    DISCONTINUOUS = "discontinuous"
    """the state left is not the state that was entered before"""
    CREATION = "creation"
    """something moves before it was created, or is created twice"""
    TERMINAL = "terminal"
    """something happens after the end"""
    CLAIM = "claim"
    """a step moves in a way that the state of its run rules out"""
    FENCE = "fence"
    """a fence that does not grow with each claim, or is not the one of the claim"""
    OUTCOME = "outcome"
    """an outcome without a lease, or a second one under the same claim"""
    ATTEMPT = "attempt"
    """attempts are miscounted"""
    TIMER = "timer"
    """a timer fired before it was due"""
    ENDING = "ending"
    """the run's state contradicts the states of its steps"""
    STUCK = "stuck"
    """the run goes on but nothing in it can move"""
    UNDO = "undo"
    """steps are undone that must not be, twice, or in the wrong order"""
    CAUSE = "cause"
    """a hop does not follow from the event, the actor or the message that it names"""
    POLICY = "policy"
    """a hop that the definition rules out, or one missing that it makes necessary"""
    PEOPLE = "people"
    """a decision that its person may not make, that counts twice, or that settles a gate too early or too late"""
    ADOPTION = "adoption"
    """a step is taken from an earlier run that did not finish it like that, or that this run does not name"""
    CHILD = "child"
    """what the journals of a parent and its child say of each other differs"""
    CHAIN = "chain"
    """what the journals of a run and of the run as which its flow continued say of each other differs"""
    DEPENDENCY = "dependency"
    """a step opens, is skipped or stays pending against its dependencies"""
    INVARIANT = "invariant"
    """something does not hold that the dialect's specification says always does"""
    PROJECTION = "projection"
    """the dialect's log is not what the journal looks like in its words"""
    DEFINITION = "definition"
    """the definition is not the one that was published, or not the one that the run was created from"""
    PAYLOAD = "payload"
    """a stored input or output does not have the digest that the journal has for it"""
    ARCHIVE = "archive"
    """an archive's files are damaged, or not what its manifest says"""


class Finding(msgspec.Struct, frozen=True):
    """One finding: `line` counts from 1; `run` is the run (or worker) if it is known."""

    line: int
    code: Code
    run: str | None
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.code}: {self.message}"


class Report(msgspec.Struct, frozen=True):
    """The result for a log: findings in line order, the number of journals and lines, and how many findings were
    dropped."""

    findings: tuple[Finding, ...]
    runs: int
    lines: int
    omitted: int = 0
    notes: tuple[str, ...] = ()
    """What could not be verified, although nothing is wrong."""

    @property
    def ok(self) -> bool:
        return not self.findings


def quoted(value: object) -> str:
    """A value for a message: printable and short."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…"


class Findings:
    """Collects findings up to a limit."""

    def __init__(self, most: int = MOST_FINDINGS) -> None:
        self._most = most
        self.kept: list[Finding] = []
        self.omitted = 0

    def add(self, line: int, code: Code, run: str | None, message: str) -> None:
        if len(self.kept) < self._most:
            self.kept.append(Finding(line, code, run, message))
        else:
            self.omitted += 1

    def report(self, runs: int, lines: int, notes: tuple[str, ...]) -> Report:
        return Report(tuple(sorted(self.kept, key=lambda finding: finding.line)), runs, lines, self.omitted, notes)
