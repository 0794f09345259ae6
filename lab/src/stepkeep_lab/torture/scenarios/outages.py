"""Outages of PostgreSQL: crashes, ended sessions, connections cut around COMMIT, a pooler in between."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from stepkeep_lab.postgres import PostgresServer, StopMode
from stepkeep_lab.torture.proxy import CUT, Cut, proxy
from stepkeep_lab.torture.servers import answering, crash, kill_session, pooler, pooler_program, prove_ours, socket_of
from stepkeep_lab.torture.stage import NotRun, Stage

CUT_SHARE = 0.2
SILENCE = 2
CRASHES, CUTS = 50, 2_000
"""In a thorough campaign."""
BLOWS = (StopMode.IMMEDIATE, StopMode.IMMEDIATE, StopMode.FAST, None)
"""Half of the outages are power cuts; None is kill -9 of a session, upon which the server recovers as from a crash."""


async def own_server(stage: Stage) -> PostgresServer:
    """The stage's server, once it is certain that it is ours to harm."""
    if stage.server is None:
        raise NotRun("an SQLite file has no server")
    if stage.server.is_external:
        raise NotRun("the server belongs to someone else")
    await prove_ours(stage.server, stage.direct)
    return stage.server


async def server_crashes(stage: Stage) -> None:
    """PostgreSQL stopped immediate or fast, or one of its sessions killed, again and again, under load."""
    server = await own_server(stage)
    stage.needs("crashes", at_least=CRASHES if stage.thorough else 2)
    stage.needs("starts not answered")
    await stage.workers(3)
    outages: list[float] = []
    async with stage.under_load(rate=20.0):
        stage.begin()
        while stage.goes_on(reached=stage.counts["crashes"] >= CRASHES):
            await asyncio.sleep(stage.rng.uniform(0.5, 1.5))
            began = time.monotonic()
            blow = stage.rng.choice(BLOWS)
            if blow is None:
                await kill_session(server, stage.direct)
                stage.counts["sessions killed"] += 1
                await answering(stage.direct)
            else:
                await crash(server, stage.direct, blow)
            outages.append(time.monotonic() - began)
            stage.counts["stops in good order" if blow is StopMode.FAST else "crashes"] += 1
    stage.measure("server away", outages)
    recovered = server.log.count("database system was not properly shut down")
    stage.counts["recoveries in the server's log"] = recovered


async def sessions_ended(stage: Stage) -> None:
    """pg_terminate_backend of a random session of the engine's, ten times a second, under load."""
    await own_server(stage)
    import asyncpg

    stage.needs("sessions ended", at_least=5)
    await stage.workers(3)
    admin = await asyncpg.connect(stage.direct)
    try:
        async with stage.under_load(rate=20.0):
            stage.begin()
            while stage.goes_on():
                await asyncio.sleep(0.1)
                ended = await admin.fetchval(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                    "and application_name = 'stepkeep' order by random() limit 1"
                )
                stage.counts["sessions ended"] += bool(ended)
    finally:
        await admin.close()


async def commit_cuts(stage: Stage) -> None:
    """The connection cut before COMMIT, after it, or left in silence: what is unknown is found out, never doubled."""
    await own_server(stage)
    for fault in (*map(str, Cut), "unknown outcomes"):
        stage.needs(fault)
    stage.needs(CUT, at_least=CUTS if stage.thorough else 1)
    _, path = socket_of(stage.direct)
    async with proxy(path, stage.rng, stage.counts) as (line, port):
        name = urlsplit(stage.direct).path
        stage.url = f"postgresql://postgres@127.0.0.1:{port}{name}?sslmode=disable&command_timeout={SILENCE}"
        await stage.workers(3)
        async with stage.under_load(rate=20.0):
            await asyncio.sleep(0.3)
            line.rate = CUT_SHARE
            stage.begin()
            while stage.goes_on(reached=stage.counts[CUT] >= CUTS):  # noqa: ASYNC110 - processes count some faults in files
                await asyncio.sleep(0.1)
            line.rate = 0.0
        await asyncio.sleep(SILENCE + 0.5)
        await stage.fleet.end_all()
    stage.counts["commits seen"] = line.commits


async def through_a_pooler(stage: Stage) -> None:
    """PgBouncer in transaction mode between, and a storm of kills."""
    await own_server(stage)
    if pooler_program() is None:
        raise NotRun("PgBouncer is not installed (Debian: apt install pgbouncer)")
    stage.needs("kills through the pooler", at_least=2)
    async with AsyncExitStack() as stack:
        stage.url = await stack.enter_async_context(pooler(stage.direct))
        await stage.workers(3)
        async with stage.under_load(rate=20.0):
            stage.begin()
            while stage.goes_on():
                await asyncio.sleep(0.5)
                await stage.fleet.end(stage.rng.choice(stage.fleet.living))
                stage.counts["kills through the pooler"] += 1
                await stage.worker()
        async with stage.looking() as transactor:
            stage.must(await stage.settle(transactor), "the work did not finish through the pooler")
        await stage.fleet.end_all()
