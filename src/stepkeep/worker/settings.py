"""The settings of one worker, with their defaults."""

from __future__ import annotations

import sys

import msgspec

from stepkeep.definition.arguments import whole
from stepkeep.errors import InvalidInput
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.payloads import MAX_RESULT

MOST_PLACES = 1_000_000
LEAST_PROCESS_MEMORY = 64 * 1024 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds unless a name says otherwise.

    - `concurrency`: attempts held at once.
    - `threads`: how many of them may be blocking, as all but coroutines are.
    - `lease` (microseconds): overrides the definition's.
    - `sweep`: pause between two sweeps. A single survivor takes a dead worker's steps over within a second of their
      leases.
    - `maintain`: pause between two maintenance calls of the store; `first_maintain`: before the first one.
    - `first_publish`: pause before a worker first publishes what it serves; later it does so every `heartbeat`.
    - `grace`: how long a stopping worker lets handlers finish.
    - `log_lines`: how many of the last lines of `ctx.logger` are kept with each attempt.
    - `idle_poll`: the longest pause between two polls; `rare_poll`: the same while notifications arrive.
    - `process_memory` (bytes): limit of each handler process.
    """

    concurrency: int = 1000
    threads: int = 64
    claim_batch: int = 500
    lease: int | None = None
    heartbeat: float = 10.0
    sweep: float = 0.75
    busy_poll: float = 0.002
    idle_poll: float = 0.5
    rare_poll: float = 5.0
    full_scan: float = 1.0
    refresh_queues: float = 10.0
    first_maintain: float = 60.0
    maintain: float = 3600.0
    first_publish: float = 0.5
    grace: float = 30.0
    log_lines: int = 0
    closing: float = 10.0
    result_limit: int = MAX_RESULT
    process_memory: int | None = None
    commands: CommandPolicy = CommandPolicy()
    http: HttpPolicy = HttpPolicy()

    def __post_init__(self) -> None:
        for name, kind in (("http", HttpPolicy), ("commands", CommandPolicy)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidInput(
                    f"`{name}` takes a stepkeep.{kind.__name__}, and not {type(getattr(self, name)).__name__}."
                )
        for name in ("concurrency", "threads"):
            whole(f"a worker's {name}", getattr(self, name), 0, MOST_PLACES)
        memory = self.process_memory
        if memory is not None:
            whole("process_memory", memory, 0, sys.maxsize)
        if memory is not None and memory < LEAST_PROCESS_MEMORY:
            raise InvalidInput(f"a handler's process needs {LEAST_PROCESS_MEMORY} bytes of memory, and not {memory}.")

    @property
    def pool(self) -> int:
        """The largest number of threads (or processes, or programs) at once: at most the number of slots."""
        return min(self.threads, self.concurrency)
