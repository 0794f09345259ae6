"""Tells a canonical log in a dialect's words, and compares a dialect's log of the same run with that, line by line.

A log in a dialect's words hides hops. Beside its canonical log it is judged whole: that one is verified, and this one
must be what it looks like. It shares the projection with the export and no other code. `certificate.py` calls it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.conformance.contract import Contract, PlannedRule
from stepkeep.conformance.encoding import parse
from stepkeep.conformance.history import PHASES
from stepkeep.conformance.line import OpeningLine, is_opening, read_opening
from stepkeep.conformance.report import Code, Finding, quoted
from stepkeep.conformance.schema import HEAD
from stepkeep.conformance.words.dialect_line import has_hash
from stepkeep.conformance.words.replay import Arrows, Oath
from stepkeep.conformance.words.shown import facts_of, is_final
from stepkeep.dialects.dialect import Judged
from stepkeep.dialects.grounds import FACTUAL, FINAL, Seen, fact_of
from stepkeep.dialects.projection import ShownArrow

Doc = Mapping[str, Any]
Numbered = tuple[int, Doc]
"""A line with its place in the file."""

EVENTS = {"run_state_transition": "run", "step_state_transition": "step"}
"""The lines of the canonical log that a projection reads."""

BASICS = ("tenant", "run_id", "seq", "at", "hop", "event", "actor")
RUN_COPIED = ("correlation_id", "category", "error")
STEP_COPIED = (*RUN_COPIED, "attempt", "fence", "duration_seconds", "due_at", "of")
GATES = frozenset({"gate_opened", "held"})
OWN_CHAIN = frozenset({"hash", "chain", "line", "lines"})
"""What belongs to the chain of a dialect's log, which `replay.py` checks."""
FACTS = ("kind", "order", "depends_on", "max_attempts", "on_failure", "completion")
OF_RUN = ("workflow", "version", "steps")

_encode, _sorted = msgspec.json.Encoder().encode, msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.decode


class Telling:
    """The lines of one run in a dialect, made from those of its canonical log."""

    def __init__(self, judged: Judged, contract: Contract | None) -> None:
        self._judged, self._contract = judged, contract
        self._facts: dict[str, dict[str, Any]] = {}
        self._projection = judged.projection()
        self._state, self._phases = "", dict[str, str]()
        self._untold: dict[int, str] = {}
        self._cause: tuple[Any, Any] = (0, 0)
        self._detail: Any = None
        self.shown: str | None = None

    def learn(self, line: Doc) -> None:
        """The facts of a step that only a journal tells of, as its first line gives them."""
        said = line["metadata"]
        if line.get("from_state") is None and "step" in said:
            self._facts.setdefault(said["step"], {name: said[name] for name in FACTS if name in said})

    def lines(self, line: Doc) -> Iterator[dict[str, Any]]:
        """The lines that a canonical line shows: none, the step's, the run's, or both."""
        said = line["metadata"]
        cause = said.get("seq"), said.get("cause")
        if cause != self._cause or "detail" in said:
            self._cause, self._detail = cause, said.get("detail")
        kind = EVENTS.get(str(line.get("event_type")))
        if kind is None:
            return
        if kind == "run":
            self._state = line["to_state"]
        place = self._rule(said)
        if (digest := said.get("digest")) is not None:
            self._untold[said["no"]] = digest
        for shown in self._projection.feed(self._seen(kind, line, place)):
            yield self._line(line, shown, place)
        if line["trigger"] in GATES:
            self._untold.pop(said["no"], None)

    def _rule(self, said: Doc) -> PlannedRule | None:
        if self._contract is None:
            return None
        no = said["no"] if "no" in said else self._contract.numbers.get(str(said.get("of")))
        return None if no is None else self._contract.places.get(no)

    def _seen(self, kind: str, line: Doc, place: PlannedRule | None) -> Seen:
        said, trigger = line["metadata"], line["trigger"]
        name, phase = said.get("step") or line["entity_id"], "main"
        if kind == "step":
            phase = self._phases.get(name) or self._phase(name, place)
        fact = ""
        if trigger in FACTUAL:
            about = self._facts.get(str(said.get("step") or said.get("of")), {})
            known = place if place is not None and place.rule is not None else None
            fact = fact_of(
                trigger,
                str(said.get("event")),
                attempt=said.get("attempt"),
                limit=about.get("max_attempts") if known is None else known.retry.max_attempts,
                category=said.get("category"),
                policy=about.get("on_failure") if known is None or known.rule is None else known.rule.on_failure,
                step=said.get("step"),
                of=said.get("of"),
            )
        return Seen(kind, name, line["from_state"], trigger, line["to_state"], phase, fact)

    def _phase(self, name: str, place: PlannedRule | None) -> str:
        is_last = place is not None and is_final(place, self._judged)
        phase = self._phases[name] = FINAL if is_last else PHASES.get(self._state, "main")
        return phase

    def _line(self, line: Doc, shown: ShownArrow, place: PlannedRule | None) -> dict[str, Any]:
        said, of_step = line["metadata"], shown.kind in ("step", "undo")
        told: dict[str, Any] = {name: said[name] for name in BASICS}
        told["because"] = line["trigger"]
        for name in STEP_COPIED if of_step else RUN_COPIED:
            if name in said:
                told[name] = said[name]
        if self._detail is not None:
            told["detail"], self._detail = self._detail, None
        if of_step:
            self._of_step(told, line, shown, place)
        else:
            self.shown = shown.target
            if (of := said.get("step", said.get("of"))) is not None:
                told["of"] = of
            told |= self._of_run() if shown.source is None else {}
        if shown.ground != line["trigger"]:
            told["ground"] = shown.ground
        if shown.extension:
            told["extension"] = True
        critical = shown.target == self._judged.run.shows.get("failed")
        return {
            "timestamp": line["timestamp"],
            "event_type": f"{shown.noun}_state_transition",
            "severity": line["severity"] if of_step else "critical" if critical else "info",
            "entity_id": f"{said['run_id']}/{shown.name}" if of_step else said["run_id"],
            "from_state": shown.source,
            "to_state": shown.target,
            "trigger": shown.word,
            "metadata": told,
        }

    def _of_step(self, told: dict[str, Any], line: Doc, shown: ShownArrow, place: PlannedRule | None) -> None:
        said = line["metadata"]
        told["step"], told["no"] = said["step"], said["no"]
        if "attempt" in said:
            is_free = line["trigger"] == "lease_lost" and place is not None and not place.retry.counts_losses
            told["retry_count"] = said["attempt"] - (line["to_state"] != "retrying" or is_free)
        if line["trigger"] == "claimed":
            told["worker"] = said["actor"]
        if (digest := self._untold.pop(said["no"], None)) is not None:
            told["digest"] = digest
        if shown.source is None:
            known = place is not None and place.rule is not None
            told |= facts_of(place) if known and place is not None else self._facts.get(said["step"], {})

    def _of_run(self) -> dict[str, Any]:
        if self._contract is None:
            return {}
        document = self._contract.document
        final = sum(is_final(place, self._judged) for place in self._contract.places.values())
        return {"workflow": document.name, "version": document.version, "steps": self._contract.size - final}

    def closing(self, head: Doc | None) -> dict[str, Any]:
        """What the closing line says of the journal."""
        known: Doc = {} if head is None else head["metadata"]
        found = {"head": known.get("hash"), "canonical": known.get("state"), "state": self.shown}
        return found | {name: known.get(name) for name in ("entries", "seq", "at")}


class Exact(msgspec.Struct, frozen=True, kw_only=True):
    """A dialect's log that says exactly what the journal looks like in its words."""

    lines: int
    extensions: int
    state: str | None
    chain: str


def told_exactly(
    judged: Judged, contract: Contract | None, log: Sequence[bytes], canonical: Iterable[Doc], *, own: bool
) -> Exact | None:
    """The log, if each of its lines is the one that the judge tells, and arrows and invariants hold; else None.

    A line that is equal to a told one needs no other check: its fields, its number and its hash follow."""
    opening = _opening(log[0], judged.name) if log else None
    if contract is None or opening is None or opening.digest != contract.digest or not has_hash(b"", opening):
        return None
    telling, chain, number = Telling(judged, contract), opening.seal, 1
    arrows = {view.noun: Arrows(view) for view in judged.views}
    oath, problems = Oath(judged.invariants if own else ()), list[tuple[Code, str]]()
    common = {"dialect": judged.name, "written_in": opening.written_in}
    extensions, head = 0, None

    def say(code: Code, message: str) -> None:
        problems.append((code, message))

    def is_next(wanted: dict[str, Any]) -> bool:
        nonlocal chain, number
        metadata = wanted["metadata"]
        metadata |= common
        metadata["line"] = number
        chain = hashlib.sha256(bytes.fromhex(chain) + _sorted(wanted)).hexdigest()
        metadata["hash"] = chain
        found = _decode(log[number]) if number < len(log) else None
        number += 1
        oath.consume(wanted, say)
        return bool(found == wanted) and _encode(found) == log[number - 1]

    for line in canonical:
        if line.get("event_type") == HEAD:
            head = line
            break
        if number < len(log) and b'"from_state":null' in log[number]:
            telling.learn(_decode(log[number]))
        for wanted in telling.lines(line):
            if number == 1 and wanted["metadata"]["at"] != opening.at:
                return None
            arrows[wanted["event_type"].removesuffix("_state_transition")].check(wanted, say)
            extensions += "extension" in wanted["metadata"]
            if not is_next(wanted) or problems:
                return None
    if head is None or number != len(log) - 1:
        return None
    said, shown = head["metadata"], telling.shown
    metadata = {name: said[name] for name in ("tenant", "run_id", "correlation_id") if name in said}
    metadata |= telling.closing(head) | {"lines": number - 1, "chain": chain if number > 1 else ""}
    closing = {**head, "from_state": shown, "to_state": shown, "metadata": metadata}
    is_right = opening.tenant == said["tenant"] and opening.owner == said["run_id"]
    if not is_next(closing) or problems or not is_right or opening.correlation_id != said.get("correlation_id"):
        return None
    return Exact(lines=len(log), extensions=extensions, state=shown, chain=chain)


def _opening(raw: bytes, dialect: str) -> OpeningLine | None:
    try:
        document = parse(raw)
    except (ValueError, RecursionError):
        return None
    found = read_opening(document, dialect) if is_opening(document) else None
    return None if found is None or found.problems else found.opening


def compare(
    judged: Judged, contract: Contract | None, told: Iterable[Numbered], canonical: Iterable[Doc]
) -> Iterator[Finding]:
    """Every difference between a dialect's log and what its canonical log looks like in these words."""
    found = list(told)
    telling = Telling(judged, contract)
    for _, line in found:
        telling.learn(line)
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
        place, last = found[-1]
        for name, value in telling.closing(head).items():
            if last["metadata"].get(name) != value:
                said = f"the closing line has {quoted(last['metadata'].get(name))} as metadata.{name}"
                yield Finding(place, Code.PROJECTION, run, f"{said}, but the journal says {quoted(value)}")


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


def _arrow(line: Doc) -> str:
    noun, step = str(line["event_type"]).removesuffix("_state_transition"), line["metadata"].get("step")
    source = line["from_state"] or "(new)"
    return f"{noun} {step or ''}".strip() + f" {source} → {line['to_state']} by {line['trigger']!r}"
