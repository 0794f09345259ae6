"""A worker on a real store: publish, start, work until something is true, look at the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.databases import migrated_file
from tests.workbench import TENANT, benches

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Definition, Dependency, Handler, StepDefinition
from stepkeep.kernel.machine.rows import Attempt, Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState, StepState
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings
from stepkeep_lab.storecheck import bench

QUICK = Settings(
    concurrency=16,
    sweep_seconds=0.02,
    idle_poll_seconds=0.02,
    heartbeat_seconds=0.2,
    refresh_queues_seconds=0.2,
    grace_seconds=5.0,
    commands=CommandPolicy(tenants=(TENANT,)),
)


def step(name: str, *after: str, order: int = 0, uses: str | None = None, **fields: Any) -> StepDefinition:
    """A step that runs the handler of its own name."""
    fields.setdefault("executor", Handler(name=uses or name))
    return StepDefinition(name=name, order=order, depends_on=tuple(Dependency(step=each) for each in after), **fields)


LEASE_US = Definition(name="any", version=1, steps=()).lease
"""The lease of attempts where a test says nothing else."""
PAST_THE_LEASE_US = LEASE_US + 1_000_000
"""A clock that is moved by so much is past the leases of workers that are gone, without a wait."""


class Bed(bench.Bench):
    """One opening of a database with a registry, for workers."""

    def __init__(self, transactor: Transactor) -> None:
        super().__init__(transactor)
        self.registry = Registry()

    def handler(self, name: str, function: Any, **fields: Any) -> None:
        self.registry.register(HandlerSpec(name=name, function=function, **fields))

    def worker(self, settings: Settings = QUICK, **fields: Any) -> Worker:
        return Worker(self.transactor, self.registry, settings=settings, **fields)

    async def start(self, *steps: StepDefinition, given: Any = None, name: str = "flow", **fields: Any) -> str:
        definition = Definition(name=name, version=1, steps=steps, **fields)
        return await self.start_again(await self.publish(definition), given)

    async def start_again(self, plan: Any, given: Any = None) -> str:
        return (await self.begin(plan, input=msgspec.json.encode(given))).run_id

    async def run(self, run_id: str) -> Run:
        record = await self.store.read_run(TENANT, run_id)
        assert record is not None
        return record.run

    async def steps(self, run_id: str) -> dict[int, Step]:
        return {each.no: each for each in await self.store.read_steps(TENANT, run_id)}

    async def states(self, run_id: str) -> list[str]:
        return [str(each.state) for _, each in sorted((await self.steps(run_id)).items())]

    async def attempts(self, run_id: str) -> list[Attempt]:
        found = await self.store.read_attempts(TENANT, run_id)
        return sorted(found, key=lambda attempt: (attempt.no, attempt.fence))

    async def output(self, run_id: str, no: int) -> Any:
        key = (TENANT, run_id, no)
        found = (await self.store.read_outputs([key]))[key]
        return None if found is None else msgspec.json.decode(found)

    def ended(self, *run_ids: str) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            for run_id in run_ids:
                if (await self.run(run_id)).state not in RUN_TERMINAL:
                    return False
            return True

        return look

    def step_is(self, run_id: str, no: int, state: StepState) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return (await self.steps(run_id))[no].state is state

        return look

    async def finish(self, *run_ids: str, settings: Settings = QUICK, **fields: Any) -> RunState:
        """Work until these runs have ended; the state of the first."""
        async with asyncio.timeout(60):
            await self.worker(settings, **fields).run_until(self.ended(*run_ids))
        await self.check_promises()
        return (await self.run(run_ids[0])).state

    async def check_promises(self) -> None:
        assert await self.store.stuck_runs() == []


@asynccontextmanager
async def bed_on(url: str) -> AsyncIterator[Bed]:
    async with benches(url) as [bench]:
        yield Bed(bench.transactor)


On = Callable[[], AbstractAsyncContextManager[Bed]]


@asynccontextmanager
async def on_sqlite(tmp_path: Path) -> AsyncIterator[Bed]:
    """Run a test's body on a fresh file."""
    async with bed_on(migrated_file(tmp_path / "test.db")) as bed:
        yield bed
