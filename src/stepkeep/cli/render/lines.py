"""Views as lines of text: remarks on a run and its steps, a run as it stood, a step, what differs.

Pure: from views to text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stepkeep.cli.render.look import clock, moment, seconds_between, span, words
from stepkeep.edges.redaction import hide_secrets

if TYPE_CHECKING:
    from stepkeep.operations.definitions.versions import FieldDifference, LiveRuns, VersionDifferences
    from stepkeep.operations.runs.run_answers import AttemptDifferences, FieldOfBoth, RunDifferences


LONGEST_REMARK = 160
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
    return _waiting(step, now) if state.startswith("awaiting_") else shorten(progress(step) or decided(step))


def _waiting(step: Mapping[str, Any], now: datetime | None) -> str:
    if step["state"] == "awaiting_event" and step.get("kind") == "sleep":
        return f"sleeps until {clock_of(step['due_at'], now)}"
    if step["state"] == "awaiting_approval" and failure(step):
        return shorten(f"holds after {failure(step)}")
    until = f" until {clock_of(step['until'], now)}" if step["until"] else ""
    event = f"event {step['event']}" if step.get("event") else ""
    return shorten(f"{event}{until}".strip())


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


def shorten(text: str, most: int = LONGEST_REMARK) -> str:
    """The first line of a text, truncated."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


INDENT = "    "
LONGEST = 100
SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def version_lines(view: VersionDifferences) -> Iterator[str]:
    """What differs between two versions, and what it means for runs."""
    yield f"{view.from_.workflow}: version {view.from_.version} → {view.to.version}"
    if view.same:
        yield "nothing differs but the number of the version"
        return
    for one in view.workflow:
        yield from (f"~ {line}" for line in _differing(one))
    for step in view.steps:
        yield f"{SIGNS[step.change]} step {step.name}"
        for one in step.differences:
            yield from (f"{INDENT}{line}" for line in _differing(one))
    yield ""
    yield from view.consequences
    if view.live:
        yield from _live(view.live)


def _live(live: LiveRuns) -> Iterator[str]:
    least = "" if live.is_complete else "at least "
    said = f"{live.could_continue} could continue, {live.must_stay} must stay"
    yield f"live runs of the old version: {least}{live.examined}; {said}"
    for one in live.reasons:
        yield f"{INDENT}{one.runs} × {one.reason}"
    for stays in live.examples:
        yield f"{INDENT}{stays.run_id}: {stays.reasons[0]}"


def run_lines(view: RunDifferences) -> Iterator[str]:
    """What differs between two runs."""
    yield f"{view.first} → {view.second}"
    if view.same:
        yield "nothing differs but ids and times"
    for one in view.run:
        yield f"~ {_pair(one)}"
    for step in view.steps:
        if step.only_in is not None:
            yield f"{'-' if step.only_in == 'first' else '+'} step {step.name}"
            continue
        yield f"~ step {step.name}"
        for one in step.differences:
            yield f"{INDENT}{_pair(one)}"


def attempt_lines(view: AttemptDifferences) -> Iterator[str]:
    """What differs between two attempts of a step."""
    first, second = view.attempts
    yield f"step {view.step} of {view.run_id}: attempt {first} → attempt {second}"
    if view.same:
        yield "nothing differs but times"
    for one in view.differences:
        yield f"~ {_pair(one)}"
    code = {True: "the same code ran both", False: "other code ran", None: "which code ran is not known"}
    yield code[view.same_code]


def _differing(one: FieldDifference) -> Iterator[str]:
    return (f"{place.place}: {place.old} → {place.new}" for place in one.places)


def _pair(one: FieldOfBoth) -> str:
    return f"{one.field}: {_shown(one.first)} → {_shown(one.second)}"


def _shown(value: Any) -> str:
    said = json.dumps(hide_secrets(value), ensure_ascii=False)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def past_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """The whole of it."""
    run, entry = view["run"], view["at"]
    yield f"run {run['id']} ({run['workflow']} v{run['version']}): {words(run['state'])} since {clock(run['since'])}"
    yield f"after entry {entry['seq']} of {entry['last_seq']}, {entry['time']}: {entry['event']} by {entry['actor']}"
    if failure(run):
        yield failure(run)
    for step in view["steps"]:
        yield f"{INDENT}{step['name']}: {words(step['state'])} since {clock(step['since'])}{_particulars(step)}"
    for finding in view["findings"]:
        yield f"the journal is not sound here: line {finding['line']}: {finding['message']}"


def _particulars(step: Mapping[str, Any]) -> str:
    said = []
    if step["attempt"]:
        said.append(f"attempt {step['attempt']}")
    if step["holder"]:
        said.append(f"held by {step['holder']}")
    if step["due_at"]:
        said.append(f"due {clock(step['due_at'])}")
    if failure(step):
        said.append(failure(step))
    if step.get("output_unknown"):
        said.append(f"output unknown: {step['output_unknown']}")
    elif step["output"] is not None:
        said.append(f"output {json.dumps(hide_secrets(step['output']), ensure_ascii=False)}")
    return "".join(f", {one}" for one in said)


def step_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """The whole of it."""
    run, step = view["run"], view["step"]
    yield f"step {step['name']} of run {run['id']} ({run['workflow']} v{run['version']}): {words(step['state'])}"
    if failure(step):
        yield f"{INDENT}{failure(step)}"
    if skip(step):
        yield f"{INDENT}skipped because {skip(step)}"
    if step.get("adopted"):
        taken = step["adopted"]
        undo = "; a rollback of this run undoes it" if taken["undo"] else ""
        yield f"{INDENT}adopted from step {taken['step']} of run {taken['run']}{undo}"
    if step["worker"]:
        yield f"{INDENT}held by worker {step['worker']}"
    if progress(step):
        yield f"{INDENT}progress {progress(step)} ({clock(step['progress']['at'])})"
    if step["output"] is not None:
        yield f"{INDENT}output {json.dumps(step['output'], ensure_ascii=False)}"
    for attempt in step["history"]:
        yield from _attempt(attempt)


def _attempt(attempt: Mapping[str, Any]) -> Iterator[str]:
    took = span(seconds_between(attempt["started_at"], attempt["ended_at"]))
    where = f" at worker {attempt['worker']}" if attempt["worker"] else ""
    yield f"attempt {attempt['number']}: {words(attempt['state'])} {clock(attempt['ended_at'])} after {took}{where}"
    if failure(attempt):
        yield f"{INDENT}{failure(attempt)}"
    kept = attempt.get("evidence") or {}
    if "inputs" in kept:
        yield f"{INDENT}inputs {json.dumps(kept['inputs'], ensure_ascii=False)}"
    if "inputs_cut" in kept:
        yield f"{INDENT}inputs ({kept['inputs_bytes']:,} bytes) {kept['inputs_cut']}…"
    for line in kept.get("log", ()):
        yield f"{INDENT}log {line}"
    for line in str(kept.get("traceback", "")).splitlines():
        yield f"{INDENT}{line}"
