"""Tells a canonical log in a dialect's words, and compares a dialect's log of the same run with that, line by line.

A log in a dialect's words hides hops. Beside its canonical log it is judged whole: that one is verified, and this one
must be what it looks like. It shares the projection with the export and no other code. `certificate.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepkeep.conformance.contract import Contract, PlannedRule
from stepkeep.conformance.history import PHASES
from stepkeep.conformance.report import Code, Finding, quoted
from stepkeep.conformance.schema import HEAD
from stepkeep.conformance.shown import facts_of, is_final
from stepkeep.dialects.dialect import Judged
from stepkeep.dialects.grounds import FINAL, Seen, fact_of
from stepkeep.dialects.projection import Shown

Doc = Mapping[str, Any]
Numbered = tuple[int, Doc]
"""A line with its place in the file."""

EVENTS = {"run_state_transition": "run", "step_state_transition": "step"}
"""The lines of the canonical log that a projection reads."""

COPIED = ("attempt", "fence", "duration_seconds", "due_at")
GATES = frozenset({"gate_opened", "held"})
OWN_CHAIN = frozenset({"hash", "chain", "line", "lines"})
"""What belongs to the chain of a dialect's log, which `replay.py` checks."""


class Telling:
    """The lines of one run in a dialect, made from those of its canonical log."""

    def __init__(self, judged: Judged, contract: Contract | None, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """`facts` are those of steps that only a journal tells of, as their first lines give them."""
        self._judged, self._contract, self._facts = judged, contract, facts
        self._projection = judged.projection()
        self._state, self._phases = "", dict[str, str]()
        self._untold: dict[int, str] = {}
        self._details: dict[tuple[int, int], Any] = {}
        self._told: set[tuple[int, int]] = set()
        self.shown: str | None = None

    def lines(self, line: Doc) -> Iterator[dict[str, Any]]:
        """The lines that a canonical line shows: none, the step's, the run's, or both."""
        said = line["metadata"]
        by = said.get("seq"), said.get("cause")
        if "detail" in said:
            self._details[by] = said["detail"]
        kind = EVENTS.get(str(line.get("event_type")))
        if kind is None:
            return
        if kind == "run":
            self._state = line["to_state"]
        place = self._rule(said)
        if (digest := said.get("digest")) is not None:
            self._untold[said["no"]] = digest
        for shown in self._projection.feed(self._seen(kind, line, place)):
            yield self._line(line, shown, place, by)
        if line["trigger"] in GATES:
            self._untold.pop(said["no"], None)

    def _rule(self, said: Doc) -> PlannedRule | None:
        if self._contract is None:
            return None
        name = said.get("step") or said.get("of")
        no = said.get("no", self._contract.numbers.get(str(name)))
        return None if no is None else self._contract.places.get(no)

    def _seen(self, kind: str, line: Doc, place: PlannedRule | None) -> Seen:
        said = line["metadata"]
        name = said.get("step") or line["entity_id"]
        phase = "main"
        if kind == "step":
            final = place is not None and is_final(place, self._judged)
            phase = self._phases.setdefault(name, FINAL if final else PHASES.get(self._state, "main"))
        about = self._facts.get(str(said.get("step") or said.get("of")), {})
        known = None if place is None or place.rule is None else place
        fact = fact_of(
            line["trigger"],
            str(said.get("event")),
            attempt=said.get("attempt"),
            limit=about.get("max_attempts") if known is None else known.retry.max_attempts,
            category=said.get("category"),
            policy=about.get("on_failure") if known is None or known.rule is None else known.rule.on_failure,
            step=said.get("step"),
            of=said.get("of"),
        )
        return Seen(kind, name, line["from_state"], line["trigger"], line["to_state"], phase, fact)

    def _line(self, line: Doc, shown: Shown, place: PlannedRule | None, by: tuple[Any, Any]) -> dict[str, Any]:
        said, of_step = line["metadata"], shown.kind in ("step", "undo")
        told: dict[str, Any] = {name: said.get(name) for name in ("tenant", "run_id", "correlation_id", "seq", "at")}
        told |= {name: said.get(name) for name in ("hop", "event", "actor", "category", "error")}
        told |= {"because": line["trigger"], "of": said.get("of")}
        if by not in self._told:
            told["detail"] = self._details.get(by)
            self._told.add(by)
        if of_step:
            told |= self._of_step(line, shown, place)
        else:
            self.shown = shown.target
            told["of"] = said.get("step", said.get("of"))
            told |= self._of_run() if shown.source is None else {}
        told |= {
            "ground": shown.ground if shown.ground != line["trigger"] else None,
            "extension": True if shown.extension else None,
        }
        critical = shown.target == self._judged.run.shows.get("failed")
        return {
            "timestamp": line["timestamp"],
            "event_type": f"{shown.noun}_state_transition",
            "severity": line["severity"] if of_step else "critical" if critical else "info",
            "entity_id": f"{said['run_id']}/{shown.name}" if of_step else said["run_id"],
            "from_state": shown.source,
            "to_state": shown.target,
            "trigger": shown.word,
            "metadata": {name: value for name, value in told.items() if value is not None},
        }

    def _of_step(self, line: Doc, shown: Shown, place: PlannedRule | None) -> dict[str, Any]:
        said = line["metadata"]
        known = place is not None and place.rule is not None
        is_free = line["trigger"] == "lease_lost" and place is not None and not place.retry.counts_losses
        is_retried = line["to_state"] == "retrying" and not is_free
        told = {name: said.get(name) for name in COPIED} | {"step": said["step"], "no": said["no"]}
        told["retry_count"] = None if "attempt" not in said else said["attempt"] - (not is_retried)
        told["worker"] = said["actor"] if line["trigger"] == "claimed" else None
        told["digest"] = self._untold.pop(said["no"], None)
        if shown.source is None:
            told |= facts_of(place) if known and place is not None else self._facts.get(said["step"], {})
        return told

    def _of_run(self) -> dict[str, Any]:
        if self._contract is None:
            return {}
        document = self._contract.document
        final = sum(is_final(place, self._judged) for place in self._contract.places.values())
        return {"workflow": document.name, "version": document.version, "steps": self._contract.size - final}


def compare(
    judged: Judged, contract: Contract | None, told: Iterable[Numbered], canonical: Iterable[Doc]
) -> Iterator[Finding]:
    """Every difference between a dialect's log and what its canonical log looks like in these words."""
    found = list(told)
    facts: dict[str, dict[str, Any]] = {}
    for _, line in found:
        said = line["metadata"]
        if line.get("from_state") is None and "step" in said:
            facts.setdefault(said["step"], {name: said[name] for name in FACTS if name in said})
    telling = Telling(judged, contract, facts)
    expected: list[dict[str, Any]] = []
    head: Doc | None = None
    for line in canonical:
        if line.get("event_type") == HEAD:
            head = line
        expected += telling.lines(line)
    run = str(found[-1][1].get("entity_id")) if found else None
    moves = [(place, line) for place, line in found if line.get("event_type") != HEAD]
    for wanted, (place, line) in zip(expected, moves, strict=False):
        if _arrow(wanted) != _arrow(line):
            said = f"the journal shows {_arrow(wanted)} here, not {_arrow(line)}"
            yield Finding(place, Code.PROJECTION, run, said)
            return
        for said in _unlike(wanted, line, contract):
            yield Finding(place, Code.PROJECTION, run, said)
    if len(expected) != len(moves):
        said = f"the journal shows {len(expected)} transitions in this dialect's words, the log has {len(moves)}"
        yield Finding(found[-1][0] if found else 0, Code.PROJECTION, run, said)
    if found and found[-1][1].get("event_type") == HEAD:
        yield from _closing(found[-1], head, telling.shown, run)


def _unlike(wanted: Doc, line: Doc, contract: Contract | None) -> Iterator[str]:
    for name in ("timestamp", "severity", "entity_id"):
        if wanted[name] != line.get(name):
            yield f"{name} is {quoted(line.get(name))}, but the journal says {quoted(wanted[name])}"
    expected, said = wanted["metadata"], line["metadata"]
    ignored = {*OWN_CHAIN, "dialect", "written_in", "live", *(() if contract else (*FACTS, *OF_RUN))}
    for name in sorted((expected.keys() | said.keys()) - ignored):
        if expected.get(name) != said.get(name):
            found, known = quoted(said.get(name)), quoted(expected.get(name))
            yield f"metadata.{name} is {found}, but the journal says {known}"


def _closing(last: Numbered, head: Doc | None, shown: str | None, run: str | None) -> Iterator[Finding]:
    place, line = last
    known: Doc = {} if head is None else head["metadata"]
    expected = {"head": known.get("hash"), "canonical": known.get("state"), "state": shown}
    expected |= {name: known.get(name) for name in ("entries", "seq", "at")}
    for name, value in expected.items():
        if line["metadata"].get(name) != value:
            found = quoted(line["metadata"].get(name))
            said = f"the closing line has {found} as metadata.{name}, but the journal says {quoted(value)}"
            yield Finding(place, Code.PROJECTION, run, said)


FACTS = ("kind", "order", "depends_on", "max_attempts", "on_failure", "completion")
OF_RUN = ("workflow", "version", "steps")


def _arrow(line: Doc) -> str:
    noun, step = str(line["event_type"]).removesuffix("_state_transition"), line["metadata"].get("step")
    source = line["from_state"] or "(new)"
    return f"{noun} {step or ''}".strip() + f" {source} → {line['to_state']} by {line['trigger']!r}"
