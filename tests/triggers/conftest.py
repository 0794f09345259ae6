"""`async def` tests run on the loop that their stages live on. Each test runs on both stores."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.triggers.stage import EIGHT, Stage
from tests.workbench import benches


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    runner: asyncio.Runner = pyfuncitem._request.getfixturevalue("runner")
    names = inspect.signature(pyfuncitem.obj).parameters
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def stages(database_url: str, runner: asyncio.Runner) -> Iterator[list[Stage]]:
    """Three openings of one database, as three workers have it. Their clocks are set to half past eight."""
    stack = AsyncExitStack()

    async def opened() -> list[Stage]:
        found = [Stage(bench) for bench in await stack.enter_async_context(benches(database_url, 3))]
        for stage in found:
            await stage.set_clock(EIGHT)
        return found

    try:
        yield runner.run(opened())
    finally:
        runner.run(stack.aclose())


@pytest.fixture
def stage(stages: list[Stage]) -> Stage:
    return stages[0]
