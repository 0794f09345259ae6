"""The settings of one worker, with their defaults."""

from __future__ import annotations

import sys

import msgspec

from stepkeep.definition.arguments import whole
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.pipeline.payloads import MAX_PAYLOAD_BYTES
from stepkeep.worker.attempts.secrets import Secrets
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.executors.http import HttpPolicy

MOST_PLACES = 1_000_000
LEAST_PROCESS_MEMORY = 64 * 1024 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Names end in the unit of their value.

    - `concurrency`: attempts held at once.
    - `threads`: how many of them may be blocking, as all but coroutines are.
    - `lease_us`: overrides the definition's lease.
    - `sweep_seconds`: pause between two sweeps. A single survivor takes a dead worker's steps over within a second of
      their leases.
    - `children_seconds`: the longest pause between two looks for child runs to start, to cancel or to tell about; 0
      leaves them to other workers.
    - `slots_seconds`: the longest pause between two looks for runs that wait for an execution slot; 0 leaves them to
      other workers.
    - `resources_seconds`: the longest pause between two polls while steps wait for resources.
    - `maintain_seconds`: pause between two maintenance calls of the store; `first_maintain_seconds`: before the first.
    - `first_publish_seconds`: pause before a worker first publishes what it serves; later it publishes with each
      heartbeat.
    - `grace_seconds`: how long a stopping worker lets handlers finish.
    - `log_lines`: how many lines of `ctx.logger` are kept of each attempt, in the stream `log` of its run.
    - `idle_poll_seconds`: the longest pause between two polls; `rare_poll_seconds`: while notifications arrive.
    - `relay_seconds`: pause between two looks for events to send, five times as long while notifications arrive; 0
      leaves them to other workers.
    - `relay_lease_seconds`: for how long events are claimed; another relay sends them after that. One request must end
      within half of it.
    - `jobs_seconds`: pause between two looks for jobs on many runs; 0 leaves them to other workers.
    - `process_memory_bytes`: limit of each handler process.
    """

    concurrency: int = 1000
    threads: int = 64
    claim_batch: int = 500
    lease_us: int | None = None
    heartbeat_seconds: float = 10.0
    sweep_seconds: float = 0.75
    children_seconds: float = 0.75
    slots_seconds: float = 0.75
    resources_seconds: float = 0.25
    busy_poll_seconds: float = 0.002
    idle_poll_seconds: float = 0.5
    rare_poll_seconds: float = 5.0
    full_scan_seconds: float = 1.0
    refresh_queues_seconds: float = 10.0
    first_maintain_seconds: float = 60.0
    maintain_seconds: float = 3600.0
    first_publish_seconds: float = 0.5
    relay_seconds: float = 1.0
    relay_lease_seconds: float = 30.0
    jobs_seconds: float = 3.0
    grace_seconds: float = 30.0
    log_lines: int = 200
    closing_seconds: float = 10.0
    result_bytes: int = MAX_PAYLOAD_BYTES
    process_memory_bytes: int | None = None
    commands: CommandPolicy = CommandPolicy()
    http: HttpPolicy = HttpPolicy()
    secrets: Secrets = Secrets()

    def __post_init__(self) -> None:
        for name, kind in (("http", HttpPolicy), ("commands", CommandPolicy), ("secrets", Secrets)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidInput(
                    f"`{name}` takes a stepkeep.{kind.__name__}, and not {type(getattr(self, name)).__name__}."
                )
        for name in ("concurrency", "threads"):
            whole(f"a worker's {name}", getattr(self, name), 0, MOST_PLACES)
        memory = self.process_memory_bytes
        if memory is not None:
            whole("process_memory_bytes", memory, 0, sys.maxsize)
        if memory is not None and memory < LEAST_PROCESS_MEMORY:
            raise InvalidInput(f"a handler's process needs {LEAST_PROCESS_MEMORY} bytes of memory, and not {memory}.")

    @property
    def pool(self) -> int:
        """The largest number of threads (or processes, or programs) at once: at most the number of slots."""
        return min(self.threads, self.concurrency)
