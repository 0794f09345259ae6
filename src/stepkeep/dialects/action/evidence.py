"""Evidence (section 5): an entry for every attempt, decision and terminal transition, chained by hashes.

Entries have the shape of EvidenceEntryV1; further data that the seed asks for (attempt, times, outcome, error class,
correlation) is in their payload. They derive from the journal, which is the record. The chain lets a recipient check
that no entry was changed, dropped or reordered. `words` calls it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stepkeep.dialects.action.compensation import compensation_summary, not_compensable
from stepkeep.dialects.action.shapes import (
    ENDINGS,
    OUTCOMES,
    Shape,
    action_of,
    error_shape,
    filled,
    iso,
    key_of,
    operation_of,
    person_of,
    written_steps,
)

SYSTEM = {"kind": "System"}
MACHINE = {"kind": "Machine"}


class Draft(NamedTuple):
    """An entry before it has a number and a hash; drafts sort by the time of what they record."""

    at: str
    rank: int
    place: int
    category: str
    summary: str
    actor: Shape
    payload: Shape


def evidence_of(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[Shape]:
    """All evidence of a run, oldest first."""
    run = canonical["run"]
    workspace = canonical["definition"].get("about", {}).get("workspaceId")
    drafts = [*_attempts(canonical), *_decisions(canonical), *_endings(canonical, lines), *_hooks(canonical)]
    drafts += _run_ending(canonical, lines)
    entries: list[Shape] = []
    for number, draft in enumerate(sorted(drafts, key=lambda each: each[:3]), start=1):
        entry = filled(
            {
                "schemaVersion": 1,
                "evidenceId": f"{run['id']}/{number}",
                "workspaceId": workspace,
                "occurredAtIso": draft.at,
                "category": draft.category,
                "summary": draft.summary,
                "actor": draft.actor,
                "links": {"runId": run["id"]},
                "payload": draft.payload,
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
def _attempts(canonical: Mapping[str, Any]) -> Iterator[Draft]:
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
                }
            )
            summary = f"Attempt {attempt['number']} of {what}: {outcome}"
            yield Draft(attempt["ended_at"], 1, place, "Action", summary, MACHINE, payload)


def _decisions(canonical: Mapping[str, Any]) -> Iterator[Draft]:
    """Decisions of people: approvals of held actions, and manual completion signals."""
    run = canonical["run"]
    for place, step in enumerate(canonical["steps"]):
        record = step["record"]
        if record is None:
            continue
        said = record.get("decision") or record.get("outcome")
        person = person_of(record)
        actor = {"kind": "User", "userId": person} if person is not None else SYSTEM
        manual = "outcome" in record
        payload = _about(run, step, "manualCompletion" if manual else "approval") | filled(
            {
                "attempt": step["attempts"],
                "startedAtIso": step["started_at"],
                "endedAtIso": iso(record["at"]),
                "outcome": said,
                "notes": record.get("notes") or record.get("comment") or None,
                "evidenceRefs": record.get("evidence"),
                "claim": record.get("claim"),
            }
        )
        what = "Manual completion" if manual else "Approval"
        category = "Action" if manual else "Approval"
        yield Draft(iso(record["at"]), 2, place, category, f"{what} of {step['name']}: {said}", actor, payload)


def _endings(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[Draft]:
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
        yield Draft(
            line["timestamp"], 3, place, "Action", f"Action {step['name']}: {line['to_state']}", SYSTEM, payload
        )


def _hooks(canonical: Mapping[str, Any]) -> Iterator[Draft]:
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
        yield Draft(
            step["ended_at"], 3, place, "Action", f"Compensation of {action_of(step)}: {outcome}", SYSTEM, payload
        )


def _run_ending(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[Draft]:
    """The end of the run, with its compensation summary; before it, every effect that could not be undone."""
    run = canonical["run"]
    steps = {step["name"]: (place, step) for place, step in enumerate(canonical["steps"])}
    for line in lines:
        if line["event_type"] != "run_state_transition" or line["to_state"] not in ENDINGS:
            continue
        at = line["timestamp"]
        for name in not_compensable(canonical, lines):
            place, step = steps[name]
            payload = _about(run, step, "notCompensable") | {"endedAtIso": at, "outcome": "NotCompensable"}
            yield Draft(at, 4, place, "Action", f"Action {name} cannot be compensated", SYSTEM, payload)
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
        yield Draft(at, 5, len(steps), "System", f"Run {line['to_state']}", SYSTEM, payload)


def _about(run: Mapping[str, Any], step: Mapping[str, Any], kind: str) -> Shape:
    return {
        "kind": kind,
        "runId": run["id"],
        "actionId": action_of(step),
        "correlationId": run["correlation_id"],
        "idempotencyKey": key_of(run["id"], step),
    }
