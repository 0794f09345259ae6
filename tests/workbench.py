"""The test bench for operations: definitions in one line, several openings of one database, waits without sleeps.

`Bench` adds to the laboratory's bench what tests ask most. `tests/worker/bed.py` adds a worker to it, and
`tests/kernel/driver.py` is the level below, without a store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.people import people
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.store.connect import connect
from stepkeep_lab.storecheck import bench
from stepkeep_lab.storecheck.bench import ACTOR, TENANT, gate, report_of, task

__all__ = ["ACTOR", "TENANT", "Bench", "benches", "chain", "gate", "report_of", "task"]

SECOND = 1_000_000
NOBODYS = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
"""An id that no run has."""


def chain(name: str, length: int, **options: Any) -> Definition:
    """`length` steps, one after the other."""
    steps = [task(f"s{no:05}", no, [f"s{no - 1:05}"] if no else []) for no in range(length)]
    return Definition(name=name, version=1, steps=tuple(steps), **options)


class Bench(bench.Bench):
    """One opening of a database, as a process would have it, with what people ask of a run."""

    async def start(self, workflow: Definition | Plan, given: bytes = b"{}", **options: Any) -> str:
        plan = workflow if isinstance(workflow, Plan) else await self.publish(workflow)
        return (await self.begin(plan, input=given, **options)).run_id

    async def report(self, claim: Claim, outcome: Outcome | None = None) -> Reply:
        [reply] = await self.report_all([claim], outcome)
        assert not isinstance(reply, BaseException) or isinstance(reply, Exception)
        return reply  # type: ignore[return-value]

    async def work_off(self, limit: int = 100) -> int:
        """Complete everything that is ready, and what follows, until nothing is. Returns how many steps were run."""
        done = 0
        while claims := await self.claim(limit):
            for reply in await self.report_all(claims):
                assert isinstance(reply, Accepted), reply
            done += len(claims)
        return done

    async def state(self, run_id: str) -> RunState:
        found = await self.store.read_run(TENANT, run_id)
        assert found is not None
        return found.run.state

    async def step_states(self, run_id: str) -> list[StepState]:
        return [step.state for step in await self.store.read_steps(TENANT, run_id)]

    async def approve(self, run_id: str, step: str | None = None, by: str = ACTOR, comment: str = "") -> Accepted:
        return await self._decide_gate(run_id, step, by, comment, approve=True)

    async def reject(self, run_id: str, step: str | None = None, by: str = ACTOR, comment: str = "") -> Accepted:
        return await self._decide_gate(run_id, step, by, comment, approve=False)

    async def _decide_gate(self, run_id: str, step: str | None, by: str, comment: str, *, approve: bool) -> Accepted:
        return await people.decide_gate(
            self.transactor, run_id, approve=approve, caller=Caller(TENANT, by), step=step, comment=comment
        )

    async def send(self, run_id: str, name: str, payload: bytes = b"null", **options: Any) -> Accepted:
        return await people.send(self.transactor, run_id, name, payload, caller=Caller(TENANT, ACTOR), **options)

    async def cancel(self, run_id: str, **options: Any) -> Accepted:
        return await people.cancel(self.transactor, run_id, caller=Caller(TENANT, ACTOR), **options)


@asynccontextmanager
async def benches(url: str, count: int = 1) -> AsyncIterator[list[Bench]]:
    """Several openings of one database, each with connections of its own."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(count):
            store = connect(url)
            await store.open()
            stack.push_async_callback(store.close)
            if url.startswith("sqlite"):  # the databases that tests get on PostgreSQL are migrated
                await store.migrate()
            opened.append(Bench(Transactor(store)))
        yield opened


@asynccontextmanager
async def on(url: str) -> AsyncIterator[Bench]:
    """One opening of a database."""
    async with benches(url) as [opened]:
        yield opened


# -- waits without sleeps --------------------------------------------------------------------------------------------
def results_of(owner: Any, name: str) -> list[Any]:
    """What every call of this coroutine method returns from now on, as soon as it has returned."""
    results: list[Any] = []
    real = getattr(owner, name)

    async def noted(*args: object, **kwargs: object) -> object:
        result = await real(*args, **kwargs)
        results.append(result)
        return result

    setattr(owner, name, noted)
    return results


def count_calls(bench: bench.Bench, name: str) -> list[object]:
    """Every call of this method of the store from now on, by its arguments."""
    calls: list[object] = []
    store: Any = bench.store
    real = getattr(store, name)

    async def counted(*args: object, **kwargs: object) -> object:
        calls.append(args)
        return await real(*args, **kwargs)

    setattr(store, name, counted)
    return calls


PATIENCE_SECONDS = 60.0
"""How long a test waits for what another task, thread or process does, before it fails instead of hanging."""


async def until(is_true: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that another thread or process does."""
    async with asyncio.timeout(seconds):
        for _ in iter(is_true, True):
            await asyncio.sleep(0.005)


async def eventually(
    is_true: Callable[[], Awaitable[bool]], what: str = "it", seconds: float = PATIENCE_SECONDS
) -> None:
    """The same for what has to be looked up."""
    end = time.monotonic() + seconds
    while not await is_true():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain for {what}"
        await asyncio.sleep(0.005)


def wait_until(is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """The same for tests without a loop."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.02)
