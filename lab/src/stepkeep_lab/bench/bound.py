"""The bound: the rows that the engine writes, written inside the server by one session without a client.

A procedure replays a recorded run in batches, with one commit per stage and batch: the same inserts and updates of the
same width, without locks, reads, decisions, sealing or round trips. No engine on this schema can be faster.
"""

from __future__ import annotations

import time

from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.ground import Ground
from stepkeep_lab.bench.measurement import Figures
from stepkeep_lab.bench.recording import keep_rows, stages
from stepkeep_lab.bench.resource_usage import spent
from stepkeep_lab.bench.sql import Sql, key_column, open_sql
from stepkeep_lab.bench.throughput import MILLION
from stepkeep_lab.bench.workflows import INPUT

BATCH = 200
WARM_UP = 5

# What the engine's own connections are told: without it, plans made on empty tables would scan them whole.
PLANS = {
    **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "jit"), "off"),
    "plan_cache_mode": "force_generic_plan",
    "synchronous_commit": "on",
}


async def inside_the_server(ground: Ground, *, steps: int, runs: int) -> Figures:
    """The rows of runs of `steps` no-ops, written inside the server with no client."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine, open_sql(ground, PLANS) as sql:
        run_id, last = "", 0
        async for run_id in stages(engine, steps, INPUT):
            await keep_rows(sql, run_id, str(last))
            last += 1
        await sql.run(await _procedure(sql, run_id, last))
        await sql.run(f"call bench_replay(1, {WARM_UP}, {BATCH})")
        # From here on plans are made for tables that are known not to be empty.
        await sql.run("vacuum analyze")
        batches = max(1, runs // BATCH)
        before, begun = spent((), ground.server_pid), time.perf_counter()
        await sql.run(f"call bench_replay({WARM_UP + 1}, {WARM_UP + batches}, {BATCH})")
        seconds = time.perf_counter() - begun
        cost = spent((), ground.server_pid).since(before)
        [(ended,)] = await sql.ask("select count(*) from runs where state = 'succeeded'")
    done = batches * BATCH * steps
    assert ended == (WARM_UP + batches) * BATCH + 1, "the replay must write what the recorded run wrote"
    return {
        "steps_per_second": done / seconds,
        "runs_per_second": done / steps / seconds,
        "server_us": cost.server / done * MILLION,
    }


async def _procedure(sql: Sql, run_id: str, count: int) -> str:
    """A procedure that lives the recorded stages for one batch of runs after the other."""
    tables = await sql.tables()
    body = []
    for stage in range(count):
        for table, columns in tables.items():
            body += await _replay(sql, table, columns, stage)
        body.append("commit;")
    number = sql.run_id(run_id, "number")
    return (
        "create procedure bench_replay(first int, last int, size int) language plpgsql as $$\n"
        "declare batch int; ids uuid[];\nbegin for batch in first .. last loop\n"
        f"ids := array(select {number} from generate_series(batch * size, batch * size + size - 1) as number);\n"
        + "\n".join(body)
        + "\nend loop; end $$"
    )


async def _replay(sql: Sql, table: str, columns: list[str], stage: int) -> list[str]:
    """The statements that take a table from the stage before to this one: new rows are added, others changed."""
    key = key_column(table)
    others = [column for column in await _primary_key(sql, table) if column != key]
    fresh, changed = await _difference(sql, table, others, stage)
    chosen = ", ".join("ids.id" if column == key else f"new.{column}" for column in columns)
    values = ", ".join(f"{column} = new.{column}" for column in columns if column not in {key, *others})
    where = " and ".join(f"{table}.{column} = new.{column}" for column in others)
    # "offset 0" makes the planner begin with these rows and look each one up by its whole key.
    each = "cross join unnest(ids) as ids (id)"
    source = f"(select new.*, ids.id as bench_id from {changed} as new {each} offset 0) as new"
    statements = {
        fresh: f"insert into {table} ({', '.join(columns)}) select {chosen} from {fresh} as new {each};",
        changed: f"update {table} set {values} from {source} where {table}.{key} = new.bench_id and {where};",
    }
    return [statement for rows, statement in statements.items() if await sql.ask(f"select from {rows} limit 1")]


async def _difference(sql: Sql, table: str, others: list[str], stage: int) -> tuple[str, str]:
    """The tables that now hold the rows which this stage has added, and those which it has changed."""
    now, before = (
        f"bench_{stage}_{table}",
        f"bench_{stage - 1}_{table}" if stage else f"(select * from {table} limit 0)",
    )
    same = " and ".join(f"old.{column} = new.{column}" for column in others)
    was_there = f"exists (select from {before} as old where {same})"
    was_so = f"exists (select from {before} as old where old.* is not distinct from new.*)"
    await sql.run(f"create table {now}_new as select * from {now} as new where not {was_there}")
    await sql.run(f"create table {now}_changed as select * from {now} as new where {was_there} and not {was_so}")
    return f"{now}_new", f"{now}_changed"


async def _primary_key(sql: Sql, table: str) -> list[str]:
    found = await sql.ask(
        "select attname from pg_index join pg_attribute on attrelid = indrelid and attnum = any (indkey)"
        f" where indisprimary and indrelid = '{table}'::regclass order by attnum"
    )
    return [name for (name,) in found]
