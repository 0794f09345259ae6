"""Measures how long each web page waits for its first answer beside a million runs, over a real service on loopback.

The runs are copied inside the database from four real ones: succeeded, failed, waiting for approval, ready.
What a page asks for is written here as its modules ask for it. Claims and status beside many runs are in `backlog`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx2

from stepkeep.api.app import create_app
from stepkeep.api.server import address_of, listen, make_server
from stepkeep.definition.python.workflow import Workflow
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.access import Scope
from stepkeep_lab.bench.backlog import PORTION, TIDY
from stepkeep_lab.bench.ground import Ground
from stepkeep_lab.bench.handlers import noop
from stepkeep_lab.bench.measurement import Figures
from stepkeep_lab.bench.recording import ACTOR, OUTPUT, claimer, keep_rows, multiply
from stepkeep_lab.bench.sql import Sql, open_sql

READER = "reader"
PATIENCE = 120.0

REQUESTS: Mapping[str, Sequence[str]] = {
    "runs": ("/runs?limit=100",),
    "runs_by_state": ("/runs?limit=100&state=failed", "/runs?limit=100&state=rolled_back"),
    "runs_by_workflow": ("/runs?limit=100&workflow=pages-rare", "/runs?limit=100&workflow=pages-work&state=failed"),
    "runs_by_text": (
        "/runs?limit=100&text=order-7",
        "/runs?limit=100&text=nothing-like-this",
        "/runs?limit=100&label=a%3Db",
    ),
    "run": ("/runs/{run}", "/runs/{run}/explain", "/runs/{run}/past?seq=1"),
    "approvals": ("/approvals?mine=true&limit=50", "/approvals?late=true&limit=50"),
    "overview": ("/status?window=24h", "/statistics?window=24h"),
    "workflows": ("/workflows?limit=200",),
    "workflow": (
        "/workflows/pages-work",
        "/workflows?name=pages-work&limit=200",
        "/workflows/pages-work/simulation?version=1",
    ),
    "workers": ("/workers?live=true&limit=200", "/status"),
    "triggers": ("/triggers?limit=200",),
    "outbox": ("/outbox/status", "/outbox?limit=100", "/sinks?limit=200"),
    "administration": ("/policies?limit=100", "/api-keys?limit=200", "/users?limit=200", "/audit?limit=100"),
}
"""What each page asks for when it is opened. A search that finds nothing is the dearest."""

ALTERNATIVES = frozenset({"runs_by_state", "runs_by_workflow", "runs_by_text", "approvals"})
"""Pages that ask for one of these, not for all: they are sent one after the other."""

SHARES = {"succeeded": 0.85, "failed": 0.04, "gated": 0.01, "ready": 0.1}
"""How the runs stand."""


async def first_answers(ground: Ground, *, runs: int, probes: int = 5) -> Figures:
    """The first answer of each page beside this many runs; of few probes, the slowest counts."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        run = await fill(ground, engine, runs)
        async with _service(engine) as client:
            for name, paths in REQUESTS.items():
                await _open(
                    client, name, paths, run
                )  # A service that runs has imported its modules and planned its queries.
            taken = {
                name: [await _open(client, name, paths, run) for _ in range(probes)] for name, paths in REQUESTS.items()
            }
    return {f"page_{name}_ms": max(times) * 1000 for name, times in taken.items()}


async def _open(client: httpx2.AsyncClient, name: str, paths: Sequence[str], run: str) -> float:
    """How long the slowest request of a page takes."""

    async def ask(path: str) -> float:
        begun = time.perf_counter()
        answer = await client.get(path.replace("{run}", run))
        answer.raise_for_status()
        return time.perf_counter() - begun

    if name in ALTERNATIVES:
        return max([await ask(path) for path in paths])
    return max(await asyncio.gather(*(ask(path) for path in paths)))


@asynccontextmanager
async def _service(engine: AsyncEngine) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with every scope at a service of its own."""
    await engine.users.create(READER)
    secret = (await engine.keys.create(READER, scopes=tuple(scope.value for scope in Scope))).secret
    listener = listen("127.0.0.1", 0)
    server, ready = make_server(create_app(engine)), asyncio.Event()
    server.told = ready.set
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await ready.wait()
    headers = {"Authorization": f"Bearer {secret}"}
    try:
        async with httpx2.AsyncClient(base_url=address_of(listener), headers=headers, timeout=PATIENCE) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


async def fill(ground: Ground, engine: AsyncEngine, runs: int) -> str:
    """Copy four real runs until there are so many; returns the id of one that failed."""
    work, rare = Workflow("pages-work", version=1, timeout="1h"), Workflow("pages-rare", version=1, timeout="1h")
    work.step("only", noop, inputs={}, timeout="1m")
    rare.approval("sign", prompt="May it?", deadline="30m")
    published, gate = await engine.publish(work), await engine.publish(rare)
    async with open_sql(ground) as sql:
        if ground.server is None:
            await sql.run("pragma synchronous = off")
        else:
            await sql.run("set synchronous_commit = off")
        gated = (await engine.start(gate, {"order": "order-1"})).run_id
        await keep_rows(sql, gated, "gated")
        succeeded = await _live(engine, published, fails=False)
        await keep_rows(sql, succeeded, "succeeded")
        failed = await _live(engine, published, fails=True)
        await keep_rows(sql, failed, "failed")
        ready = (await engine.start(published, {"order": "order-3"})).run_id
        await keep_rows(sql, ready, "ready")
        lives = {"succeeded": succeeded, "failed": failed, "gated": gated, "ready": ready}
        for stage, share in SHARES.items():
            await _copies(sql, stage, lives[stage], int(runs * share))
        for statement in TIDY[ground.store]:
            await sql.run(statement)
    return failed


async def _live(engine: AsyncEngine, workflow: object, *, fails: bool) -> str:
    """A run whose only step succeeds, or fails for good."""
    run = (await engine.start(workflow, {"order": "order-2"}, labels={"team": "a"})).run_id  # type: ignore[arg-type]
    worker = await claimer(engine, 1)
    [claim] = await engine.transactor.claim(worker, limit=1)
    outcome = Failed(category=Category.TRANSIENT, error="no answer", final=True) if fails else Completed(output=OUTPUT)
    event = StepReported(
        tenant=claim.tenant,
        run_id=claim.run_id,
        actor=ACTOR,
        no=claim.step.no,
        fence=claim.step.fence,
        worker=worker.worker,
        outcome=outcome,
    )
    await engine.transactor.report([event], None)
    return run


async def _copies(sql: Sql, stage: str, run_id: str, count: int) -> None:
    for first in range(1, count + 1, PORTION):
        await multiply(sql, stage, run_id, first, min(first + PORTION - 1, count))
