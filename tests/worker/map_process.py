"""A process that works on a map and ends itself by `kill -9` before its nth commit, if it has so many.

Commits are counted from the moment at which the run is started, on either database.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import apsw

import stepkeep as sk

IN_FLIGHT = 4


def element(n: int, effects: str) -> int:
    """Leave a trace for every execution."""
    with (Path(effects) / str(n)).open("a", encoding="ascii") as file:
        file.write("x")
    return n * n


def mapping() -> sk.Workflow:
    flow = sk.Workflow("killed-map", version=1, lease="1s")
    over = {"over": flow.input["items"], "in_flight": IN_FLIGHT, "max": 1_000}
    inputs = {"n": flow.item, "effects": flow.input.effects}
    flow.step("each", element, inputs=inputs, map=over, effect="write", timeout="1m")
    return flow


class Commits:
    """Counts the commits of this process, and ends it before the nth."""

    def __init__(self, nth: int) -> None:
        self._nth, self.count, self.counts = nth, 0, False

    def committing(self) -> bool:
        self.count += self.counts
        if self.counts and self.count == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    def watch(self) -> None:
        apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(self.committing))
        from stepkeep.store.postgres import store

        postgres: Any = store
        commit, record = postgres.commit, postgres.record

        async def watched(connection: Any) -> None:
            self.committing()
            await commit(connection)

        async def watched_record(connection: Any, *given: Any) -> Any:
            self.committing()
            return await record(connection, *given)

        postgres.commit, postgres.record = watched, watched_record


def main(database: str, effects: str, items: int, key: str, nth: int) -> None:
    commits = Commits(nth)
    commits.watch()
    with sk.Engine(database) as engine:
        plan = engine.publish(mapping())
        commits.counts = True
        engine.run(plan, {"items": list(range(items)), "effects": effects}, idempotency_key=key)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
