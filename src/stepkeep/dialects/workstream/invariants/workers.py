"""The four invariants of a worker. Capacity is visible only in a log that holds workers and tasks together."""

from __future__ import annotations

from stepkeep.dialects.dialect import Line, Say
from stepkeep.dialects.workstream.invariants.lines import HEAD, TASK, WORKER, Feed, about, is_sealed
from stepkeep.dialects.workstream.planning import IN_FLIGHT


class Crew:
    """Workers and their tasks, as far as one log shows both."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.capacity: dict[str, int] = {}
        self.holder: dict[str, str] = {}

    def consume(self, line: Line) -> None:
        said = about(line)
        if line["event_type"] == WORKER:
            worker = line["entity_id"]
            self.states[worker] = line["to_state"]
            if (most := said.get("capacity", said.get("max_concurrent_tasks"))) is not None:
                self.capacity[worker] = most
        elif line["event_type"] == TASK:
            if line["to_state"] == "running" and said.get("worker"):
                self.holder[line["entity_id"]] = said["worker"]
            elif line["to_state"] not in IN_FLIGHT:
                self.holder.pop(line["entity_id"], None)

    def held_by(self, worker: str) -> list[str]:
        return [task for task, holder in self.holder.items() if holder == worker]


def worker_of(line: Line) -> str:
    """The worker that a line is about, or that it assigns a task to."""
    return str(about(line).get("worker", "") if line["event_type"] == TASK else line["entity_id"])


def capacity_limit(say: Say) -> Feed:
    """1. A busy worker has no more tasks than its capacity."""
    crew = Crew()

    def feed(line: Line) -> None:
        crew.consume(line)
        worker = worker_of(line)
        most = crew.capacity.get(worker)
        if most is None:
            return
        count = len(crew.held_by(worker))
        if line["event_type"] == WORKER and line["to_state"] == "busy":
            count = max(count, 1)
        if count > most:
            say(f"{worker} has {count} tasks and room for {most}")

    return feed


def health_monitoring(say: Say) -> Feed:
    """2. Only an idle or busy worker sends heartbeats: only it can miss them, and only it is given tasks."""
    crew = Crew()

    def feed(line: Line) -> None:
        worker = worker_of(line)
        before = crew.states.get(worker)
        if line["event_type"] == WORKER:
            source, target = line["from_state"], line["to_state"]
            if target == "unresponsive" and source not in ("idle", "busy"):
                say(f"{worker} is missed while {source}, when it sends no heartbeats")
            if "shutdown" in (source, before):
                say(f"{worker} is heard of after its shutdown")
            if source == "unresponsive" and target not in ("idle", "shutdown"):
                say(f"{worker} is {target} again without having been heard")
        elif line["to_state"] == "running" and before in ("initializing", "unresponsive", "shutdown"):
            say(f"{worker} is given {line['entity_id']} while {before}")
        crew.consume(line)

    return feed


def graceful_shutdown(say: Say) -> Feed:
    """3. A worker that was asked to stop first finishes or releases its tasks."""
    crew = Crew()

    def feed(line: Line) -> None:
        crew.consume(line)
        if line["event_type"] != WORKER or line["to_state"] != "shutdown" or line["from_state"] == "unresponsive":
            return
        worker = line["entity_id"]
        if is_sealed(line) and line["from_state"] in ("idle", "busy") and about(line).get("because") != "drained":
            say(f"{worker} is shut down without having been drained")
        for task in crew.held_by(worker):
            say(f"{worker} is shut down and still holds {task}")

    return feed


def resource_cleanup(say: Say) -> Feed:
    """4. The tasks of a failed worker are taken from it: its claim ends nothing, and the next one has a higher
    fence."""
    crew = Crew()
    fences: dict[str, int] = {}
    taken: dict[str, str] = {}

    def feed(line: Line) -> None:
        entity = str(line["entity_id"])
        if line["event_type"] == WORKER and line["to_state"] == "unresponsive":
            taken.update((task, entity) for task in crew.held_by(entity))
        if line["event_type"] == TASK:
            fence = about(line).get("fence")
            if line["to_state"] == "running" and fence is not None:
                if fence <= fences.get(entity, 0):
                    say(f"{entity} is claimed with fence {fence}, which an earlier claim had")
                fences[entity] = fence
            if (worker := taken.pop(entity, None)) and line["to_state"] in ("validating", "completed"):
                say(f"{entity} is {line['to_state']} by {worker}, which had failed")
        if line["event_type"] == HEAD:
            for task, worker in taken.items():
                if crew.states.get(worker) == "shutdown":
                    say(f"{task} is still held by {worker}, which is shut down")
        crew.consume(line)

    return feed
