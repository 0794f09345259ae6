"""Records one real run, change by change, so that its rows can be copied by the million without an engine.

The run goes through the operations, and every table with rows of runs is read after each commit, so the copies match
what the engine writes. The backlog and the bound use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep_lab.bench.handlers import KILOBYTE
from stepkeep_lab.bench.sql import Sql, key_column
from stepkeep_lab.bench.workflows import chain

ACTOR = "bench"
OUTPUT = b'{"payload":"' + KILOBYTE.encode() + b'"}'
SERIES = "with recursive series (n) as (select {first} union all select n + 1 from series where n < {last})"


async def claimer(engine: AsyncEngine, slots: int) -> Claimer:
    """A worker that serves every queue there is."""
    queues = frozenset(number for number, _ in await engine.store.list_queues(engine.tenant))
    return Claimer(actor=ACTOR, worker=1, lease=None, slots=slots, queues=queues)


async def stages(engine: AsyncEngine, steps: int, given: object) -> AsyncIterator[str]:
    """Live the life of one run of `steps` no-ops; yields its id after each commit."""
    started = await engine.start(await engine.publish(chain(steps)), given)
    yield started.run_id
    worker = await claimer(engine, 1)
    claims = await engine.transactor.claim(worker, limit=1)
    yield started.run_id
    while claims:
        [claim] = claims
        event = StepReported(
            tenant=claim.tenant,
            run_id=claim.run_id,
            actor=ACTOR,
            no=claim.step.no,
            fence=claim.step.fence,
            worker=worker.worker,
            outcome=Completed(output=OUTPUT),
        )
        _, claims = await engine.transactor.report([event], worker)
        yield started.run_id


async def keep_rows(sql: Sql, run_id: str, stage: str) -> None:
    """Keep a copy of all rows that a run has now, under the name of a stage."""
    for table in await sql.tables():
        kept = f"create table bench_{stage}_{table} as select * from {table}"
        await sql.run(f"{kept} where {key_column(table)} = '{run_id}'")


async def multiply(sql: Sql, stage: str, run_id: str, first: int, last: int) -> None:
    """Write the rows of a stage once for every number from `first` to `last`, as runs of their own, ready in turn."""
    for table, columns in (await sql.tables()).items():
        named = {key_column(table): sql.run_id(run_id, "n"), "ready_at": f"ready_at - {last} + n"}
        chosen = ", ".join(named.get(column, column) for column in columns)
        await sql.run(
            f"insert into {table} ({', '.join(columns)}) {SERIES.format(first=first, last=last)}"
            f" select {chosen} from series cross join bench_{stage}_{table}"
        )
