"""Claims and jobs for tests of the handlers' side, made from real plans; no store is needed for them."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.compiler import Compiler
from stepkeep.kernel.definition import Definition, Executor, Handler, StepDefinition, Undo
from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.kernel.machine.rows import Details, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.plan import Plan, build_plan
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.prepared import PreparedSteps
from stepkeep.worker.attempts.runner import PooledRunner
from stepkeep.worker.settings import Settings

_numbers = itertools.count(2)
RUN = "01900000-0000-7000-8000-000000000001"


def a_plan(*steps: StepDefinition, **fields: Any) -> Plan:
    definition = Definition(name="orders", version=3, steps=steps, **fields)
    queues = 2 * len(steps) + 1
    return build_plan(definition, Compiler(), definition_id=1, digest="d", queues=[1] * queues)


def a_claim(plan: Plan, no: int = 0, **fields: Any) -> Claim:
    step = Step(
        **{"tenant": "default", "run_id": RUN, "no": no, "queue": 1, "state": StepState.RUNNING, "fence": 1, **fields}
    )
    return Claim(tenant="default", run_id=RUN, step=step, planned=plan.at(no), plan=plan, claimed_at=1_000_000)


def a_job(
    executor: Executor,
    registry: Registry | None = None,
    *,
    inputs: Any = None,
    given: Any = None,
    settings: Settings | None = None,
    undo: Undo | None = None,
    no: int = 0,
    claim: dict[str, Any] | None = None,
    codes: PreparedSteps | None = None,
    **fields: Any,
) -> Job:
    """A job of one step, with the run's input in place."""
    plan = a_plan(StepDefinition(name="charge", order=0, executor=executor, inputs=inputs, undo=undo, **fields))
    if codes is not None:
        # PreparedSteps are kept by the number of their definition, and each of these jobs has a definition of its own.
        plan = replace(plan, definition_id=next(_numbers))
    found = a_claim(plan, no, **(claim or {}))
    job = Job(found, (codes or PreparedSteps(registry or Registry(), settings or Settings())).of(found))
    job.loaded.details = Details(
        tenant="default",
        run_id=RUN,
        workflow="orders",
        version=3,
        dialect="native",
        input=msgspec.json.encode(given),
        correlation_id="corr-1",
        created_at=0,
        created_by="tests",
        business_key="order-7",
    )
    return job


def handler_job(function: Any, *, mode: Any = "auto", **fields: Any) -> Job:
    registry = Registry()
    registry.register(HandlerSpec(name="under.test", function=function, mode=mode))
    return a_job(Handler(name="under.test"), registry, **fields)


async def outcomes(jobs: list[Job], settings: Settings | None = None, *, during: Any = None) -> list[Outcome]:
    """Run jobs on a real runner and return their outcomes in order; `during(runner)` runs meanwhile."""
    runner = PooledRunner(settings or Settings(concurrency=8))
    found: dict[Job, Outcome] = {}
    all_done = asyncio.Event()

    def finished(batch: list[tuple[Job, Outcome]]) -> None:
        found.update(batch)
        if len(found) == len(jobs):
            all_done.set()

    runner.open(finished)
    try:
        runner.start(jobs)
        if during is not None:
            await during(runner)
        async with asyncio.timeout(30):
            while not all_done.is_set():
                runner.check()  # as a worker does with each sweep
                with suppress(TimeoutError):
                    await asyncio.wait_for(all_done.wait(), 0.5)
    finally:
        runner.close()
    return [found[job] for job in jobs]


def outcome_of(job: Job, settings: Settings | None = None) -> Outcome:
    return asyncio.run(outcomes([job], settings))[0]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that only nobody has waited for yet counts."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False
