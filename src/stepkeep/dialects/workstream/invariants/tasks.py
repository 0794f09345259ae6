"""The six invariants of a task, in the seed's own order. Each creates a checker that follows every task of a log."""

from __future__ import annotations

from datetime import datetime

from stepkeep.dialects.dialect import Line, Say
from stepkeep.dialects.workstream.invariants.lines import TASK, Feed, about, is_sealed, stream_of
from stepkeep.dialects.workstream.planning import TASK_ENDED

MOMENTS = {"running": "started_at", **dict.fromkeys(TASK_ENDED, "completed_at")}
"""The time field that a task sets when it enters a state."""


def single_active_state(say: Say) -> Feed:
    """1. A task leaves the one state it is in, and is in another one afterwards."""
    states: dict[str, str] = {}

    def feed(line: Line) -> None:
        if line["event_type"] != TASK:
            return
        task, source, target = line["entity_id"], line["from_state"], line["to_state"]
        if task in states and source != states[task]:
            say(f"{task} leaves {source}, but is {states[task]}")
        if task not in states and source is not None and is_sealed(line):
            say(f"{task} leaves {source}, but was never created")
        if source == target:
            say(f"{task} enters {target}, where it is already")
        states[task] = target

    return feed


def monotonic_progress(say: Say) -> Feed:
    """2. Nothing follows an end."""
    ended: dict[str, str] = {}

    def feed(line: Line) -> None:
        if line["event_type"] != TASK:
            return
        task = line["entity_id"]
        before = ended.get(task) or (line["from_state"] if line["from_state"] in TASK_ENDED else None)
        if before is not None:
            say(f"{task} has ended {before} and goes on to {line['to_state']}")
        if line["to_state"] in TASK_ENDED:
            ended[task] = line["to_state"]

    return feed


def worker_assignment(say: Say) -> Feed:
    """3. A running task has a worker, and no other task has one."""

    def feed(line: Line) -> None:
        if line["event_type"] != TASK:
            return
        worker = about(line).get("worker")
        if line["to_state"] != "running" and worker is not None:
            say(f"{line['entity_id']} is {line['to_state']} and assigned to {worker}")
        if line["to_state"] == "running" and not worker and is_sealed(line):
            say(f"{line['entity_id']} is running and assigned to no worker")

    return feed


def retry_limit(say: Say) -> Feed:
    """4. `retry_count` stays within `max_retries`, which the first line gives as all attempts, the first included."""
    limits: dict[str, int] = {}

    def feed(line: Line) -> None:
        if line["event_type"] != TASK:
            return
        task, said = line["entity_id"], about(line)
        if "max_attempts" in said:
            limits[task] = said["max_attempts"] - 1
        elif "max_retries" in said:
            limits[task] = said["max_retries"]
        count, most = said.get("retry_count", 0), limits.get(task)
        if most is not None and count > most:
            say(f"{task} has retry_count {count}, more than its max_retries {most}")

    return feed


def timestamp_ordering(say: Say) -> Feed:
    """5. `created_at` ≤ `started_at` ≤ `completed_at`."""
    last: dict[str, tuple[str, datetime]] = {}

    def feed(line: Line) -> None:
        if line["event_type"] != TASK:
            return
        task, at = line["entity_id"], datetime.fromisoformat(line["timestamp"])
        moment = "created_at" if line["from_state"] is None else MOMENTS.get(line["to_state"])
        if moment is None:
            return
        if task in last and at < last[task][1]:
            say(f"{task} has a {moment} before its {last[task][0]}")
        last[task] = (moment, at)

    return feed


def dependency_satisfaction(say: Say) -> Feed:
    """6. A task is queued when all its dependencies are completed."""
    states: dict[tuple[str | None, str], str] = {}
    needs: dict[tuple[str | None, str], list[str]] = {}

    def feed(line: Line) -> None:
        if line["event_type"] != TASK:
            return
        said, stream = about(line), stream_of(line)
        task = said.get("step") or line["entity_id"]
        needs[stream, task] = said.get("depends_on") or said.get("dependencies") or needs.get((stream, task), [])
        states[stream, task] = line["to_state"]
        if line["to_state"] == "queued":
            for other in needs[stream, task]:
                if states.get((stream, other)) != "completed":
                    now = states.get((stream, other), "unheard of")
                    say(f"{task} is queued, but {other}, which it depends on, is {now}")

    return feed
