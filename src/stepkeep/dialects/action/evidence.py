"""Evidence (section 5): an entry for every attempt, decision and terminal transition, chained by hashes.

Entries have the shape of EvidenceEntryV1; further data that the seed asks for (attempt, times, outcome, error class,
correlation) is in their payload. They come in journal order and hold only what is final once their journal entry is
written, so that later views only append. Each names its journal entry and that entry's hash: the chain is the
journal's. `words` calls it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stepkeep.dialects.action.shapes import (
    ENDINGS,
    OUTCOMES,
    Shape,
    action_of,
    completion_order,
    error_shape,
    filled,
    key_of,
    operation_of,
    written_steps,
)
from stepkeep.dialects.action.signal import plan_id, plan_of
from stepkeep.kernel.machine.states import STEP_TERMINAL

SYSTEM = {"kind": "System"}
MACHINE = {"kind": "Machine"}


TRIED = ("running", "validating")
DECIDED = {"awaiting_approval": ("approval", "Approval"), "awaiting_completion": ("manualCompletion", "Action")}
"""States that people end, with the kind and the category of the evidence of that."""

DECIDING = ("gate_decided", "changes_requested", "completion_signalled", "time_came")
VIOLATED = "duty_violated"
"""The event of a journal entry that records a refused act and changes nothing."""

EXPIRED = "expired"
"""The outcome where a deadline passed without a decision."""


class DraftEntry(NamedTuple):
    """An entry before it has a number and a hash; drafts sort by the journal entry that records them."""

    seq: int
    rank: int
    place: int
    category: str
    summary: str
    actor: Shape
    payload: Shape


class EvidenceJournal:
    """The canonical lines of a run: where attempts and hooks ended, and the time and hash of each journal entry."""

    def __init__(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.lines = lines
        self.at: dict[int, str] = {}
        self.hashes: dict[int, str] = {}
        self.details: dict[tuple[int, int], Mapping[str, Any]] = {}
        self._tried: dict[tuple[str, int], int] = {}
        self._entered: dict[tuple[str, str], int] = {}
        self._digests: dict[tuple[str, int], str] = {}
        for line in lines:
            facts, seq = line["metadata"], line["metadata"]["seq"]
            self.at[seq] = line["timestamp"]
            if "detail" in facts:
                self.details[seq, facts["cause"]] = facts["detail"]
            if "hash" in facts:
                self.hashes[seq] = facts["hash"]
            if "step" in facts:
                self._entered[facts["step"], line["to_state"]] = seq
                if line["from_state"] in TRIED and line["trigger"] != "claimed" and "fence" in facts:
                    self._tried.setdefault((facts["step"], facts["fence"]), seq)
                    if facts.get("digest") is not None:
                        self._digests.setdefault((facts["step"], facts["fence"]), facts["digest"])

    def end_of_attempt(self, step: str, fence: int) -> int:
        return self._tried[step, fence]

    def digest_of(self, step: str, fence: int) -> str | None:
        """The SHA-256 of the output of an attempt, as the journal has it."""
        return self._digests.get((step, fence))

    def entered(self, step: str, state: str) -> int:
        return self._entered[step, state]


def may_be_evidence(line: Mapping[str, Any]) -> bool:
    """Whether a canonical line ends an attempt, a wait for people, or a compensation hook, or violates a duty."""
    ends = line["from_state"] in TRIED or line["from_state"] in DECIDED or line["to_state"] in STEP_TERMINAL
    return ("step" in line["metadata"] and ends) or line["metadata"]["event"] == VIOLATED


def is_ending(line: Mapping[str, Any]) -> bool:
    """Whether a line of the dialect ends an action or the run."""
    return line["to_state"] in ENDINGS


def evidence_of(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[Shape]:
    """All evidence of a run, in journal order."""
    run, journal = canonical["run"], EvidenceJournal(canonical["journal"])
    workspace = canonical["definition"].get("about", {}).get("workspaceId")
    drafts = [*_attempts(canonical, journal), *_decisions(canonical, journal), *_endings(canonical, lines)]
    drafts += [*_hooks(canonical, journal), *_run_ending(canonical, lines), *_violations(canonical, journal)]
    entries: list[Shape] = []
    for number, draft in enumerate(sorted(drafts, key=lambda each: each[:3]), start=1):
        entry = filled(
            {
                "schemaVersion": 1,
                "evidenceId": f"{run['id']}/{number}",
                "workspaceId": workspace,
                "occurredAtIso": journal.at[draft.seq],
                "category": draft.category,
                "summary": draft.summary,
                "actor": draft.actor,
                "links": {"runId": run["id"]},
                "payload": draft.payload | {"journal": {"seq": draft.seq, "hashSha256": journal.hashes[draft.seq]}},
                "previousHash": entries[-1]["hashSha256"] if entries else None,
            }
        )
        entries.append(entry | {"hashSha256": hash_of(entry)})
    return entries


def hash_of(entry: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of an entry (RFC 8785), without its hash and signature."""
    bare = {key: value for key, value in entry.items() if key not in ("hashSha256", "signatureBase64")}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def verify_evidence(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The defects of a chain: `hash_mismatch`, `chain_break` and `timestamp_not_monotonic`, each with its index."""
    found = []
    before: Mapping[str, Any] | None = None
    for place, entry in enumerate(entries):
        if entry.get("hashSha256") != hash_of(entry):
            found.append(f"hash_mismatch at {place}")
        if entry.get("previousHash") != (before.get("hashSha256") if before else None):
            found.append(f"chain_break at {place}")
        if before is not None and entry["occurredAtIso"] < before["occurredAtIso"]:
            found.append(f"timestamp_not_monotonic at {place}")
        before = entry
    return found


# -- what happened ---------------------------------------------------------------------------------------------------
def _attempts(canonical: Mapping[str, Any], journal: EvidenceJournal) -> Iterator[DraftEntry]:
    run, written = canonical["run"], written_steps(canonical)
    for place, step in enumerate(canonical["steps"]):
        undo = step["phase"] == "undo"
        for attempt in step["history"]:
            outcome = OUTCOMES.get(attempt["state"], attempt["state"])
            error = error_shape(attempt["category"], attempt["error"], lost=attempt["state"] == "lost")
            what = f"compensation of {action_of(step)}" if undo else step["name"]
            payload = _about(run, step, "compensationAttempt" if undo else "attempt") | filled(
                {
                    "operation": operation_of(written.get(action_of(step), {}), undo=undo),
                    "attempt": attempt["number"],
                    "startedAtIso": attempt["started_at"],
                    "endedAtIso": attempt["ended_at"],
                    "outcome": outcome,
                    "error": error,
                    "payloadRefs": _output_of(run, step, journal.digest_of(step["name"], attempt["fence"])),
                }
            )
            summary = f"Attempt {attempt['number']} of {what}: {outcome}"
            seq = journal.end_of_attempt(step["name"], attempt["fence"])
            yield DraftEntry(seq, 1, place, "Action", summary, MACHINE, payload)


def _output_of(run: Mapping[str, Any], step: Mapping[str, Any], digest: str | None) -> list[Shape] | None:
    """The reference to an output: where it is found, and the digest that the journal has of it."""
    if digest is None:
        return None
    uri = f"stepkeep:runs/{run['id']}/steps/{step['name']}/output"
    return [{"kind": "Artifact", "uri": uri, "contentType": "application/json", "sha256": digest}]


def _decisions(canonical: Mapping[str, Any], journal: EvidenceJournal) -> Iterator[DraftEntry]:
    """Decisions of people, and deadlines that passed without one: of held actions, and of manual completions."""
    steps = {step["name"]: (place, step) for place, step in enumerate(canonical["steps"])}
    signed = plan_of(canonical)["digestSha256"]
    for line in journal.lines:
        facts = line["metadata"]
        if line["from_state"] not in DECIDED or facts["event"] not in DECIDING or "step" not in facts:
            continue
        place, step = steps[facts["step"]]
        detail = journal.details.get((facts["seq"], facts["cause"]), {})
        said = detail.get("decision") or detail.get("outcome")
        if facts["event"] == "changes_requested":
            said = facts["event"]
        if said is None and line["to_state"] in ("cancelled", line["from_state"]):
            continue  # the run timed out, or time reminded or escalated; nothing was decided about this step
        kind, category = DECIDED[line["from_state"]]
        record = step["record"] if kind == "manualCompletion" and "outcome" in (step["record"] or {}) else {}
        payload = _about(canonical["run"], step, kind) | filled(
            {
                "attempt": facts.get("attempt", 0),
                "startedAtIso": step["started_at"],
                "endedAtIso": line["timestamp"],
                "outcome": said or EXPIRED,
                "planId": plan_id(canonical["run"]["id"]) if kind == "approval" else None,
                "planDigestSha256": signed if kind == "approval" else None,
                "notes": record.get("notes") or detail.get("comment"),
                "evidenceRefs": record.get("evidence"),
                "claim": record.get("claim"),
            }
        )
        what = "Manual completion" if kind == "manualCompletion" else "Approval"
        actor = SYSTEM if said is None else {"kind": "User", "userId": facts["actor"]}
        yield DraftEntry(
            facts["seq"], 2, place, category, f"{what} of {step['name']}: {said or EXPIRED}", actor, payload
        )


def _violations(canonical: Mapping[str, Any], journal: EvidenceJournal) -> Iterator[DraftEntry]:
    """Acts that were refused because the duties of their person rule them out."""
    steps = {step["name"]: (place, step) for place, step in enumerate(canonical["steps"])}
    for line in journal.lines:
        facts = line["metadata"]
        if facts["event"] != VIOLATED:
            continue
        detail = journal.details.get((facts["seq"], facts["cause"]), {})
        place, step = steps[detail["step"]]
        payload = _about(canonical["run"], step, "violation") | {"rule": detail["rule"], "reason": detail["reason"]}
        actor = {"kind": "User", "userId": facts["actor"]}
        said = f"Refused at {step['name']}: {detail['rule']}"
        yield DraftEntry(facts["seq"], 2, place, "PolicyViolation", said, actor, payload)


def _endings(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[DraftEntry]:
    """The terminal transition of every action."""
    run = canonical["run"]
    steps = {step["name"]: (place, step) for place, step in enumerate(canonical["steps"])}
    for line in lines:
        if line["event_type"] != "action_state_transition" or line["to_state"] not in ENDINGS:
            continue
        facts = line["metadata"]
        place, step = steps[facts["step"]]
        payload = _about(run, step, "transition") | filled(
            {
                "attempt": facts.get("attempt", 0),
                "startedAtIso": step["started_at"],
                "endedAtIso": line["timestamp"],
                "outcome": line["to_state"],
                "from": line["from_state"],
                "because": facts.get("because"),
                "error": error_shape(facts.get("category"), facts.get("error")),
            }
        )
        summary = f"Action {step['name']}: {line['to_state']}"
        yield DraftEntry(facts["seq"], 3, place, "Action", summary, SYSTEM, payload)


def _hooks(canonical: Mapping[str, Any], journal: EvidenceJournal) -> Iterator[DraftEntry]:
    """The terminal transition of every compensation hook."""
    run = canonical["run"]
    for place, step in enumerate(canonical["steps"]):
        if step["phase"] != "undo" or step["ended_at"] is None:
            continue
        outcome = OUTCOMES.get(step["state"], step["state"])
        payload = _about(run, step, "compensation") | filled(
            {
                "attempt": step["attempts"],
                "startedAtIso": step["started_at"],
                "endedAtIso": step["ended_at"],
                "outcome": outcome,
                "error": error_shape(step["category"], step["error"]),
            }
        )
        seq, summary = journal.entered(step["name"], step["state"]), f"Compensation of {action_of(step)}: {outcome}"
        yield DraftEntry(seq, 3, place, "Action", summary, SYSTEM, payload)


def _run_ending(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[DraftEntry]:
    """The end of the run, with its compensation summary; before it, every effect that could not be undone."""
    run = canonical["run"]
    steps = {step["name"]: (place, step) for place, step in enumerate(canonical["steps"])}
    for line in lines:
        if line["event_type"] != "run_state_transition" or line["to_state"] not in ENDINGS:
            continue
        at, seq = line["timestamp"], line["metadata"]["seq"]
        for name in not_compensable(canonical, lines):
            place, step = steps[name]
            payload = _about(run, step, "notCompensable") | {"endedAtIso": at, "outcome": "NotCompensable"}
            yield DraftEntry(seq, 4, place, "Action", f"Action {name} cannot be compensated", SYSTEM, payload)
        payload = filled(
            {
                "kind": "run",
                "runId": run["id"],
                "correlationId": run["correlation_id"],
                "startedAtIso": run["started_at"],
                "endedAtIso": at,
                "outcome": line["to_state"],
                "error": error_shape(run["category"], run["error"]),
                "compensation": compensation_summary(canonical, lines),
            }
        )
        yield DraftEntry(seq, 5, len(steps), "System", f"Run {line['to_state']}", SYSTEM, payload)


def _about(run: Mapping[str, Any], step: Mapping[str, Any], kind: str) -> Shape:
    return {
        "kind": kind,
        "runId": run["id"],
        "actionId": action_of(step),
        "correlationId": run["correlation_id"],
        "idempotencyKey": key_of(run["id"], step),
    }


# -- compensation --------------------------------------------------------------------------------------------------
STATES = {"succeeded": "Succeeded", "failed": "Failed", "cancelled": "Cancelled", "skipped": "Cancelled"}


def compensation_summary(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Shape | None:
    """The result for the run's side effects; None while there is nothing to report."""
    run, written = canonical["run"], written_steps(canonical)
    hooks = {action_of(step): step for step in canonical["steps"] if step["phase"] == "undo"}
    backwards = {name: place for place, name in enumerate(completion_order(lines)[::-1])}
    stays = not_compensable(canonical, lines)
    if not hooks and not stays:
        return None
    ordered = sorted(hooks, key=lambda name: backwards.get(name, len(backwards)))
    entries = [_entry(run["id"], written[name], hooks[name]) for name in ordered]
    return {
        "status": _status(run, entries, stays),
        "actions": entries,
        "notCompensable": stays,
    }


def not_compensable(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Actions of a failed run whose side effect happened and has no hook, last completed first."""
    if canonical["run"]["state"] not in ("failed", "rolled_back", "compensating"):
        return []
    hookless = {
        step["name"]
        for step in canonical["definition"]["steps"]
        if step.get("effect", "read") != "read" and step.get("undo") is None
    }
    return [name for name in completion_order(lines)[::-1] if name in hookless]


def _status(run: Mapping[str, Any], entries: Sequence[Shape], stays: Sequence[str]) -> str:
    """An effect that is left without an entry, such as one in doubt, makes the run's own rollback partial."""
    outcomes = {entry["outcome"] for entry in entries}
    if not outcomes <= set(STATES.values()):
        return "running"
    is_whole = outcomes <= {"Succeeded"} and not stays and run["rollback"] != "partial"
    return "complete" if is_whole else "partial"


def _entry(run_id: str, written: Mapping[str, Any], step: Mapping[str, Any]) -> Shape:
    waits = "Pending" if step["state"] in ("pending", "ready") else "Running"
    return filled(
        {
            "actionId": action_of(step),
            "compensationOperation": operation_of(written, undo=True),
            "idempotencyKey": key_of(run_id, step),
            "outcome": STATES.get(step["state"], waits),
            "attempts": step["attempts"],
            "startedAtIso": step["started_at"],
            "endedAtIso": step["ended_at"],
            "error": error_shape(step["category"], step["error"]),
        }
    )
