"""Turns journal entries into log lines of a dialect, numbered without a gap and chained line by line.

Pure. It applies the dialect's projection and omits what that does not show. `log.py` and `projected.py` call it;
`conformance/words/replay.py` reads the result without knowing this file. `docs/conformance.md` describes the format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from stepkeep.dialects.dialect import JudgedDialect, LogLine
from stepkeep.dialects.grounds import FACTUAL, FINAL, Seen, fact_of
from stepkeep.dialects.machine import MachineView
from stepkeep.dialects.projection import ShownArrow
from stepkeep.kernel.definition import Handler
from stepkeep.kernel.machine.journal import RUN_ENTITY, Hop
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import Phase, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations.logs.lines import Move, opening_line, severity_of, timestamp
from stepkeep.operations.remote.recorded_calls import JournaledCalls

STEPS = ("step", "undo")
"""Kinds of shown arrows that are about a step."""

canonical_json = msgspec.json.Encoder(order="sorted").encode
"""The bytes that a line's hash covers: compact JSON with sorted keys."""


OPENINGS = frozenset({StepTrigger.GATE_OPENED, StepTrigger.HELD})
"""Triggers whose digest is that of what a gate shows. Any other digest is that of an output: if its hop is not shown,
the next line of the step has it."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a journal, and what is known of it besides its hops."""

    kind: str
    id: str
    written_in: str = "native"
    correlation_id: str | None = None
    plan: Plan | None = None
    facts: Mapping[str, Any] = {}

    def name(self, no: int) -> str:
        return self.id if self.plan is None else self.plan.at(no).name


def subject_of_run(run_id: str, plan: Plan, correlation_id: str | None) -> Subject:
    """A run as the subject of a log."""
    definition = plan.definition
    about = {"workflow": definition.name, "version": definition.version, "steps": plan.size}
    return Subject(
        kind="run", id=run_id, written_in=definition.dialect, correlation_id=correlation_id, plan=plan, facts=about
    )


def subject_of_worker(worker: Worker, dialect: str, *, live: bool = False) -> Subject:
    """A worker as the subject of a log; workers belong to no dialect, so every dialect may check it."""
    facts = {"capacity": worker.capacity, **({"live": True} if live else {})}
    return Subject(kind="worker", id=worker.id, written_in=dialect, facts=facts)


class DialectScribe:
    """Writes one journal in one dialect."""

    def __init__(self, judged: JudgedDialect, subject: Subject) -> None:
        self._judged, self._subject = judged, subject
        self._projection = judged.projection()
        self._machines = {view.noun: view for view in judged.views}
        self._chain = b""
        self._lines = 0
        self._told: tuple[int, int] | None = None
        self._plan = None if subject.plan is None else JournaledCalls(subject.plan)
        self._untold: dict[int, str] = {}
        self._steps: dict[int, tuple[str, str]] = {}
        self.shown: str | None = None
        """The current state of the run (or worker) in the dialect."""

    def opening(self, tenant: str, plan: Plan, at: int, *, live: bool = False) -> LogLine:
        """The first line: the definition that the run was created from. It is chained, and its number is 0. `live`
        says that lines are added while the run goes on: it is closed when the run has ended."""
        said = {} if self._subject.correlation_id is None else {"correlation_id": self._subject.correlation_id}
        more = {"live": True} if live else {}
        line = opening_line(tenant, self._subject.id, said, plan, at, dialect=self._judged.name, line=0, **more)
        return self._chained(line)

    def lines(self, move: Move) -> list[LogLine]:
        """The lines of one hop: none for a note or an unchanged state, two where a step also changes the run."""
        hop = move.hop
        if hop is None:
            return []
        if self._plan is not None:
            self._plan.consume(hop, move.cause)
        if hop.digest is not None:
            self._untold[hop.no] = hop.digest
        lines = [self._line(move, hop, shown) for shown in self._projection.feed(self._seen(hop, move.cause.event))]
        if hop.trigger in OPENINGS:
            self._untold.pop(hop.no, None)
        return lines

    def _seen(self, hop: Hop, event: str) -> Seen:
        subject, plan, fact = self._subject, self._plan, ""
        is_step = hop.no != RUN_ENTITY
        name, phase = self._about_step(hop.no) if is_step else (subject.id, "main")
        if hop.trigger in FACTUAL:
            of = hop.no if is_step else hop.of
            planned = None if of is None or plan is None else plan.at(of)
            fact = fact_of(
                hop.trigger,
                event,
                attempt=hop.attempt,
                limit=None if planned is None else planned.retry.max_attempts,
                category=hop.category,
                policy=None if planned is None else planned.on_failure,
                step=name if is_step else None,
                of=None if hop.of is None or plan is None else plan.at(hop.of).name,
            )
        kind = "step" if is_step else subject.kind
        return Seen(kind, name, hop.source, hop.trigger, hop.target, phase, fact)

    def _about_step(self, no: int) -> tuple[str, str]:
        """The name and the phase of a step."""
        known = self._steps.get(no)
        if known is None:
            planned = None if self._subject.plan is None else self._subject.plan.at(no)
            phase = str(Phase.MAIN if planned is None else planned.phase)
            is_final = planned is not None and self._is_final(planned)
            known = self._steps[no] = self._subject.name(no), FINAL if is_final else phase
        return known

    def _is_final(self, planned: PlannedStep) -> bool:
        named = planned.executor.name if isinstance(planned.executor, Handler) else ""
        return planned.phase is Phase.MAIN and named in self._judged.final

    def _line(self, move: Move, hop: Hop, shown: ShownArrow) -> LogLine:
        entity = self._subject.id if shown.kind not in STEPS else f"{self._subject.id}/{shown.name}"
        view = self._machines[shown.noun]
        if shown.kind not in STEPS:
            self.shown = shown.target
        metadata = self._circumstances(move.entry.tenant, move.entry.seq, move.entry.at) | {
            "hop": move.place,
            "because": hop.trigger,
            "event": move.cause.event,
            "actor": move.cause.actor,
        }
        if move.cause.detail is not None and self._told != (move.entry.seq, move.by):
            metadata["detail"] = move.cause.detail
        self._told = move.entry.seq, move.by
        metadata |= self._about(hop, shown) | self._particulars(hop, shown)
        if hop.trigger == StepTrigger.CLAIMED and shown.kind in STEPS:
            metadata["worker"] = move.cause.actor
        if shown.ground != hop.trigger:
            metadata["ground"] = shown.ground
        if shown.extension:
            metadata["extension"] = True
        line: LogLine = {
            "timestamp": timestamp(move.entry.at),
            "event_type": f"{shown.noun}_state_transition",
            "severity": _severity(view, hop, shown),
            "entity_id": entity,
            "from_state": shown.source,
            "to_state": shown.target,
            "trigger": shown.word,
            "metadata": metadata,
        }
        return self._sealed(line)

    def head(self, tenant: str, seq: int, head: bytes, state: str, at: int) -> LogLine:
        """The closing line: the canonical journal's head, this log's chain, and the final state in the dialect."""
        metadata = self._circumstances(tenant, seq, at) | {
            "entries": seq,
            "lines": self._lines,
            "state": self.shown,
            "canonical": state,
            "head": head.hex(),
            "chain": self._chain.hex(),
        }
        line: LogLine = {
            "timestamp": timestamp(at),
            "event_type": "journal_head",
            "severity": "info",
            "entity_id": self._subject.id,
            "from_state": self.shown,
            "to_state": self.shown,
            "trigger": "exported",
            "metadata": metadata,
        }
        return self._sealed(line)

    def _circumstances(self, tenant: str, seq: int, at: int) -> dict[str, object]:
        subject = self._subject
        said: dict[str, object] = {"tenant": tenant, f"{subject.kind}_id": subject.id}
        if subject.correlation_id is not None:
            said["correlation_id"] = subject.correlation_id
        return said | {
            "dialect": self._judged.name,
            "written_in": subject.written_in,
            "line": self._lines + 1,
            "seq": seq,
            "at": at,
        }

    def _about(self, hop: Hop, shown: ShownArrow) -> dict[str, object]:
        """What the first line of an entity says about it, so that a log can be checked on its own."""
        subject = self._subject
        if shown.kind not in STEPS:
            hidden = 0 if subject.plan is None else sum(map(self._is_final, subject.plan.steps))
            less = {"steps": subject.facts["steps"] - hidden} if hidden else {}
            return {**subject.facts, **less} if shown.source is None else {}
        about: dict[str, object] = {"step": shown.name, "no": hop.no}
        if shown.source is None and self._plan is not None:
            about |= step_facts(self._plan.at(hop.no))
        return about

    def _particulars(self, hop: Hop, shown: ShownArrow) -> dict[str, object]:
        of = hop.of if shown.kind in STEPS or hop.no == RUN_ENTITY else hop.no
        said: dict[str, Any] = {}
        if of is not None and self._subject.plan is not None:
            said["of"] = self._about_step(of)[0]
        if shown.kind in STEPS:
            if hop.attempt is not None:
                is_retried = hop.target == StepState.RETRYING and not self._is_free_loss(hop)
                said |= {"attempt": hop.attempt, "retry_count": hop.attempt - (not is_retried)}
            said["fence"] = hop.fence
            if hop.took is not None:
                said["duration_seconds"] = hop.took / 1_000_000
            said |= {"due_at": hop.due_at, "digest": self._untold.pop(hop.no, None)}
        said |= {"category": hop.category, "error": hop.error}
        return {name: value for name, value in said.items() if value is not None}

    def _is_free_loss(self, hop: Hop) -> bool:
        """Whether a lease was lost that used up no attempt."""
        plan = self._subject.plan
        is_loss = hop.trigger == StepTrigger.LEASE_LOST
        return is_loss and plan is not None and plan.at(hop.no).retry.counts_losses is False

    def _sealed(self, line: LogLine) -> LogLine:
        self._lines += 1
        return self._chained(line)

    def _chained(self, line: LogLine) -> LogLine:
        self._chain = hashlib.sha256(self._chain + canonical_json(line)).digest()
        line["metadata"]["hash"] = self._chain.hex()
        return line


def step_facts(planned: PlannedStep) -> dict[str, object]:
    """What a log says of a step on its first line."""
    written = planned.definition
    if planned.phase is Phase.UNDO:
        return {"kind": planned.kind.log_title, "max_attempts": planned.retry.max_attempts}
    return {
        "kind": planned.kind.log_title,
        "order": written.order,
        "depends_on": [edge.step for edge in written.depends_on],
        "max_attempts": planned.retry.max_attempts,
        "on_failure": str(planned.on_failure),
        "completion": str(written.completion),
    }


def _severity(view: MachineView, hop: Hop, shown: ShownArrow) -> str:
    """The severity of the canonical hop (seed 004); for a run, that of the state it is shown in."""
    if shown.kind == "run":
        return "critical" if shown.target == view.shows.get("failed") else "info"
    return severity_of(shown.kind, hop)
