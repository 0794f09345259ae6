"""The four invariants of a workstream: functions of a line and of all lines before it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from stepkeep.dialects.dialect import Line, Say
from stepkeep.dialects.workstream.invariants.lines import (
    HEAD,
    STREAM,
    TASK,
    Feed,
    about,
    is_critical,
    is_sealed,
    stream_of,
)
from stepkeep.dialects.workstream.planning import (
    IN_FLIGHT,
    TASK_ENDED,
    WORKSTREAM_ENDED,
    TaskView,
    agrees,
    derive_workstream_state,
)

AFTER_A_PAUSE = {
    "unpause_requested": ("validating", "failed"),
    "cancel_requested": ("cancelled",),
    "time_came": ("failed",),
}
"""The events that end a pause, with what they make of a workstream whose tasks have ended."""


class Stream:
    """What the lines have shown of one workstream."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.began_early = False
        self.tasks: dict[str, TaskView] = {}
        self.kinds: Counter[TaskView] = Counter()
        self.critical_failures: dict[str, None] = {}
        self.size: int | None = None
        self.seq: int | None = None

    def consume(self, line: Line) -> None:
        said = about(line)
        if line["event_type"] == STREAM:
            self.state = line["to_state"]
            # A live policy held or denied a task before a worker started one.
            self.began_early = self.began_early or said.get("because") == "progressed"
            self.size = said.get("steps", self.size)
        elif line["event_type"] == TASK:
            name = said.get("step") or line["entity_id"]
            known = self.tasks.get(name, TaskView("pending"))
            critical = is_critical(said)
            started = known.started or line["to_state"] == "running"
            adopted = line["from_state"] is None and said.get("because") == "adopted"
            critical = known.critical if critical is None else critical
            now = TaskView(line["to_state"], critical, started, known.adopted or adopted)
            self._change(name, now)

    def _change(self, name: str, now: TaskView) -> None:
        if name in self.tasks:
            self.kinds[self.tasks[name]] -= 1
        self.kinds[now] += 1
        self.tasks[name] = now
        self.critical_failures.pop(name, None)
        if now.critical and now.state == "failed":
            self.critical_failures[name] = None

    def having(self, *states: str) -> list[str]:
        return [name for name, task in self.tasks.items() if task.state in states]

    @property
    def unfinished(self) -> list[str]:
        return [name for name, task in self.tasks.items() if task.state not in TASK_ENDED]

    @property
    def in_flight(self) -> list[str]:
        return self.having(*IN_FLIGHT)


Look = Callable[[Stream, Line], Iterator[str]]


def watching(look: Look, *, before: bool = False) -> Callable[[Say], Feed]:
    """A checker that keeps the timeline of every workstream and sees each line after (or before) it is added."""

    def check(say: Say) -> Feed:
        streams: dict[str, Stream] = defaultdict(Stream)

        def feed(line: Line) -> None:
            name = stream_of(line)
            if name is None:
                return
            stream = streams[name]
            if before:
                for said in look(stream, line):
                    say(said)
            stream.consume(line)
            if not before:
                for said in look(stream, line):
                    say(said)

        return feed

    return check


def consistent(stream: Stream, line: Line) -> Iterator[str]:
    """1. Between two transactions, the shown state equals the one derived from the tasks. `seq` numbers
    transactions."""
    seq = about(line).get("seq")
    settled = line["event_type"] == HEAD or (stream.seq is not None and seq != stream.seq)
    stream.seq = seq
    if not settled or stream.state is None or not is_sealed(line):
        return
    if stream.state == "cancelled":
        for name in stream.unfinished:
            yield f"the workstream is cancelled, but {name} is {stream.tasks[name].state}"
        return
    # The derived state depends on which kinds of tasks exist, not on how many, so no line needs a scan of all.
    derived = derive_workstream_state(+stream.kinds)
    held = stream.began_early and (derived, stream.state) == ("ready", "executing")
    # Tasks that an earlier workstream completed do not begin the final validation of this one.
    begins = derived == "validating" and stream.state in ("ready", "executing")
    adopted = begins and all(task.adopted for task in +stream.kinds)
    if not held and not adopted and not agrees(derived, stream.state) and not _was_paused(stream, line):
        yield f"the workstream is {stream.state}, but its tasks make it {derived}"


def _was_paused(stream: Stream, line: Line) -> bool:
    """Whether the last task ended during a pause, which the seed has no word for.

    Then the end of the pause, a cancel or a timeout is the next that happens to the workstream. The closing line tells
    of a pause that lasts.
    """
    if stream.state != "executing" or stream.unfinished:
        return False
    said = about(line)
    if line["event_type"] == HEAD:
        return said.get("canonical") == "paused"
    return line["event_type"] == STREAM and line["to_state"] in AFTER_A_PAUSE.get(said.get("event", ""), ())


def completion(stream: Stream, line: Line) -> Iterator[str]:
    """2. `completed` only if all tasks are."""
    if line["event_type"] != STREAM or line["to_state"] != "completed":
        return
    for name, task in stream.tasks.items():
        if task.state != "completed":
            yield f"the workstream is completed, but {name} is {task.state}"
    if stream.size is not None and stream.size != len(stream.tasks):
        yield f"the workstream is completed with {len(stream.tasks)} tasks, but has {stream.size}"


def propagation(stream: Stream, line: Line) -> Iterator[str]:
    """3. A critical failure fails the workstream, once what is in flight has settled. A cancel may come first."""
    if not stream.critical_failures:
        return
    named = next(iter(stream.critical_failures))
    if line["event_type"] == STREAM and line["to_state"] not in ("failed", "cancelled"):
        yield f"critical task {named} has failed, and the workstream goes on to {line['to_state']}"
    if line["event_type"] == HEAD and not stream.in_flight and stream.state not in WORKSTREAM_ENDED:
        yield f"critical task {named} has failed, and the workstream stays {stream.state}"


def preservation(stream: Stream, line: Line) -> Iterator[str]:
    """4. A failed workstream is kept as it was: complete, every task ended, and no later change."""
    if line["event_type"] == HEAD:
        if stream.state == "failed" and line["to_state"] != "failed":
            yield f"the workstream has failed and is kept as {line['to_state']}"
        return
    if stream.state == "failed":
        yield f"the workstream has failed, and {line['entity_id']} changes after that"
    if line["event_type"] == STREAM and line["to_state"] == "failed":
        for name in stream.unfinished:
            yield f"the workstream has failed and is kept with {name} {stream.tasks[name].state}"
