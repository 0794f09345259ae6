"""One step as text: its attempts with worker, error, inputs, traceback and log lines. Pure, from a view to lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.cli.render.look import words
from stepkeep.cli.render.remarks import failure, progress, skip
from stepkeep.cli.render.times import clock, seconds_between, span

INDENT = "    "


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
