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
from stepkeep.conformance.words.shown import FACTS, facts_of, is_final
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.grounds import FACTUAL, FINAL, Seen, fact_of
from stepkeep.dialects.projection import ShownArrow

Doc = Mapping[str, Any]
Numbered = tuple[int, Doc]
"""A line with its place in the file."""

EVENTS = {"run_state_transition": "run", "step_state_transition": "step"}
"""The lines of the canonical log that a projection reads."""

RUN_COPIED = ("category", "error")
STEP_COPIED = ("attempt", "fence", "duration_seconds", "due_at", "digest", *RUN_COPIED)
"""What a told line has from the canonical one, in the order in which an export writes it."""
GATES = frozenset({"gate_opened", "held"})
OWN_CHAIN = frozenset({"hash", "chain", "line", "lines"})
"""What belongs to the chain of a dialect's log, which `replay.py` checks."""
OF_RUN = ("workflow", "version", "steps")

_encode, _sorted = msgspec.json.Encoder().encode, msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.decode


class Telling:
    """The lines of one run in a dialect, made from those of its canonical log."""

    def __init__(self, judged: JudgedDialect, contract: Contract | None, written_in: str = "") -> None:
        self._judged, self._contract = judged, contract
        self.origin = {"dialect": judged.name, "written_in": written_in}
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
        if (digest := said.get("digest")) is not None:
            self._untold[said["no"]] = digest
        for shown in self._projection.feed(self._seen(kind, line)):
            yield self._line(line, shown)
        if line["trigger"] in GATES:
            self._untold.pop(said["no"], None)

    def _rule(self, said: Doc) -> PlannedRule | None:
        """The step that a line is about, as far as the definition tells of it."""
        if self._contract is None:
            return None
        no = said["no"] if "no" in said else self._contract.numbers.get(str(said.get("of")))
        return None if no is None else self._contract.places.get(no)

    def _seen(self, kind: str, line: Doc) -> Seen:
        said, trigger = line["metadata"], line["trigger"]
        name, phase = said.get("step") or line["entity_id"], "main"
        if kind == "step":
            phase = self._phases.get(name) or self._phase(name, self._rule(said))
        fact = self._fact(trigger, said) if trigger in FACTUAL else ""
        return Seen(kind, name, line["from_state"], trigger, line["to_state"], phase, fact)

    def _fact(self, trigger: str, said: Doc) -> str:
        about, place = self._facts.get(str(said.get("step") or said.get("of")), {}), self._rule(said)
        limit, policy = about.get("max_attempts"), about.get("on_failure")
        if place is not None and place.rule is not None:
            limit, policy = place.retry.max_attempts, place.rule.on_failure
        return fact_of(
            trigger,
            str(said.get("event")),
            attempt=said.get("attempt"),
            limit=limit,
            category=said.get("category"),
            policy=policy,
            step=said.get("step"),
            of=said.get("of"),
        )

    def _phase(self, name: str, place: PlannedRule | None) -> str:
        is_last = place is not None and is_final(place, self._judged)
        phase = self._phases[name] = FINAL if is_last else PHASES.get(self._state, "main")
        return phase

    def _line(self, line: Doc, shown: ShownArrow) -> dict[str, Any]:
        said, of_step = line["metadata"], shown.kind in ("step", "undo")
        told: dict[str, Any] = {"tenant": said["tenant"], "run_id": said["run_id"]}
        if "correlation_id" in said:
            told["correlation_id"] = said["correlation_id"]
        told |= self.origin
        told |= {"line": 0, "seq": said["seq"], "at": said["at"], "hop": said["hop"]}
        told |= {"because": line["trigger"], "event": said["event"], "actor": said["actor"]}
        if self._detail is not None:
            told["detail"], self._detail = self._detail, None
        if of_step:
            self._of_step(told, line, shown)
        else:
            self._of_run(told, said, shown)
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

    def _of_step(self, told: dict[str, Any], line: Doc, shown: ShownArrow) -> None:
        said = line["metadata"]
        told["step"], told["no"] = said["step"], said["no"]
        if shown.source is None:
            place = self._rule(said)
            known = place is not None and place.rule is not None
            told |= facts_of(place) if known and place is not None else self._facts.get(said["step"], {})
        if "of" in said:
            told["of"] = said["of"]
        for name in STEP_COPIED:
            value: Any = self._untold.pop(said["no"], None) if name == "digest" else said.get(name)
            if value is not None:
                told[name] = value
            if name == "attempt" and value is not None:
                is_retried = line["to_state"] == "retrying" and not self._is_free_loss(line)
                told["retry_count"] = value - (not is_retried)
        if line["trigger"] == "claimed":
            told["worker"] = said["actor"]

    def _is_free_loss(self, line: Doc) -> bool:
        place = self._rule(line["metadata"]) if line["trigger"] == "lease_lost" else None
        return place is not None and not place.retry.counts_losses

    def _of_run(self, told: dict[str, Any], said: Doc, shown: ShownArrow) -> None:
        self.shown = shown.target
        if shown.source is None and self._contract is not None:
            document = self._contract.document
            final = sum(is_final(place, self._judged) for place in self._contract.places.values())
            told |= {"workflow": document.name, "version": document.version, "steps": self._contract.size - final}
        if (of := said.get("step", said.get("of"))) is not None:
            told["of"] = of
        told |= {name: said[name] for name in RUN_COPIED if name in said}

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


class SealedCopy:
    """Told lines, numbered and chained, beside a dialect's log that should consist of them."""

    def __init__(self, log: Sequence[bytes], seal: str) -> None:
        self._log, self.number, self._chain = log, 0, bytes.fromhex(seal)

    @property
    def chain(self) -> str:
        return self._chain.hex() if self.number else ""

    def is_next(self, wanted: dict[str, Any]) -> bool:
        """Whether the next line of the log is this one. Most are written alike to the byte."""
        self.number += 1
        if self.number >= len(self._log):
            return False
        raw, metadata = self._log[self.number], wanted["metadata"]
        metadata["line"] = self.number
        self._chain = hashlib.sha256(self._chain + _sorted(wanted)).digest()
        metadata["hash"] = self._chain.hex()
        return _encode(wanted) == raw or ((found := _decode(raw)) == wanted and _encode(found) == raw)

    def shows_first(self) -> bytes | None:
        """The next line, if it is the first one of a run or a step."""
        raw = self._log[self.number + 1] if self.number + 1 < len(self._log) else b""
        return raw if b'"from_state":null' in raw else None


def told_exactly(
    judged: JudgedDialect, contract: Contract | None, log: Sequence[bytes], canonical: Iterable[Doc], *, own: bool
) -> Exact | None:
    """The log, if each of its lines is the one that the judge tells, and arrows and invariants hold; else None.

    A line that is equal to a told one needs no other check: its fields, its number and its hash follow."""
    opening = _opening(log[0], judged.name) if log else None
    if contract is None or opening is None or opening.digest != contract.digest or not has_hash(b"", opening):
        return None
    telling, copy = Telling(judged, contract, opening.written_in), SealedCopy(log, opening.seal)
    arrows = {f"{view.noun}_state_transition": Arrows(view) for view in judged.views}
    oath, problems = Oath(judged.invariants if own else ()), list[tuple[Code, str]]()
    may_learn = any(place.kind.suspends for place in contract.places.values())
    extensions, head = 0, None

    def say(code: Code, message: str) -> None:
        problems.append((code, message))

    for line in canonical:
        if line.get("event_type") == HEAD:
            head = line
            break
        if may_learn and (raw := copy.shows_first()) is not None:
            telling.learn(_decode(raw))
        for wanted in telling.lines(line):
            arrows[wanted["event_type"]].check(wanted, say)
            extensions += "extension" in wanted["metadata"]
            if not copy.is_next(wanted) or (copy.number == 1 and wanted["metadata"]["at"] != opening.at):
                return None
            oath.consume(wanted, say)
    if head is None or copy.number != len(log) - 2 or not _is_of(opening, head["metadata"]):
        return None
    closing = _closing(telling, head, copy)
    oath.consume(closing, say)
    is_whole = copy.is_next(closing) and not problems
    return Exact(lines=len(log), extensions=extensions, state=telling.shown, chain=copy.chain) if is_whole else None


def _closing(telling: Telling, head: Doc, copy: SealedCopy) -> dict[str, Any]:
    """The closing line, as far as it is not counted."""
    said = head["metadata"]
    metadata = {name: said[name] for name in ("tenant", "run_id", "correlation_id") if name in said}
    metadata |= telling.origin | telling.closing(head) | {"lines": copy.number, "chain": copy.chain}
    return {**head, "from_state": telling.shown, "to_state": telling.shown, "metadata": metadata}


def _is_of(opening: OpeningLine, said: Doc) -> bool:
    """Whether the first line of a log and a closing line are of one run."""
    known = opening.tenant, opening.owner, opening.correlation_id
    return known == (said["tenant"], said["run_id"], said.get("correlation_id"))


def _opening(raw: bytes, dialect: str) -> OpeningLine | None:
    try:
        document = parse(raw)
    except (ValueError, RecursionError):
        return None
    found = read_opening(document, dialect) if is_opening(document) else None
    return None if found is None or found.problems else found.opening


def compare(
    judged: JudgedDialect, contract: Contract | None, told: Iterable[Numbered], canonical: Iterable[Doc]
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
