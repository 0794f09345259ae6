"""Judges plain logs in seed 004's schema: severities, retry guards, assigned workers, and workstreams with their tasks.

Such logs have no chain, no closing line and no definition, so only what the lines themselves say is judged. Arrows,
order and invariants are checked by `replay.py`, which calls this for each line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepkeep.conformance.machines import Say
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.words.dialect_line import DialectLine

SEVERITIES: Mapping[tuple[str, str, str], tuple[str, ...]] = {
    ("step", "running", "retrying"): ("warning",),
    ("step", "running", "failed"): ("error",),
    ("step", "validating", "failed"): ("error",),
    ("run", "executing", "failed"): ("critical",),
    ("run", "validating", "failed"): ("error", "critical"),
    ("run", "ready", "failed"): ("error", "critical"),
    ("worker", "busy", "unresponsive"): ("error",),
    ("worker", "idle", "unresponsive"): ("error",),
    ("worker", "unresponsive", "shutdown"): ("info", "error"),
    ("worker", "initializing", "shutdown"): ("info", "error"),
}
"""The severity of each arrow (004, Transition Details); an arrow without a row is information."""

INFORMATION = ("info",)
BEGUN = frozenset({"validating", "retrying", "completed", "failed"})
SECOND = 1_000_000


class PlainTask:
    """What the lines have shown of one task."""

    def __init__(self, at: int) -> None:
        self.seen_at = at
        self.state: str | None = None
        self.retries = 0
        self.most: int | None = None
        self.worker: str | None = None
        self.stream: str | None = None


class PlainStory:
    """The tasks, workstreams and workers of one plain log."""

    def __init__(self) -> None:
        self.tasks: dict[str, PlainTask] = {}
        self.streams: dict[str, str] = {}
        self.workers: dict[str, str] = {}

    def take(self, line: DialectLine, say: Say) -> Mapping[str, Any]:
        """Check one line. Returns it with the worker and the workstream that the file implies, for the invariants."""
        self._check_severity(line, say)
        metadata = dict(line.raw["metadata"])
        if line.kind == "run":
            self._check_stream(line, say)
            self.streams[line.entity] = str(line.target)
        elif line.kind == "worker":
            named = metadata.pop("worker_id", line.entity)
            if named != line.entity:
                said = f"metadata.worker_id is {quoted(named)}, expected {quoted(line.entity)}: a worker's own line"
                say(Code.CONTRADICTION, said)
            self.workers[line.entity] = str(line.target)
        else:
            metadata = self._task(line, metadata, say)
        return {**line.raw, "metadata": metadata}

    def _check_severity(self, line: DialectLine, say: Say) -> None:
        allowed = SEVERITIES.get((line.kind, str(line.source), str(line.target)), INFORMATION)
        if line.raw["severity"] not in allowed:
            found, expected = quoted(line.raw["severity"]), " or ".join(allowed)
            arrow = f"{quoted(line.source)} → {quoted(line.target)}"
            say(Code.CONTRADICTION, f"severity is {found}, expected {expected}: that is what {arrow} is worth")

    # -- tasks -------------------------------------------------------------------------------------------------------
    def _task(self, line: DialectLine, metadata: dict[str, Any], say: Say) -> dict[str, Any]:
        task = self.tasks.setdefault(line.entity, PlainTask(line.at))
        named = metadata.get("workstream_id") or metadata.get("run_id")
        if named is None and len(self.streams) == 1:
            named = next(iter(self.streams))
        if named is not None:
            task.stream = metadata["workstream_id"] = str(named)
        if type(metadata.get("max_retries")) is int:
            task.most = metadata["max_retries"]
        self._check_retries(line, task, metadata, say)
        self._check_worker(line, task, metadata, say)
        self._check_duration(line, task, metadata, say)
        shown = self.streams.get(task.stream or "")
        if shown in ("planned", "ready") and line.target in BEGUN:
            said = f"task {quoted(line.entity)} is {quoted(line.target)} while its workstream is {quoted(shown)}"
            say(Code.CONTRADICTION, f"{said}: a task that started makes it 'executing'")
        if shown == "completed":
            say(Code.TERMINAL, f"task {quoted(line.entity)} moves although its workstream is completed")
        task.state = str(line.target)
        return metadata

    def _check_retries(self, line: DialectLine, task: PlainTask, metadata: Mapping[str, Any], say: Say) -> None:
        """The guards of `execution_failed`; the event that schedules a retry may count before or after it."""
        name, retrying = f"task {quoted(line.entity)}", line.target == "retrying"
        before = task.retries
        task.retries += retrying
        count = metadata.get("retry_count")
        allowed = (before, task.retries) if retrying else (task.retries,)
        if type(count) is int and line.source is not None and count not in allowed:
            expected = " or ".join(str(one) for one in sorted(set(allowed)))
            said = f"{name}: metadata.retry_count is {count}, expected {expected}"
            say(Code.ATTEMPT, f"{said}: this many retries are in this log")
            task.retries = count
        if task.most is None:
            return
        if retrying and before >= task.most:
            say(Code.ATTEMPT, f"{name} is retried after {before} of {task.most} retries: it must fail")
        failed = line.source == "running" and line.target == "failed"
        if failed and before < task.most and metadata.get("extension") is not True:
            say(Code.ATTEMPT, f"{name} fails after {before} of {task.most} retries: it must be retried")

    def _check_worker(self, line: DialectLine, task: PlainTask, metadata: dict[str, Any], say: Say) -> None:
        name = f"task {quoted(line.entity)}"
        worker = metadata.get("worker_id", metadata.get("worker"))
        if line.target == "running":
            task.worker = None if worker is None else str(worker)
            if worker is not None:
                metadata["worker"] = str(worker)
            return
        metadata.pop("worker_id", None)
        if worker is None:
            return
        if line.source not in ("running", "validating"):
            said = f"{name} is {quoted(line.target)} and has metadata.worker_id {quoted(worker)}"
            say(Code.CONTRADICTION, f"{said}: only running tasks have workers")
        elif task.worker not in (None, worker):
            said = f"{name}: metadata.worker_id is {quoted(worker)}, expected {quoted(task.worker)}"
            say(Code.CONTRADICTION, f"{said}: that worker started it")

    def _check_duration(self, line: DialectLine, task: PlainTask, metadata: Mapping[str, Any], say: Say) -> None:
        lasted = metadata.get("duration_seconds")
        elapsed = line.at - task.seen_at
        if lasted is not None and task.state is not None and lasted * SECOND > elapsed + SECOND:
            said = f"metadata.duration_seconds is {lasted}, but this log knows the task for {elapsed / SECOND} s"
            say(Code.OUTCOME, f"task {quoted(line.entity)}: {said}")

    # -- workstreams -------------------------------------------------------------------------------------------------
    def _check_stream(self, line: DialectLine, say: Say) -> None:
        alone = len(self.streams) == 0 or set(self.streams) == {line.entity}
        own = [task for task in self.tasks.values() if task.stream == line.entity or (alone and task.stream is None)]
        if not own:
            return
        states = {task.state for task in own}
        others, has_started = states - {"completed"}, not states <= {"pending", "queued"}
        done = (bool(others), f"a task is {quoted(min(map(str, others), default=''))}")
        wrong, why = {
            "validating": done,
            "completed": done,
            "failed": (line.source == "executing" and "failed" not in states, "no task failed"),
            "executing": (not has_started, "no task started"),
            "ready": (has_started, "a task started before"),
        }.get(str(line.target), (False, ""))
        if wrong:
            say(Code.CONTRADICTION, f"workstream {quoted(line.entity)} is {quoted(line.target)}, but {why}")
