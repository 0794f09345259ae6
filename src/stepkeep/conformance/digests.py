"""Compares the digests in a journal with the definition in its log, and with stored inputs and outputs.

A journal holds SHA-256 digests of its run's definition and input, of each output, and of what each gate showed.
It must not read a store: the caller passes the stored bytes. `journal.py`, `replay.py` and `certificate.py` call it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stepkeep.conformance.adoption import is_continuation
from stepkeep.conformance.encoding import compact, in_order
from stepkeep.conformance.line import Line, OpeningLine
from stepkeep.conformance.machines import Say
from stepkeep.conformance.policies import terms_of, verdict_in
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import RECORDED

GATES = {"gate_opened": "approval", "held": "hold"}
"""Triggers that open a gate, and the part of the step's definition that the gate shows."""

OUTPUTS = frozenset(
    {
        "completed", "rules_passed", "cancelled", "completion_requested", "adopted", "operator_completed",
        "completion_succeeded", "children_succeeded", "approved", "deadline_approved", "wait_satisfied",
    }
)  # fmt: skip
"""Triggers that may carry the digest of an output."""

FROM_ATTEMPTS = "step_reported"
"""The event whose outputs belong to an attempt; any other output is on the row of its step."""


class Digests:
    """Checks the digests of one run against the definition on the first line of its log."""

    def __init__(self, opening: OpeningLine | None, *, known: str | None = None, defers: bool = False) -> None:
        """`known` is the digest of a definition from elsewhere, for a log without that line.

        In a log that `defers` outputs, a hidden hop leaves its digest to the next line of its step.
        """
        self._opening, self._defers = opening, defers
        self._digest = known if opening is None else opening.digest
        self._recorded = False
        self._gates = {} if opening is None else dict(_gates(opening.definition))
        self._entry, self._detail = 0, dict[str, Any]()

    def check(self, line: Line, say: Say) -> None:
        if line.event == "run_created" and line.detail is not None:
            self._check_origin(line, say)
        self._consume(line)
        if line.trigger in GATES and line.about == "step":
            self._check_gate(line, say)
        elif line.digest is not None and not _brings_output(line) and not self._defers:
            say(Code.CONTRADICTION, f"metadata.digest has no place on {quoted(line.trigger)}: it brings no output")

    def _consume(self, line: Line) -> None:
        """Keep the detail of the present cause, which has the terms of a step that a policy holds."""
        if line.detail is not None:
            self._detail = json.loads(line.detail) if '"policy"' in line.detail else {}
        elif line.seq != self._entry:
            self._detail = {}
        self._entry = line.seq

    def _check_origin(self, line: Line, say: Say) -> None:
        origin = json.loads(line.detail) if line.detail is not None else {}
        self._recorded = "definition" in origin
        if not self._recorded:
            return
        if self._digest is None:
            say(Code.DEFINITION, "the run was created from a definition that this log must begin with; it is missing")
        elif origin["definition"] != self._digest:
            say(Code.DEFINITION, "the definition on the first line is not the one that the run was created from")

    def _check_gate(self, line: Line, say: Say) -> None:
        if self._opening is None or (line.digest is None and not self._recorded):
            return
        expected = self._gates.get((line.step or "", GATES[line.trigger]))
        if line.trigger == "held" and (terms := terms_of(verdict_in(self._detail, line.step))) is not None:
            expected = None if "facts" in terms else sha256_of(compact(in_order(terms)).encode())
        if line.digest is None or expected not in (None, line.digest):
            say(Code.DEFINITION, f"the gate {quoted(line.step)} did not show what the definition says")


def _brings_output(line: Line) -> bool:
    """Whether this hop may carry the digest of an output. A handler that adds steps has returned one, too."""
    is_added = line.trigger == "children_started" and line.source == "running"
    return line.trigger in OUTPUTS or is_added


def _gates(definition: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    steps = definition.get("steps")
    for step in steps if isinstance(steps, list) else ():
        for part in GATES.values():
            # Facts are evaluated when the gate opens, so its definition alone does not give their digest.
            if isinstance(step, dict) and isinstance(step.get(part), dict) and "facts" not in step[part]:
                yield (str(step.get("name")), part), sha256_of(compact(step[part]).encode())


# -- stored payloads -------------------------------------------------------------------------------------------------
class PayloadBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The stored bytes of a run: its input, the outputs of attempts by (step number, fence), those on step rows, and
    the checkpoints of steps by (step number, name)."""

    input: bytes
    attempts: Mapping[tuple[int, int], bytes]
    steps: Mapping[int, bytes]
    checkpoints: Mapping[tuple[int, str], bytes] = {}
    streams: Mapping[tuple[int, int, str], Mapping[str, Any]] | None = None
    """The ends of streams by (step number, fence, name), as they follow from rows; None if these are not known."""


def compare_payloads(lines: Iterable[Mapping[str, Any]], payloads: PayloadBytes) -> Iterator[tuple[int, str | None]]:
    """Each digest of a canonical log with its line number: None if the stored bytes have it, else what is wrong."""
    seen: set[tuple[int, int]] = set()
    reached: set[tuple[int, str]] = set()
    recorded = False
    adopted: dict[str, Mapping[str, str]] = {}
    for number, line in enumerate(lines, 1):
        said = line["metadata"]
        detail = said.get("detail")
        if said.get("event") == "run_created" and isinstance(detail, dict) and "input" in detail:
            recorded = True
            yield number, _difference("the input of the run", payloads.input, detail["input"])
        if said.get("event") == "run_created" and isinstance(detail, dict):
            told: Any = detail.get("continues")
            flows = told.get("flows", {}) if is_continuation(told) else {}
            adopted |= {name: one["checkpoints"] for name, one in flows.items() if "checkpoints" in one}
        for checkpoint, expected in adopted.pop(said.get("step") or "", {}).items():
            name = said["no"], checkpoint
            reached.add(name)
            what = f"the checkpoint {quoted(checkpoint)} of step {quoted(said['step'])}"
            yield number, _difference(what, payloads.checkpoints.get(name), expected)
        if said.get("event") == RECORDED and isinstance(detail, dict):
            name = detail.get("no", -1), str(detail.get("checkpoint"))
            reached.add(name)
            what = f"the checkpoint {quoted(name[1])} of step {quoted(detail.get('step'))}"
            yield number, _difference(what, payloads.checkpoints.get(name), str(detail.get("digest")))
        if payloads.streams is not None and isinstance(detail, dict) and isinstance(detail.get("streams"), dict):
            for stream, end in sorted(detail["streams"].items()):
                yield number, _wrong_end(said, stream, end, payloads.streams)
        if "digest" not in said or line["trigger"] in GATES:
            continue
        key = said["no"], said.get("fence", 0)
        # A detached child is asked for by the report of another step: its own step has no attempt.
        is_own = line["trigger"] not in ("wait_satisfied", "children_succeeded") and key[1] > 0
        of_attempt = said["event"] == FROM_ATTEMPTS and is_own
        stored = payloads.attempts.get(key) if of_attempt else payloads.steps.get(said["no"])
        seen |= {key} if of_attempt else set()
        yield number, _difference(f"the output of step {quoted(said['step'])}", stored, said["digest"])
    for no, fence in sorted(payloads.attempts.keys() - seen) if recorded else ():
        yield 0, f"step number {no} has a stored output for claim {fence} that the journal does not know"
    for no, checkpoint in sorted(payloads.checkpoints.keys() - reached):
        yield 0, f"step number {no} has a checkpoint {quoted(checkpoint)} that the journal does not know"


def _wrong_end(
    said: Mapping[str, Any], stream: str, end: object, stored: Mapping[tuple[int, int, str], Mapping[str, Any]]
) -> str | None:
    found = stored.get((said.get("no", -1), said.get("fence", 0), stream))
    what = f"the stream {quoted(stream)} of claim {said.get('fence')} of step {quoted(said.get('step'))}"
    if found is None:
        return f"{what} is not stored, but the journal has its end"
    return None if found == end else f"{what} is not stored as the journal says: {quoted(found)} and not {quoted(end)}"


def _difference(what: str, stored: bytes | None, digest: str) -> str | None:
    if stored is None:
        return f"{what} is not stored, but the journal has a digest of it"
    return None if sha256_of(stored) == digest else f"{what} does not have the digest that the journal has for it"


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
