"""Idempotency keys belong to the API key that they came with: one run for each key of a caller, by every operation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.api.browsers import CSRF
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict, KeyReused
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.access import parse_key
from stepkeep.operations.continuation.jobs import add_job, digest_of
from stepkeep.operations.people.keys import create_session_key, sign_in
from stepkeep.operations.pipeline.start import Starter
from stepkeep.store.change import ANY_CALLER
from stepkeep.store.rows import JobAction
from stepkeep_lab.simulation.mutation import Edit, Mutant, planted
from tests.api.stage import HELLO, TENANT, Stage, handlers, on, told
from tests.suites import first_on

Way = Callable[[AsyncEngine, str], Awaitable[str]]
"""An operation with an idempotency key on a run that has ended; returns the id of what it makes."""


async def start(engine: AsyncEngine, run: str) -> str:
    return (await engine.start("hello", idempotency_key="k")).run_id


async def rerun(engine: AsyncEngine, run: str) -> str:
    return (await engine.rerun(run, idempotency_key="k")).run_id


async def retry(engine: AsyncEngine, run: str) -> str:
    return (await engine.continuations.retry(run, idempotency_key="k")).run_id


async def rerun_from(engine: AsyncEngine, run: str) -> str:
    return (await engine.continuations.rerun(run, "greet", idempotency_key="from")).run_id


async def fork(engine: AsyncEngine, run: str) -> str:
    return (await engine.continuations.fork(run, "greet", idempotency_key="k")).run_id


async def job(engine: AsyncEngine, run: str) -> str:
    return str((await engine.jobs.start("rerun", runs=[run], idempotency_key="k"))["job"])


async def message(engine: AsyncEngine, run: str) -> str:
    """The run is cancelled: the same key again names it and starts no other."""
    try:
        made = str((await engine.send(key="order", name="x", start="hello", idempotency_key="order"))["run_id"])
    except Conflict as known:
        return str(known.winner["run_id"])
    await engine.cancel(made)
    return made


WAYS: tuple[Way, ...] = (start, rerun, retry, rerun_from, fork, job, message)


async def browser(stage: Stage, engine: AsyncEngine, scopes: tuple[str, ...] | None, key: str = "") -> AsyncEngine:
    """The engine of a session: of this key, or of one that was made for the session, as sign-in at a provider does."""
    if scopes is None:
        row = await engine.store.people.find_key(parse_key(key).id)
        assert row is not None
    else:
        caller = Caller(TENANT, "ann", vouched_by="oidc")
        row = await create_session_key(engine.store, "ann", scopes=scopes, lifetime=10**10, caller=caller)
    cookie, _ = await sign_in(engine.store, row)
    return (await stage.app.service.callers.authenticate_session(cookie)).engine()


@asynccontextmanager
async def callers(stage: Stage) -> AsyncIterator[dict[str, list[AsyncEngine]]]:
    """Engines of callers, by whose idempotency keys they use."""
    scopes = ("read", "start", "complete", "operate")
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(stage.host())
        other = await stack.enter_async_context(AsyncEngine(stage.url, tenant=TENANT, actor="bea", registry=handlers()))
        line = [await stage.key(*scopes, expires_in="9d")]
        for _ in range(2):
            line.append((await host.keys.rotate(parse_key(line[-1]).id)).secret)
        line.append((await host.keys.rotate(parse_key(line[0]).id)).secret)
        beside = await stage.key(*scopes, expires_in="8d")
        theirs = await stage.key(*scopes, owner="bea", expires_in="8d")

        async def opened(key: str) -> AsyncEngine:
            return await stack.enter_async_context(AsyncEngine(stage.url, key=key, registry=handlers()))

        yield {
            "without a key": [host, other],
            "a key": [*[await opened(key) for key in line], await browser(stage, host, None, line[1])],
            "another key of ann": [await opened(beside)],
            "the key of bea": [await opened(theirs)],
            "sessions of ann": [await browser(stage, host, scopes) for _ in range(2)],
        }


async def ended(host: AsyncEngine) -> str:
    run = (await host.start("hello")).run_id
    await host.cancel(run)
    return run


async def one_for_each_caller(stage: Stage, *ways: Way) -> None:
    await stage.publish(HELLO)
    async with stage.host() as host, callers(stage) as groups:
        for way in ways:
            run, made = await ended(host), {}
            for name, engines in groups.items():
                found = {await way(engine, run) for engine in engines}
                assert len(found) == 1, f"{way.__name__}: {name} made {len(found)}"
                made[name] = found.pop()
            assert len(set(made.values())) == len(made), f"{way.__name__}: two callers share one: {made}"


async def test_an_idempotency_key_is_that_of_its_api_key_and_of_those_that_replace_it(database_url: str) -> None:
    async with on(database_url) as stage:
        await one_for_each_caller(stage, *WAYS)


async def test_an_idempotency_key_on_record_stays_that_of_every_caller(database_url: str) -> None:
    """As before an upgrade: no caller makes a second run, and none gets the run for another body."""

    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.host() as host, callers(stage) as groups:
            run = await ended(host)
            made = WAYS[:-2]
            starter: Starter = host._starter
            lane = starter.start

            async def unscoped(request: Any) -> Any:
                return await lane(replace(request, scope=ANY_CALLER))

            starter.start = unscoped  # type: ignore[method-assign]
            old = [await way(host, run) for way in made]
            digest = digest_of("rerun", {"where": {}, "runs": [run]})
            caller = Caller(TENANT, "ann")
            added = await add_job(
                host.transactor,
                JobAction.RERUN,
                [run],
                {"where": {}},
                caller=caller,
                idempotency_key="k",
                digest=digest,
            )
            del starter.start  # type: ignore[attr-defined]
            for engine in (one for engines in groups.values() for one in engines):
                assert [await way(engine, run) for way in made] == old
                assert await job(engine, run) == added["job"]
                with pytest.raises(KeyReused):
                    await engine.start("hello", {"another": "body"}, idempotency_key="k")


async def test_of_one_key_in_many_starts_at_once_each_caller_has_one_run(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with callers(stage) as groups:
            for name, engines in groups.items():
                found = await asyncio.gather(*(start(engine, "") for engine in engines * 4))
                assert len(set(found)) == 1, name


@first_on("sqlite")
async def test_a_request_under_way_holds_up_no_other_caller(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.host() as host:
            mine, other = [await stage.key("read", "start", owner=name) for name in ("ann", "bea")]
            new = (await host.keys.rotate(parse_key(mine).id)).secret
        caller = await stage.app.service.callers.authenticate(f"Bearer {mine}")
        stage.app.service.in_flight.add((TENANT, "start", "k", caller.access.key_scope))
        given: dict[str, Any] = {"json": {"workflow": "hello"}, "headers": {"Idempotency-Key": "k"}}
        for key, status in ((mine, 409), (new, 409), (other, 201)):
            async with stage.client(key) as client:
                assert (await client.post("/runs", **given)).status_code == status
        async with stage.client() as client:
            opened = (await client.post("/session", json={"key": new})).json()
            given["headers"][CSRF] = opened["csrf"]
            told(await client.post("/runs", **given), 409, "in_flight")


BUGS: dict[Mutant, Way] = {
    Mutant(name, what, (Edit(where, old, new),)): way
    for name, what, where, old, new, way in (
        (
            "scope-ignored",
            "an idempotency key is kept for every caller",
            "operations.pipeline.start:_idempotency",
            "scope=request.scope",
            "scope=ANY_CALLER",
            start,
        ),
        (
            "scope-left-out",
            "a continuation uses the idempotency keys of every caller",
            "operations.continuation.going_on:continue_run",
            "scope=scope",
            "scope=ANY_CALLER",
            retry,
        ),
        (
            "scope-of-jobs-ignored",
            "the idempotency key of a job is kept for every caller",
            "operations.continuation.jobs:add_job",
            "scope=scope,",
            "scope=ANY_CALLER,",
            job,
        ),
        (
            "line-forgotten",
            "a key that replaces another begins a line of its own",
            "operations.people.keys:rotate_key",
            "lineage=old.line",
            "lineage=None",
            start,
        ),
        (
            "session-alone",
            "each session of a person has idempotency keys of its own",
            "operations.people.keys:_made",
            'lineage=f"sessions of {owner}" if secret is None else None',
            "lineage=None",
            start,
        ),
    )
}


@first_on("sqlite")
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
async def test_a_planted_bug_in_scopes_is_found(database_url: str, bug: Mutant) -> None:
    with planted(bug), pytest.raises((AssertionError, KeyReused)):
        async with on(database_url) as stage:
            await one_for_each_caller(stage, BUGS[bug])
