"""A run in the shapes of seed 001: the responses of its service, and the events it writes.

Made from the canonical view and the run's log in this dialect; it reads nothing else and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict

from stepkeep.dialects.dialect import LogLine, NoEvents

View = Mapping[str, Any]


class RunHead(TypedDict):
    id: str
    status: str | None


class StepBody(TypedDict):
    id: str
    name: str
    status: str | None


class StepCost(StepBody):
    cost_usd: float


class StepsBody(TypedDict):
    """The body of `/steps`."""

    run_id: str
    steps: list[StepBody]


class CostBody(TypedDict):
    """The body of `/cost`."""

    run_id: str
    total_cost_usd: float
    steps: list[StepCost]


class EventBody(TypedDict):
    """An event of the seed's service."""

    id: str
    seq: int
    run_id: str
    step_id: str | None
    type: str
    payload: Mapping[str, Any]
    created_at: str


class RunBody(RunHead):
    """`GET /runs/{id}`, and the bodies of its parts under their names."""

    steps: StepsBody
    cost: CostBody
    events: list[EventBody]


class RunWords(NoEvents):
    """`GET /runs/{id}` at the top; the bodies of `/steps`, `/cost` and `/events` under their names."""

    def run(self, canonical: View, lines: Sequence[LogLine]) -> RunBody:
        run_id = canonical["run"]["id"]
        shown = {line["entity_id"]: line["to_state"] for line in lines}
        labels = _labels(canonical)
        main = [step for step in canonical["steps"] if step["phase"] == "main"]
        steps: list[StepBody] = [
            {
                "id": f"{run_id}/{step['name']}",
                "name": labels.get(step["name"], step["name"]),
                "status": shown.get(f"{run_id}/{step['name']}"),
            }
            for step in main
        ]
        costs: list[StepCost] = [{**row, "cost_usd": _usd(step["cost"])} for row, step in zip(steps, main, strict=True)]
        return {
            "id": run_id,
            "status": shown.get(run_id),
            "steps": {"run_id": run_id, "steps": steps},
            "cost": {"run_id": run_id, "total_cost_usd": _usd(canonical["run"]["cost"]), "steps": costs},
            "events": list(_events(canonical, labels, lines)),
        }

    def summary(self, canonical_run: View, shown_state: str) -> RunHead:
        return {"id": canonical_run["id"], "status": shown_state}


WORDS = RunWords()


def _labels(canonical: View) -> dict[str, str]:
    """The template's name of each step; a plan of another format uses its own step names."""
    definition = canonical["definition"]
    if definition["dialect"] != "run":
        return {}
    return {
        step["name"]: "APPROVAL" if step.get("approval") is not None else step["executor"]["name"]
        for step in definition["steps"]
    }


def _events(canonical: View, labels: Mapping[str, str], lines: Sequence[LogLine]) -> Iterator[EventBody]:
    limits = {step["name"]: step["retry"]["max_attempts"] for step in canonical["definition"]["steps"]}
    costs = {step["name"]: _usd(step["cost"]) for step in canonical["steps"]}
    number = 0
    for line in lines:
        for kind, payload in _line_events(line, labels, limits, costs):
            number += 1
            metadata = line["metadata"]
            yield {
                "id": f"{metadata['run_id']}:{number}",
                "seq": number,
                "run_id": metadata["run_id"],
                "step_id": line["entity_id"] if "step" in metadata and kind.startswith("STEP_") else None,
                "type": kind,
                "payload": payload,
                "created_at": line["timestamp"],
            }


def _line_events(
    line: LogLine, labels: Mapping[str, str], limits: Mapping[str, int], costs: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of one line. The seed's service has none for a run that is created, succeeds or fails."""
    metadata, before, after = line["metadata"], line["from_state"], line["to_state"]
    name = metadata.get("step")
    if name is None:
        if after == "CANCELED":
            yield "RUN_CANCELED", {"reason": "user_request", "canceled_by": metadata["actor"]}
        return
    said: dict[str, Any] = {"status": after, "step": labels.get(name, name)}
    tries = {"attempt": metadata.get("attempt"), "max_attempts": limits.get(name)}
    if metadata["because"] == "claimed":
        yield (
            "STEP_CLAIMED",
            said
            | {
                "reclaimed": before == "RUNNING",
                "previous": before,
                "api_key_id": metadata["tenant"],
                "claimed_at": line["timestamp"],
            },
        )
    elif after == "WAITING_APPROVAL":
        yield "STEP_WAITING_APPROVAL", said
    elif after == "SUCCEEDED" and before == "WAITING_APPROVAL":
        yield "STEP_APPROVED", said
        yield "RUN_APPROVED", {"approved_by": metadata["actor"]}
    elif after == "SUCCEEDED":
        yield "STEP_SUCCEEDED", said | {"cost": costs.get(name, 0.0)}
    elif metadata["because"] == "retry_scheduled":
        due = {"next_run_at": _instant(metadata.get("due_at"))}
        yield "STEP_FAILED_RETRY", said | {"error": metadata.get("error")} | tries | due
    elif after == "FAILED":
        yield "STEP_FAILED", said | {"error": metadata.get("error")} | tries


def _usd(cost: Mapping[str, float]) -> float:
    """Money with six decimals, as the service stores it."""
    return round(cost.get("usd", 0.0), 6)


def _instant(micros: int | None) -> str | None:
    if micros is None:
        return None
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
