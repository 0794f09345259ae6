"""A run as its journal says it stood after an entry: the judge follows the log up to there and stops.

Only lines of the log are read, never a current row. The result is therefore also a check of the rows: after the last
entry both must agree. `evidence/past.py` adds stored payloads whose digests the journal has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from stepkeep.conformance.digests import FROM_ATTEMPTS, GATES
from stepkeep.conformance.history import RunHistory
from stepkeep.conformance.line import Line, read_line
from stepkeep.conformance.machines import Machines
from stepkeep.conformance.report import MOST_FINDINGS, Code, Finding, Findings
from stepkeep.conformance.steps import FollowedStep
from stepkeep.conformance.verify import JudgedJournal, pinned

RUN = -1
"""The number of a line that is about the run itself."""


class PastOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The digest of an output; `fence` names the attempt that returned it, None where it is on the row of the step."""

    digest: str
    fence: int | None


class PastStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step after an entry. `since` is when it came into its state, in microseconds."""

    no: int
    name: str
    phase: str
    state: str
    since: int
    attempt: int | None
    fence: int
    holder: str | None
    due_at: int | None
    category: str | None
    error: str | None
    output: PastOutput | None


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run after an entry, the cause of that entry, and what the judge found in the entries up to it.

    `input` is the digest of the run's input; journals of before digests have none.
    """

    state: str
    category: str | None
    error: str | None
    seq: int
    at: int
    event: str
    actor: str
    since: int
    input: str | None
    steps: tuple[PastStep, ...]
    findings: tuple[Finding, ...]


class _Follower:
    """One journal, followed line by line, with the facts that the judge does not keep."""

    def __init__(self, machines: Machines) -> None:
        self._machines = {name: (frozenset(arrows), frozenset(ends)) for name, (arrows, ends) in machines.items()}
        self._findings = Findings(MOST_FINDINGS)
        self._journal: JudgedJournal | None = None
        self._since: dict[int, int] = {}
        self._hops: dict[int, Line] = {}
        self._holders: dict[int, str] = {}
        self._outputs: dict[int, PastOutput] = {}
        self._input: str | None = None
        self._last: Line | None = None

    def take(self, number: int, raw: bytes) -> None:
        reading = read_line(raw)

        def say(code: Code, message: str) -> None:
            self._findings.add(number, code, None, message)

        for code, message in reading.problems:
            say(code, message)
        if reading.opening is not None:
            self._journal = JudgedJournal(reading.opening, self._machines, pinned(reading.opening, say))
        elif (line := reading.line) is not None:
            if self._journal is None:
                self._journal = JudgedJournal(line, self._machines)
            self._journal.take(line, say)
            self._note(line)

    def _note(self, line: Line) -> None:
        self._last = line
        if line.event == "run_created" and line.detail is not None:
            self._input = json.loads(line.detail).get("input")
        if line.about == "note":
            return
        self._hops[line.no] = line
        if line.source != line.target:
            self._since[line.no] = line.at
        if line.trigger == "claimed":
            self._holders[line.no] = line.actor
        if line.digest is not None and line.trigger not in GATES:
            of_attempt = line.event == FROM_ATTEMPTS and line.trigger != "wait_satisfied"
            self._outputs[line.no] = PastOutput(digest=line.digest, fence=line.fence if of_attempt else None)

    def run(self) -> PastRun | None:
        if self._journal is None or self._last is None or not isinstance(self._journal.history, RunHistory):
            return None
        history, last, hop = self._journal.history, self._last, self._hops.get(RUN)
        return PastRun(
            state=history.state or "",
            category=None if hop is None else hop.category,
            error=None if hop is None else hop.error,
            seq=last.seq,
            at=last.at,
            event=last.event,
            actor=last.actor,
            since=self._since.get(RUN, last.at),
            input=self._input,
            steps=tuple(self._step(step, self._hops[no]) for no, step in sorted(history.steps.items())),
            findings=tuple(self._findings.kept),
        )

    def _step(self, step: FollowedStep, hop: Line) -> PastStep:
        return PastStep(
            no=step.no,
            name=step.name,
            phase=step.phase,
            state=step.state,
            since=self._since[step.no],
            attempt=hop.attempt,
            fence=step.fence,
            holder=self._holders.get(step.no) if step.leased else None,
            due_at=hop.due_at,
            category=hop.category,
            error=hop.error,
            output=self._outputs.get(step.no),
        )


def follow_to(
    lines: Iterable[bytes], machines: Machines, *, seq: int | None = None, at: int | None = None
) -> PastRun | None:
    """The run after the last entry that is not later than `seq`, or than the time `at`; None before the first one."""
    follower = _Follower(machines)
    for number, raw in enumerate(lines, 1):
        line = read_line(raw).line
        if line is not None and (line.about == "head" or _is_later(line, seq, at)):
            break
        follower.take(number, raw)
    return follower.run()


def _is_later(line: Line, seq: int | None, at: int | None) -> bool:
    return (seq is not None and line.seq > seq) or (at is not None and line.at > at)
