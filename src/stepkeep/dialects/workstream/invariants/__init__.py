"""The invariants of seed 004, as checkers over its own transition log: tasks, workstreams, then workers.

They read only lines. Stepkeep's exports give the dependencies and the retry limit of an entity on its first line. Plain
logs of the seed's schema (`.state/transitions.jsonl`) may hold workers and tasks together and say less; missing data is
no violation. The judge calls these.
"""

from __future__ import annotations

from stepkeep.dialects.dialect import Invariant
from stepkeep.dialects.workstream.invariants import streams, tasks, workers

T = "004 Task Lifecycle, Invariants"
W = "004 Workstream Lifecycle, Invariants"
K = "004 Worker State Machine, Invariants"

INVARIANTS = (
    Invariant("single-active-state", f"{T} 1", tasks.single_active_state),
    Invariant("monotonic-progress", f"{T} 2", tasks.monotonic_progress),
    Invariant("worker-assignment", f"{T} 3", tasks.worker_assignment),
    Invariant("retry-limit", f"{T} 4", tasks.retry_limit),
    Invariant("timestamp-ordering", f"{T} 5", tasks.timestamp_ordering),
    Invariant("dependency-satisfaction", f"{T} 6", tasks.dependency_satisfaction),
    Invariant("task-state-consistency", f"{W} 1", streams.watching(streams.consistent, before=True)),
    Invariant("completion-requirement", f"{W} 2", streams.watching(streams.completion)),
    Invariant("failure-propagation", f"{W} 3", streams.watching(streams.propagation)),
    Invariant("archive-preservation", f"{W} 4", streams.watching(streams.preservation, before=True)),
    Invariant("capacity-limit", f"{K} 1", workers.capacity_limit, spans=True),
    Invariant("health-monitoring", f"{K} 2", workers.health_monitoring),
    Invariant("graceful-shutdown", f"{K} 3", workers.graceful_shutdown),
    Invariant("resource-cleanup", f"{K} 4", workers.resource_cleanup),
)
