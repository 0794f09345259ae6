"""Async handlers keep one event loop, and a lifespan opens what they share, once, on that loop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.worker import process_handlers

import stepkeep as sk
from stepkeep.definition.python.handlers import load_app
from stepkeep.kernel.errors import InvalidInput


def flow_of(*handlers: Callable[..., Any]) -> tuple[sk.Workflow, sk.Registry]:
    registry = sk.Registry()
    made = sk.Workflow("shares", registry=registry)
    for number, handler in enumerate(handlers):
        made.step(f"s{number}", sk.step(f"h{number}", registry=registry)(handler))
    return made, registry


@pytest.mark.postgres
def test_a_pool_that_a_handler_made_serves_the_next_run(postgres_dsn: str) -> None:
    import asyncpg

    pool: asyncpg.Pool | None = None

    async def ask() -> int:
        nonlocal pool
        if pool is None:
            pool = await asyncpg.create_pool(postgres_dsn, min_size=1, max_size=2)
        return await pool.fetchval("select 1")

    async def close() -> None:
        if pool is not None:
            await pool.close()

    made, registry = flow_of(ask)
    closing, _ = flow_of(ask)
    with sk.open(postgres_dsn, registry=registry) as engine:
        assert [engine.run(made, check=True).output for _ in range(3)] == [1, 1, 1]
        sk.step("h-close", registry=registry)(close)
        closing = sk.Workflow("closes", registry=registry)
        closing.step("only", close)
        engine.run(closing, check=True)


def test_all_runs_of_an_engine_share_one_loop_and_one_lifespan(database_url: str) -> None:
    told: list[str] = []
    loops: set[Any] = set()

    async def lifespan() -> AsyncIterator[dict[str, Any]]:
        told.append("open")
        loops.add(asyncio.get_running_loop())
        yield {"client": "c"}
        loops.add(asyncio.get_running_loop())
        told.append("close")

    async def on_loop(ctx: sk.Context) -> str:
        loops.add(asyncio.get_running_loop())
        told.append("ran")
        return str(ctx.shared["client"])

    def in_thread(ctx: sk.Context) -> list[str]:
        return list(ctx.shared)

    made, registry = flow_of(on_loop, in_thread)
    with sk.open(database_url, registry=registry, lifespan=lifespan) as engine:
        assert told == []
        assert engine.run(made, check=True).output == ["client"]
        with engine.start_worker():
            assert engine.wait(engine.start(made).run_id, seconds=60).output == ["client"]
        assert told == ["open", "ran", "ran"]
    assert told == ["open", "ran", "ran", "close"]
    assert len(loops) == 1


def test_a_worker_has_a_lifespan_of_its_own_and_registered_ones_come_first(database_url: str) -> None:
    told: list[str] = []

    def manager(name: str) -> Callable[[], Any]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[dict[str, str]]:
            told.append(f"open {name}")
            yield {name: name}
            told.append(f"close {name}")

        return opened

    def both(ctx: sk.Context) -> list[str]:
        return sorted(ctx.shared)

    made, registry = flow_of(both)
    sk.lifespan(registry=registry)(manager("registered"))
    with sk.open(database_url, registry=registry) as engine:
        with engine.start_worker(lifespan=manager("own")):
            assert engine.wait(engine.start(made).run_id, seconds=60).output == ["own", "registered"]
        assert told == ["open registered", "open own", "close own", "close registered"]


async def test_handlers_may_run_on_the_loop_of_the_program(database_url: str) -> None:
    mine, told = asyncio.get_running_loop(), list[str]()
    gate = asyncio.Event()

    async def lifespan() -> AsyncIterator[dict[str, Any]]:
        told.append("open")
        yield {"gate": gate}
        told.append("close")

    async def handler(ctx: sk.Context) -> bool:
        ctx.shared["gate"].set()
        return asyncio.get_running_loop() is mine

    made, registry = flow_of(handler)
    async with sk.AsyncEngine(database_url, registry=registry, loop="mine", lifespan=lifespan) as engine:
        async with await engine.start_worker():
            started = await engine.start(made)
            await gate.wait()
            output = (await engine.wait(started.run_id, seconds=60)).output
        told.append("worker ended")
        assert (await engine.run(made, check=True)).output is True
    assert (output, told) == (True, ["open", "worker ended", "close"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: (_ for _ in ()), "an async function with one `yield`"),
        (lambda: 5, "returned a value of type int"),
        ("text", "not a value of type str"),
    ],
)
def test_what_is_no_lifespan_is_refused(wrong: Any, said: str, tmp_path: Path) -> None:
    made, registry = flow_of(lambda: None)
    with (
        pytest.raises(InvalidInput, match=said),
        sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry, lifespan=wrong) as engine,
    ):
        engine.run(made)


def test_a_lifespan_that_fails_is_named_where_the_worker_starts(tmp_path: Path) -> None:
    tries: list[int] = []

    async def opens() -> AsyncIterator[dict[str, Any]]:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionRefusedError("no such host")
        yield {"x": 1}

    async def yields_no_mapping() -> AsyncIterator[int]:
        yield 5

    async def same_name() -> AsyncIterator[dict[str, int]]:
        yield {"x": 2}

    made, registry = flow_of(lambda ctx: ctx.shared["x"])
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry, lifespan=opens) as engine:
        with pytest.raises(InvalidInput, match="the lifespan opens failed: ConnectionRefusedError: no such host"):
            engine.run(made)
        with pytest.raises(InvalidInput, match="the lifespan opens failed"):
            engine.start_worker()
        assert engine.run(made, check=True).output == 1
        with pytest.raises(InvalidInput, match="Yield a mapping"):
            engine.start_worker(lifespan=yields_no_mapping)
        sk.lifespan(registry=registry)(opens)
        with pytest.raises(InvalidInput, match="yields 'x', and so does another"):
            engine.start_worker(lifespan=same_name)


def test_what_was_not_shared_is_named(tmp_path: Path) -> None:
    async def lifespan() -> AsyncIterator[dict[str, int]]:
        yield {"pool": 1}

    registry, once = sk.Registry(), sk.Retry(max_attempts=1)
    sk.step("here", registry=registry)(lambda ctx: ctx.shared["pol"])
    sk.step("apart", mode="process", registry=registry)(process_handlers.shared_pool)
    said = {
        "here": "no lifespan of this worker gave it; there are: pool",
        "apart": "in a process of its own shares nothing",
    }
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry, lifespan=lifespan) as engine:
        for handler, words in said.items():
            flow = sk.Workflow(handler, registry=registry)
            flow.step("only", handler, retry=once)
            [step] = engine.run(flow).view["steps"]
            assert words in step["error"]


def test_a_loop_that_breaks_opens_its_lifespan_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened: list[Any] = []

    async def lifespan() -> AsyncIterator[dict[str, Any]]:
        opened.append(asyncio.get_running_loop())
        yield {"loop": opened[-1]}

    async def breaks() -> None:
        loop: Any = asyncio.get_running_loop()
        os.close(loop._selector.fileno())
        await asyncio.sleep(60)

    async def asks(ctx: sk.Context) -> bool:
        return ctx.shared["loop"] is asyncio.get_running_loop()

    made, registry = flow_of(asks)
    sk.step("breaks", registry=registry)(breaks)
    bad = sk.Workflow("bad", registry=registry)
    bad.step("only", "breaks", retry=sk.Retry(max_attempts=1))
    with (
        caplog.at_level(logging.CRITICAL),
        sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry, lifespan=lifespan) as engine,
    ):
        assert engine.run(bad).state == "failed"
        assert engine.run(made, check=True).output is True
    assert len(opened) == 2


@pytest.mark.usefixtures("empty_registry")
def test_a_module_with_handlers_brings_its_lifespan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "app_with_lifespan.py"
    file.write_text(
        "import stepkeep as sk\n\n@sk.lifespan\nasync def clients():\n    yield {'n': 41}\n\n"
        "@sk.step('app.add')\ndef add(ctx):\n    return ctx.shared['n'] + 1\n",
        encoding="utf-8",
    )
    load_app(str(file))
    load_app(str(file))
    made = sk.Workflow("app")
    made.step("only", "app.add")
    with sk.open(f"sqlite:///{tmp_path}/x.db") as engine:
        assert engine.run(made, check=True).output == 42
