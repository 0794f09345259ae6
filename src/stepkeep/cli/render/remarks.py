"""Remarks about a step beside its state: its error, decision, wait, or next attempt.

Pure: from a step's view (and the time, for countdowns) to a short text. The graph, the timeline and the live progress
use the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from stepkeep.cli.render.times import clock, moment, seconds_between, span

LONGEST = 160
NEVER_ACTIVE = frozenset({"pending", "ready", "succeeded", "failed", "skipped", "cancelled"})


def remark(step: Mapping[str, Any], now: datetime | None = None) -> str:
    """The most useful remark about a step; empty if its state is enough."""
    state = str(step["state"])
    if step.get("adopted"):
        return f"adopted from run {step['adopted']['run']}"
    if state == "skipped" and (step.get("record") or {}).get("decision") == "skipped":
        return shorten(f"{decided(step)} after {failure(step)}")
    if state in {"failed", "skipped"}:
        return shorten(failure(step) or skip(step))
    if step.get("case"):
        return f"took {step['case']}"
    if state == "retrying":
        due = in_time(step["due_at"], now)
        return shorten(f"again {due} after {failure(step)}" if failure(step) else f"again {due}")
    if state == "awaiting_event" and step.get("kind") == "sleep":
        return f"sleeps until {clock_of(step['due_at'], now)}"
    if state == "awaiting_approval" and failure(step):
        return shorten(f"holds after {failure(step)}")
    if state.startswith("awaiting_"):
        until = f" until {clock_of(step['until'], now)}" if step["until"] else ""
        event = f"event {step['event']}" if step.get("event") else ""
        return shorten(f"{event}{until}".strip())
    return shorten(progress(step) or decided(step))


def progress(step: Mapping[str, Any]) -> str:
    """How far the handler of a running step is: `40 % page 12`."""
    from stepkeep.operations.runs.progress import progress_words

    return progress_words(step.get("progress"))


def failure(step: Mapping[str, Any]) -> str:
    """`category: error`, as far as there are any."""
    parts = [str(step[key]) for key in ("category", "error") if step[key]]
    return ": ".join(parts)


def skip(step: Mapping[str, Any]) -> str:
    """Why a step was skipped."""
    return str(step["skipped"]["text"]) if step["skipped"] else ""


def decided(step: Mapping[str, Any]) -> str:
    """What settled a step, and how: `approved by ada: looks fine`, `event paid`."""
    record = step.get("record")
    if not record:
        return ""
    if "message" in record:
        return f"event {record['message']['name']}"
    if not record.get("by"):
        return ""
    verdict = str(record.get("decision") or f"completed as {record.get('outcome')}")
    words = record.get("comment") or record.get("reason") or record.get("notes") or ""
    return f"{verdict} by {record.get('by')}" + (f": {words}" if words else "")


def tries(step: Mapping[str, Any]) -> str:
    """The number of attempts, if it was more than one."""
    attempts, losses = int(step["attempts"]), int(step.get("losses") or 0)
    said = f"{attempts} attempts" if attempts > 1 else ""
    return f"{said}, {losses} lost" if said and losses else said


def began(step: Mapping[str, Any]) -> bool:
    """Whether the step ever began or waited; a step that was only cancelled did not."""
    return any(entered["state"] not in NEVER_ACTIVE for entered in step["states"])


def took(step: Mapping[str, Any]) -> str:
    return "" if not began(step) else span(seconds_between(step["started_at"], step["ended_at"]))


def in_time(text: str | None, now: datetime | None) -> str:
    """`in 3.2s`, or the time of day if the current time is unknown."""
    due = moment(text)
    if due is None:
        return "soon"
    if now is None:
        return f"at {clock_of(text, now)}"
    left = (due - now).total_seconds()
    return f"in {span(left)}" if left > 0 else "now"


def clock_of(text: str | None, now: datetime | None = None) -> str:
    """The time of day, with the date unless it is today."""
    if text is None:
        return ""
    if now is None or text[:10] == now.astimezone(UTC).date().isoformat():
        return f"{text[11:19]}Z"
    return clock(text)


def shorten(text: str, most: int = LONGEST) -> str:
    """The first line of a text, truncated."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
